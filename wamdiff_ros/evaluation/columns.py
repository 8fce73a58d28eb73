"""What is measured of every tick: the columns of metrics.csv, with their units and failures.

A mean is over the ticks that have a value. `failure` is the value of a tick that has no plan of
its own; without one such a tick is left out, and coverage says how many those are.
"""

from dataclasses import dataclass

from . import displacement, nuscenes

PRIMARY = 'ade_3s_m'
RANKED = 'ade_3s_due_m'  # what ticks and segments are ranked by: failures count


@dataclass(frozen=True)
class Column:
    """One number per tick."""

    name: str
    words: str  # for people
    unit: str
    better: str  # 'less' or 'more', '' for a bias
    group: str
    failure: float | None = None
    digits: int = 2


def _displacement() -> list[Column]:
    group, found = 'displacement', []
    for horizon_s in displacement.HORIZONS_S:
        h, words = f'{horizon_s:g}s', f'{horizon_s:g} s'
        found += [
            Column(f'ade_{h}_m', f'ADE to {words}', 'm', 'less', group),
            Column(f'ade_{h}_due_m', f'ADE to {words}, failures standing', 'm', 'less', group),
            Column(f'fde_{h}_m', f'FDE at {words}', 'm', 'less', group),
            Column(
                f'heading_{h}_rad', f'heading error to {words}', 'rad', 'less', group, digits=3
            ),
            Column(f'longitudinal_{h}_m', f'longitudinal error at {words}', 'm', 'less', group),
            Column(f'lateral_{h}_m', f'lateral error at {words}', 'm', 'less', group),
            Column(f'longitudinal_bias_{h}_m', f'ahead of the truth at {words}', 'm', '', group),
            Column(f'lateral_bias_{h}_m', f'left of the truth at {words}', 'm', '', group),
            Column(f'miss_{h}', f'misses at {words} (> 2 m)', '', 'less', group, 1.0, 3),
        ]
    return found


def _nuscenes() -> list[Column]:
    found = []
    for convention, words in (('at', 'UniAD'), ('mean', 'VAD, ST-P3')):
        for horizon_s in nuscenes.HORIZONS_S:
            h, at = f'{convention}_{horizon_s:g}s', f'{convention} {horizon_s:g} s'
            group = f'nuScenes, {words}'
            found += [
                Column(f'nuscenes_l2_{h}_m', f'L2, {at}', 'm', 'less', group),
                Column(f'nuscenes_collision_{h}', f'collisions, {at}', '', 'less', group, None, 4),
            ]
    return found


def _score(name: str, words: str, group: str, failure: float | None = 0.0) -> Column:
    return Column(name, words, '', 'more', group, failure, 3)


COLUMNS: tuple[Column, ...] = (
    Column('own_plan', 'coverage', '', 'more', 'coverage', 0.0, 3),
    *_displacement(),
    *_nuscenes(),
    _score('rater_feedback', 'rater feedback score (0 … 10)', 'WOD-E2E'),
    _score('in_trust_region', 'in a trust region', 'WOD-E2E'),
    _score('comfort', 'comfort', 'NAVSIM'),
    _score('history_comfort', 'history comfort', 'NAVSIM'),
    _score('extended_comfort', 'extended comfort', 'NAVSIM'),
    _score('no_collision', 'no collision (NC)', 'NAVSIM'),
    _score('on_road', 'drivable area (DAC)', 'NAVSIM'),
    _score('direction', 'driving direction (DDC)', 'NAVSIM'),
    _score('lights', 'traffic lights (TLC)', 'NAVSIM'),
    _score('progress', 'progress (EP)', 'NAVSIM'),
    _score('time_to_collision', 'time to collision (TTC)', 'NAVSIM'),
    _score('lane_keeping', 'lane keeping (LK)', 'NAVSIM'),
    _score('pdms', 'PDMS', 'NAVSIM'),
    _score('epdms', 'EPDMS', 'NAVSIM'),
    Column('shift_m', 'shift to the plan before, mean', 'm', 'less', 'between plans'),
    Column('shift_max_m', 'shift to the plan before, largest', 'm', 'less', 'between plans'),
    Column('held', 'held', '', 'less', 'publication', digits=3),
    Column('fallback', 'fallback stop', '', 'less', 'publication', digits=3),
    Column('waiting', 'without a trajectory', '', 'less', 'publication', digits=3),
    Column('age_ms', 'age at publication', 'ms', 'less', 'publication', digits=0),
)
BY_NAME = {column.name: column for column in COLUMNS}
