"""Braking to a standstill along the path of the last valid plan."""

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.interpolate import CubicSpline
from scipy.spatial.transform import Rotation

from ..types import EgoState, Plan, Trajectory
from .trajectory import time_grid_ns, to_fixed

STANDING_MPS = 0.01
MIN_SPACING_M = 0.05  # path points closer than this carry no direction
MAX_OFFSET_M = 3.0  # a vehicle farther from the path, or turned more, stops straight ahead
MAX_TURN_RAD = math.pi / 4
MERGE_S, MIN_MERGE_M = 3.0, 5.0  # time and least distance in which it comes back onto the path


@dataclass(frozen=True, eq=False)
class StopPlan:
    """A braking trajectory in the base frame of `ego`, the state at `t0_ns`."""

    t0_ns: int
    ego: EgoState
    trajectory: Trajectory


def stop_trajectory(
    plan: Plan,
    ego_now: EgoState | None,
    deceleration_mps2: float,
    point_interval_s: float,
    start_ns: int,
) -> StopPlan:
    """Brake with constant deceleration from the vehicle's state, then stand.

    The vehicle starts where `ego_now` is, or, without one in the plan's fixed frame, where
    `plan` says that it is at `start_ns`. It follows the path of `plan`, lengthened straight at
    its ends, and comes back onto it smoothly when it is beside it; reversing, it brakes in
    reverse. One that is off that path altogether stops straight ahead. The trajectory lasts as
    long as that of `plan`, or until standstill if that is later.
    """
    if ego_now is None or ego_now.fixed_frame != plan.ego.fixed_frame:
        ego = state_on_plan(plan, start_ns)
    else:
        ego = ego_now
    speed_mps = ego.speed_mps if abs(ego.speed_mps) > STANDING_MPS else 0.0
    stop_ns = round(abs(speed_mps) / deceleration_mps2 * 1e9)
    step_ns = round(point_interval_s * 1e9)
    whole_steps_ns = -(-stop_ns // step_ns) * step_ns
    time_ns = time_grid_ns(max(int(plan.trajectory.time_ns[-1]), whole_steps_ns), point_interval_s)
    time_s = time_ns * 1e-9
    pace_mps = np.maximum(abs(speed_mps) - deceleration_mps2 * time_s, 0.0)
    travelled_m = (speed_mps**2 - pace_mps**2) / (2 * deceleration_mps2)
    direction = -1.0 if speed_mps < 0 else 1.0
    path = _path_ahead(plan, ego, direction, float(travelled_m[-1]))
    tangent = direction * path(travelled_m, 1)
    bend = path(travelled_m, 2)
    # The path is parametrised by its length, hence |tangent| is 1 but for the spline's error.
    curvature_1pm = (tangent[:, 0] * bend[:, 1] - tangent[:, 1] * bend[:, 0]) / np.maximum(
        np.hypot(*tangent.T) ** 3, 1e-9
    )
    curvature_1pm = np.where(pace_mps > 0, curvature_1pm, 0.0)
    signed_mps = direction * pace_mps
    trajectory = Trajectory(
        time_ns=time_ns,
        xy_base_m=path(travelled_m),
        heading_base_rad=np.unwrap(np.arctan2(tangent[:, 1], tangent[:, 0])),
        speed_mps=signed_mps,
        acceleration_mps2=np.where(time_ns < stop_ns, -direction * deceleration_mps2, 0.0),
        heading_rate_radps=curvature_1pm * signed_mps,
        curvature_1pm=curvature_1pm,
    )
    return StopPlan(ego.stamp_ns, ego, trajectory)


def state_on_plan(plan: Plan, time_ns: int) -> EgoState:
    """Return the vehicle's state as `plan` foresees it at `time_ns`, within its horizon."""
    trajectory = plan.trajectory
    since_ns = min(max(time_ns - plan.t0_ns, 0), int(trajectory.time_ns[-1]))

    def at(values):
        return float(np.interp(since_ns, trajectory.time_ns, values))

    here = Trajectory(
        time_ns=np.zeros(1, np.int64),
        xy_base_m=np.array([[at(trajectory.xy_base_m[:, 0]), at(trajectory.xy_base_m[:, 1])]]),
        heading_base_rad=np.array([at(trajectory.heading_base_rad)]),
        speed_mps=np.array([at(trajectory.speed_mps)]),
        acceleration_mps2=np.array([at(trajectory.acceleration_mps2)]),
        heading_rate_radps=np.array([at(trajectory.heading_rate_radps)]),
        curvature_1pm=np.array([at(trajectory.curvature_1pm)]),
    )
    positions_m, quaternions = to_fixed(here, plan.ego)
    speed_mps, yaw_rate_radps = float(here.speed_mps[0]), float(here.heading_rate_radps[0])
    return replace(
        plan.ego,
        stamp_ns=plan.t0_ns + since_ns,
        position_fixed_m=tuple(positions_m[0].tolist()),
        orientation_xyzw=tuple(quaternions[0].tolist()),
        velocity_base_mps=(speed_mps, 0.0),
        yaw_rate_radps=yaw_rate_radps,
        acceleration_base_mps2=(float(here.acceleration_mps2[0]), speed_mps * yaw_rate_radps),
    )


def _path_ahead(plan: Plan, ego: EgoState, direction: float, length_m: float) -> CubicSpline:
    """Return the vehicle's way, at least `length_m` long, as a function of its length.

    In the base frame of `ego`; it begins at (0, 0) towards (`direction`, 0).
    """
    points_m = _plan_path(plan, ego)
    start = np.array([direction, 0.0])
    reach_m = 1.5 * length_m + 2 * MAX_OFFSET_M  # inside a bend, the way is shorter than the path
    ahead_m = np.linspace(0.0, reach_m, max(math.ceil(reach_m / 0.25), 8) + 1)
    way_m = ahead_m[:, None] * start
    if len(points_m) > 1:
        chords_m = np.hypot(*np.diff(points_m, axis=0).T)
        spline = CubicSpline(np.append(0.0, np.cumsum(chords_m)), points_m)
        if _tangent(spline, _nearest(spline)) @ start < 0:  # driven the other way
            spline = CubicSpline(spline.x[-1] - spline.x[::-1], points_m[::-1])
        here_m = _nearest(spline)
        offset_m, tangent = -_extended(spline, here_m), _tangent(spline, here_m)
        turn_rad = abs(math.atan2(tangent[1] * direction, tangent[0] * direction))
        if np.hypot(*offset_m) <= MAX_OFFSET_M and turn_rad <= MAX_TURN_RAD:
            merge_m = max(MERGE_S * abs(ego.speed_mps), MIN_MERGE_M)
            u = np.minimum(ahead_m / merge_m, 1.0)[:, None]
            # Quintic blends: from the vehicle's place and direction to those of the path.
            place = 1 - 10 * u**3 + 15 * u**4 - 6 * u**5
            course = u - 6 * u**3 + 8 * u**4 - 3 * u**5
            way_m = _extended(spline, here_m + ahead_m)
            way_m = way_m + place * offset_m + merge_m * course * (start - tangent)
    lengths_m = np.append(0.0, np.cumsum(np.hypot(*np.diff(way_m, axis=0).T)))
    return CubicSpline(lengths_m, way_m, bc_type=((1, start), 'not-a-knot'))


def _plan_path(plan: Plan, ego: EgoState) -> np.ndarray:
    """Return the plan's path [N, 2] in the base frame of `ego`, up to its first turning back."""
    positions_m, _ = to_fixed(plan.trajectory, plan.ego)
    to_base = Rotation.from_quat(ego.orientation_xyzw).inv()
    xy_m = to_base.apply(positions_m - np.array(ego.position_fixed_m))[:, :2]
    kept = [xy_m[0]]
    for point in xy_m[1:]:
        step = point - kept[-1]
        if np.hypot(*step) < MIN_SPACING_M:
            continue
        if len(kept) > 1 and step @ (kept[-1] - kept[-2]) < 0:
            break
        kept.append(point)
    return np.array(kept)


def _extended(spline: CubicSpline, at_m: np.ndarray | float) -> np.ndarray:
    """Evaluate `spline`, straight beyond its ends."""
    beyond_m = at_m - np.clip(at_m, spline.x[0], spline.x[-1])
    return spline(at_m - beyond_m) + np.asarray(beyond_m)[..., None] * _tangent(spline, at_m)


def _tangent(spline: CubicSpline, at_m: np.ndarray | float) -> np.ndarray:
    return spline(np.clip(at_m, spline.x[0], spline.x[-1]), 1)


def _nearest(spline: CubicSpline) -> float:
    """Return where the straight-extended `spline` comes nearest to (0, 0)."""
    first, last = spline.x[0], spline.x[-1]
    grid_m = np.linspace(first, last, max(math.ceil((last - first) / 0.1), 8) + 1)
    at_m = grid_m[np.argmin(np.hypot(*spline(grid_m).T))]
    # The foot of the perpendicular on the tangent; at an end it may lie on the extension.
    tangent = spline(at_m, 1)
    return float(at_m - spline(at_m) @ tangent / (tangent @ tangent))
