"""What people thought of trajectories: rated moments of recordings, from a JSON file.

    {"format": "wamdiff-ratings", "moments": [
      {"bag": "monday", "t0_ns": 1700000000000000000,
       "trajectories": [{"label": 9, "xy_base_m": [[x, y], …]}, …]}, …]}

Points are 0.25 s apart, the first at t0 + 0.25 s, in base at t0; labels are 0 … 10.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

FORMAT = 'wamdiff-ratings'


class RatingsError(ValueError):
    """The file cannot be used; the message names the file, the moment and what is wrong."""


@dataclass(frozen=True, eq=False)
class RatedMoment:
    """The rated trajectories of one instant."""

    t0_ns: int
    trajectories_m: tuple[np.ndarray, ...]  # each [T, 2]
    labels: tuple[float, ...]


def read_ratings(path: Path) -> dict[str, list[RatedMoment]]:
    """Return the rated moments of every bag. Raises RatingsError."""
    try:
        content = json.loads(path.read_text('utf8'))
    except OSError as error:
        raise RatingsError(f'{path}: cannot be read ({error.strerror})') from error
    except ValueError as error:
        raise RatingsError(f'{path}: is no JSON ({error})') from error
    if not isinstance(content, dict) or content.get('format') != FORMAT:
        raise RatingsError(f'{path}: "format" is not "{FORMAT}"; docs/metrics.md describes it')
    found: dict[str, list[RatedMoment]] = {}
    for number, moment in enumerate(content.get('moments', ()), 1):
        try:
            found.setdefault(moment['bag'], []).append(_moment(moment))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise RatingsError(f'{path}: moment {number} cannot be used: {error!r}') from error
    return found


def _moment(moment: dict) -> RatedMoment:
    paths = [np.array(one['xy_base_m'], float) for one in moment['trajectories']]
    labels = tuple(float(one['label']) for one in moment['trajectories'])
    if not paths:
        raise ValueError('no trajectories')
    for path, label in zip(paths, labels, strict=True):
        if path.ndim != 2 or path.shape[1] != 2 or not np.isfinite(path).all():
            raise ValueError(f'points of shape {path.shape}, wanted finite [T, 2]')
        if not 0 <= label <= 10:
            raise ValueError(f'label {label} is not 0 … 10')
    return RatedMoment(int(moment['t0_ns']), tuple(paths), labels)
