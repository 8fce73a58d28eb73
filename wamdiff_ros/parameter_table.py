"""The table of all parameters, docs/parameters.md: `python -m wamdiff_ros.parameter_table`."""

from collections.abc import Mapping
from typing import Any

from .camera_parameters import CAMERA_DESCRIPTIONS, TRANSPORTS, camera_defaults
from .parameters import ros_fields


def markdown_table() -> str:
    """Return the document."""
    lines = [
        '# Parameters',
        '',
        'Generated from `wamdiff_ros/parameters.py`. All of them are read in `configure`; while',
        'the node is configured they cannot be set. Defaults are also in',
        '`config/planner.param.yaml`. The node has one more, `autostart`: configure and activate',
        'without being asked (default false; the launch file sets it to true).',
        '',
        '| parameter | default | accepted | meaning |',
        '|---|---|---|---|',
    ]
    for spec in ros_fields():
        default = list(spec.default) if isinstance(spec.default, tuple) else spec.default
        lines.append(_row(spec.name, default, spec.metadata))
    for name, default in camera_defaults('NAME').items():
        key = name.rsplit('.', 1)[1]
        limits = {
            'transport': {'choices': TRANSPORTS},
            'stamp_offset_s': {'low': -1.0, 'high': 1.0},
        }
        entry = {'description': CAMERA_DESCRIPTIONS[key], **limits.get(key, {})}
        lines.append(_row(name, default, entry))
    return '\n'.join(lines) + '\n'


def _row(name: str, default: Any, entry: Mapping[str, Any]) -> str:
    accepted = ''
    if entry.get('low') is not None:
        accepted = f'{entry["low"]:,} … {entry["high"]:,}'.replace(',', '\u202f')
    elif entry.get('choices'):
        accepted = ', '.join(f'`{choice}`' for choice in entry['choices'])
    shown = 'empty' if default == '' else f'`{default}`'
    return f'| `{name}` | {shown} | {accepted} | {entry["description"]} |'


if __name__ == '__main__':
    print(markdown_table(), end='')
