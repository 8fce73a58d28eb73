"""Checks that a plan has to pass before it is followed; docs/checks.md has the table.

Pure functions from a trajectory to the first broken check, or None. Every limit is a parameter,
and 0 turns its check off. Not responsible for what happens to a rejected plan: publication.py.

The waypoints behind a trajectory are written with one decimal, and a spline turns 0.05 m of
rounding into 1 to 2 m/s^2. Hence curvature is that of chords, jerk that of half a second, and the
limits are wider than those of comfort: they tell a plan from nonsense, not a good plan from a bad.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields

import numpy as np
from scipy.spatial.transform import Rotation

from ..parameters import Parameters
from ..types import EgoState, Plan, Trajectory
from .trajectory import MOVING_MPS, to_fixed

# The parameters of which 0 turns a check off.
LIMITS = (
    'max_start_offset_m', 'max_start_speed_error_mps', 'max_speed_mps', 'max_acceleration_mps2',
    'max_deceleration_mps2', 'max_lateral_acceleration_mps2', 'max_fold_back_m',
    'max_curvature_1pm', 'max_jerk_mps3', 'max_lateral_shift_m', 'max_forward_shift_m',
)  # fmt: skip
CHORD_M = 2.0  # of path between the points that curvature is taken from
JERK_S = 0.5  # over which jerk is a mean, as in human reports of it
SHIFT_S = 1.0  # how far ahead two plans are compared


@dataclass(frozen=True)
class Rejection:
    """A broken check: its name, and a sentence in ASCII with value, limit and place."""

    check: str
    reason: str


# (check, values [N], their times on the plan in s [N], limit, unit)
_Measure = tuple[str, np.ndarray, np.ndarray, float, str]


def broken_check(
    trajectory: Trajectory, ego: EgoState, parameters: Parameters, stop: bool = False
) -> Rejection | None:
    """Return the first check that `trajectory`, from the state `ego` at its t0, breaks.

    A `stop` has to begin at the speed that there is and may be abrupt: speed and jerk are not
    checked then. Never raises, whatever is in the arrays.
    """
    if malformed := _malformed(trajectory):
        return malformed
    skipped = ('speed', 'jerk') if stop else ()
    measures = _measures(trajectory, ego, parameters)
    return _first_broken(measure for measure in measures if measure[0] not in skipped)


def shifted(plan: Plan, last: Plan, parameters: Parameters) -> Rejection | None:
    """Return by how much `plan` contradicts `last` over the next second, if that is too much.

    Compared at equal times in the base frame of `plan`, after `last` has been moved to where the
    vehicle is and to how it moves now: that somebody else drives is no fault of the plan. To
    brake harder than before is always allowed. None where there is nothing to compare: another
    fixed frame, or a last plan older than max_plan_age.
    """
    age_s = (plan.t0_ns - last.t0_ns) * 1e-9
    if plan.ego.fixed_frame != last.ego.fixed_frame or not 0 <= age_s <= parameters.max_plan_age_s:
        return None
    last_s = last.trajectory.time_ns * 1e-9 - age_s
    time_s = plan.trajectory.time_ns * 1e-9
    time_s = time_s[time_s <= min(SHIFT_S, last_s[-1]) + 1e-9]
    if len(last_s) < 2 or not len(time_s):
        return None
    positions_m, _ = to_fixed(last.trajectory, last.ego)
    to_base = Rotation.from_quat(plan.ego.orientation_xyzw).inv()
    last_xy_m = to_base.apply(positions_m - np.array(plan.ego.position_fixed_m))[:, :2]
    last_velocity_mps = np.gradient(last_xy_m, last_s, axis=0)

    def then(values: np.ndarray, at_s: np.ndarray) -> np.ndarray:
        return np.stack([np.interp(at_s, last_s, axis) for axis in values.T], axis=1)

    velocity_mps = np.array([plan.trajectory.speed_mps[0], 0.0])
    moved_mps = velocity_mps - then(last_velocity_mps, np.zeros(1))
    wanted_m = then(last_xy_m, time_s) - then(last_xy_m, np.zeros(1)) + time_s[:, None] * moved_mps
    shift_m = plan.trajectory.xy_base_m[: len(time_s)] - wanted_m
    forward_m = shift_m[:, 0] * _direction(plan.ego)
    return _first_broken(
        [
            ('lateral shift', np.abs(shift_m[:, 1]), time_s, parameters.max_lateral_shift_m, 'm'),
            ('forward shift', forward_m, time_s, parameters.max_forward_shift_m, 'm'),
        ]
    )


def _malformed(trajectory: Trajectory) -> Rejection | None:
    time_ns = trajectory.time_ns
    for field in fields(Trajectory):
        values = getattr(trajectory, field.name)
        shape = (len(time_ns), 2) if field.name == 'xy_base_m' else (len(time_ns),)
        if len(time_ns) < 2 or values.shape != shape:
            reason = (
                f'{field.name} has the shape {values.shape}, wanted {shape}, at least 2 points'
            )
            return Rejection('shape', reason)
        if not np.isfinite(values).all():
            at = int(np.argmin(np.isfinite(values.reshape(len(time_ns), -1)).all(axis=1)))
            return Rejection('finite', f'{field.name} is not finite at point {at}')
    steps_ns = np.diff(time_ns)
    if time_ns[0] != 0 or (steps_ns <= 0).any():
        at = int(np.argmax(steps_ns <= 0)) + 1 if time_ns[0] == 0 else 0
        reason = f'time {time_ns[at] * 1e-9:.3f} s at point {at}, wanted from 0 on and increasing'
        return Rejection('time', reason)
    return None


def _measures(trajectory: Trajectory, ego: EgoState, p: Parameters) -> Iterator[_Measure]:
    """Yield what is compared with a limit, in the order of the table in docs/checks.md."""
    time_s, xy_m, speed_mps = trajectory.time_ns * 1e-9, trajectory.xy_base_m, trajectory.speed_mps
    direction = _direction(ego)
    start_m, start_mps = np.hypot(*xy_m[:1].T), np.abs(speed_mps[:1] - ego.speed_mps)
    yield 'start', start_m, time_s[:1], p.max_start_offset_m, 'm'
    yield 'start speed', start_mps, time_s[:1], p.max_start_speed_error_mps, 'm/s'
    # Also from the positions: a leap need not show in the speeds.
    pace_mps = np.hypot(*np.diff(xy_m, axis=0).T) / np.diff(time_s)
    pace_mps = np.maximum(np.abs(speed_mps), np.append(pace_mps, 0.0))
    yield 'speed', pace_mps, time_s, p.max_speed_mps, 'm/s'
    along_mps2 = np.where(speed_mps < 0, -1.0, 1.0) * trajectory.acceleration_mps2
    yield 'acceleration', along_mps2, time_s, p.max_acceleration_mps2, 'm/s^2'
    yield 'deceleration', -along_mps2, time_s, p.max_deceleration_mps2, 'm/s^2'
    aside_mps2 = speed_mps * trajectory.heading_rate_radps
    lateral_mps2 = np.abs(aside_mps2)
    yield 'lateral acceleration', lateral_mps2, time_s, p.max_lateral_acceleration_mps2, 'm/s^2'
    back_m = _back(trajectory, direction)
    yield 'fold back', back_m, time_s, p.max_fold_back_m, 'm'
    yield 'curvature', *_curvature(xy_m, time_s, direction), p.max_curvature_1pm, '1/m'
    before_s = time_s[time_s <= time_s[-1] - JERK_S + 1e-9]
    change_mps2 = [
        np.interp(before_s + JERK_S, time_s, a) - np.interp(before_s, time_s, a)
        for a in (trajectory.acceleration_mps2, aside_mps2)
    ]
    yield 'jerk', np.hypot(*change_mps2) / JERK_S, before_s, p.max_jerk_mps3, 'm/s^3'


def _first_broken(measures) -> Rejection | None:
    for check, values, time_s, limit, unit in measures:
        if not limit or not len(values):
            continue
        worst = int(np.argmax(values))
        if values[worst] > limit:
            reason = f'{check} {values[worst]:.2f} {unit} at {time_s[worst]:.1f} s'
            return Rejection(check, f'{reason}, limit {limit:g} {unit}')
    return None


def _direction(ego: EgoState) -> float:
    """Return -1 for a vehicle that reverses: its plan may reverse, and then not go forward."""
    return -1.0 if ego.speed_mps <= -MOVING_MPS else 1.0


def _back(trajectory: Trajectory, direction: float) -> np.ndarray:
    """Return how far the vehicle has come back along its own path by each point [N], in metres."""
    heading_rad = trajectory.heading_base_rad
    middle_rad = heading_rad[:-1] + np.diff(heading_rad) / 2
    ahead = np.stack([np.cos(middle_rad), np.sin(middle_rad)], axis=1)
    steps_m = (np.diff(trajectory.xy_base_m, axis=0) * ahead).sum(axis=1)
    progress_m = direction * np.append(0.0, np.cumsum(steps_m))
    return np.maximum.accumulate(progress_m) - progress_m


def _curvature(
    xy_m: np.ndarray, time_s: np.ndarray, direction: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the curvature [M] in 1/m between chords of 2 m or more, and where on the plan [M].

    Exact on a circle of equal chords: a chord c turns by 2 asin(c / 2R), and leaves the tangent
    by half of that. Empty where the path is shorter than one chord.
    """
    picked = [0]
    for i, point in enumerate(xy_m):
        if np.hypot(*(point - xy_m[picked[-1]])) >= CHORD_M:
            picked.append(i)
    chords_m = np.diff(xy_m[picked], axis=0) * direction
    lengths_m = np.hypot(*chords_m.T)
    course_rad = np.arctan2(chords_m[:, 1], chords_m[:, 0])
    turns_rad = np.abs(np.remainder(np.diff(course_rad) + np.pi, 2 * np.pi) - np.pi)
    between = 4 * np.sin(turns_rad / 2) / (lengths_m[1:] + lengths_m[:-1])
    off_rad = np.minimum(np.abs(course_rad[:1]), np.pi / 2)
    first = 2 * np.sin(off_rad) / lengths_m[:1]
    return np.append(first, between), time_s[picked[:-1]]
