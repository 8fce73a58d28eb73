"""Read a ROS parameter file of the planner without ROS."""

from pathlib import Path
from typing import Any

from .parameter_values import ParameterError

NOT_OURS = ('use_sim_time', 'autostart')  # of the node, not of `Parameters`


def read_parameters(path: Path | None) -> dict[str, Any]:
    """Return the file's parameters as flat names, unchecked; none without a file.

    Raises ParameterError.
    """
    if path is None:
        return {}
    import yaml

    try:
        tree = yaml.safe_load(path.read_text('utf8'))
        nodes = [node['ros__parameters'] for node in tree.values()]
    except OSError as error:
        raise ParameterError(f'{path}: cannot be read ({error.strerror})') from error
    except (yaml.YAMLError, AttributeError, KeyError, TypeError, UnicodeDecodeError) as error:
        raise ParameterError(f'{path}: is not a ROS parameter file ({error})') from error
    flat: dict[str, Any] = {}
    for node in nodes:
        flat.update(_flattened(node))
    return {name: value for name, value in flat.items() if name not in NOT_OURS}


def with_rate(parameters: dict[str, Any], rate_hz: float) -> dict[str, Any]:
    """Return the parameters at another rate; deadline and age follow it."""
    period_s = 1 / max(rate_hz, 1e-3)
    slower = {'max_plan_age_s': min(max(1.0, 3 * period_s), 10.0)}
    return {
        **slower,
        **parameters,
        'rate_hz': rate_hz,
        'deadline_s': min(0.8 * period_s, 10.0),
    }


def _flattened(tree: dict[str, Any], prefix: str = '') -> dict[str, Any]:
    flat = {}
    for key, value in tree.items():
        if isinstance(value, dict):
            flat.update(_flattened(value, f'{prefix}{key}.'))
        else:
            flat[prefix + key] = value
    return flat
