"""Braking to a standstill along the path of the last valid plan."""

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.integrate import cumulative_trapezoid
from scipy.interpolate import CubicSpline
from scipy.spatial.transform import Rotation

from ..parameters import Parameters
from ..types import EgoState, Plan, Trajectory
from .trajectory import time_grid_ns, to_fixed

STANDING_MPS = 0.01
MIN_SPACING_M = 1.0  # closer path points carry the rounding of the waypoints as their direction
MAX_OFFSET_M = 3.0  # a vehicle farther from the path, or turned more, stops straight ahead
MAX_TURN_RAD = math.pi / 4
# It comes back onto the path in this time and least distance, or more slowly where that would
# take more than this curvature or lateral acceleration.
MERGE_S, MIN_MERGE_M = 3.0, 5.0
MERGE_1PM, MERGE_MPS2 = 0.1, 3.0
# Greatest second derivatives of the blends of place and course in `_path_ahead`.
PLACE_BEND, COURSE_BEND = 5.8, 3.9
HARDEST_MPS2 = 6.0  # as hard as it brakes where a bend asks for it
SHARE = 0.9  # of the limits of the checks that a stop takes
GRID_M = 0.1


@dataclass(frozen=True, eq=False)
class StopPlan:
    """A braking trajectory in the base frame of `ego`, the state at `t0_ns`."""

    t0_ns: int
    ego: EgoState
    trajectory: Trajectory


def stop_trajectory(
    plan: Plan, ego_now: EgoState | None, parameters: Parameters, start_ns: int
) -> StopPlan:
    """Brake with constant deceleration from the vehicle's state, then stand.

    The vehicle starts where `ego_now` is, or, without one in the plan's fixed frame, where
    `plan` says that it is at `start_ns`. It follows the path of `plan`, lengthened straight at
    its ends, and comes back onto it smoothly when it is beside it; reversing, it brakes in
    reverse. One that is off that path altogether stops straight ahead. Where the path bends too
    much for its speed the vehicle brakes harder, up to 6 m/s^2, and what it still cannot bend,
    by the limits of the checks, it leaves to the outside. The trajectory lasts as long as that of
    `plan`, or until standstill if that is later.
    """
    if ego_now is None or ego_now.fixed_frame != plan.ego.fixed_frame:
        ego = state_on_plan(plan, start_ns)
    else:
        ego = ego_now
    speed_mps = ego.speed_mps if abs(ego.speed_mps) > STANDING_MPS else 0.0
    direction = -1.0 if speed_mps < 0 else 1.0
    longest_m = max(speed_mps**2 / (2 * parameters.fallback_deceleration_mps2), GRID_M)
    way = _path_ahead(plan, ego, direction, longest_m)
    way_m = np.linspace(0.0, longest_m, math.ceil(longest_m / GRID_M) + 1)
    bend_1pm = _curvature(way, way_m)
    deceleration_mps2 = _deceleration(speed_mps, way_m, bend_1pm, parameters)
    bend_1pm = _feasible(speed_mps, way_m, bend_1pm, deceleration_mps2, parameters)
    # The way anew, from its feasible curvature; heading and course differ by pi in reverse.
    turn_rad = cumulative_trapezoid(bend_1pm, way_m, initial=0.0)
    ahead = direction * np.stack([np.cos(turn_rad), np.sin(turn_rad)], axis=1)
    xy_m = cumulative_trapezoid(ahead, way_m, axis=0, initial=0.0)

    stop_ns = round(abs(speed_mps) / deceleration_mps2 * 1e9)
    step_ns = round(parameters.point_interval_s * 1e9)
    whole_steps_ns = -(-stop_ns // step_ns) * step_ns
    last_ns = max(int(plan.trajectory.time_ns[-1]), whole_steps_ns)
    time_ns = time_grid_ns(last_ns, parameters.point_interval_s)
    pace_mps = np.maximum(abs(speed_mps) - deceleration_mps2 * time_ns * 1e-9, 0.0)
    travelled_m = (speed_mps**2 - pace_mps**2) / (2 * deceleration_mps2)
    signed_mps = direction * pace_mps
    curvature_1pm = direction * np.interp(travelled_m, way_m, bend_1pm)
    curvature_1pm = np.where(pace_mps > 0, curvature_1pm, 0.0)
    trajectory = Trajectory(
        time_ns=time_ns,
        xy_base_m=np.stack([np.interp(travelled_m, way_m, axis) for axis in xy_m.T], axis=1),
        heading_base_rad=np.interp(travelled_m, way_m, turn_rad),
        speed_mps=signed_mps,
        acceleration_mps2=np.where(time_ns < stop_ns, -direction * deceleration_mps2, 0.0),
        heading_rate_radps=curvature_1pm * signed_mps,
        curvature_1pm=curvature_1pm,
    )
    return StopPlan(ego.stamp_ns, ego, trajectory)


def _deceleration(
    speed_mps: float, way_m: np.ndarray, bend_1pm: np.ndarray, parameters: Parameters
) -> float:
    """Return the least constant deceleration that keeps every bend of the way feasible."""
    wanted_mps2 = parameters.fallback_deceleration_mps2
    lateral_mps2 = SHARE * (parameters.max_lateral_acceleration_mps2 or math.inf)
    # v^2 = v0^2 - 2 a s must not be above lateral / |bend| at any s.
    too_fast = speed_mps**2 * np.abs(bend_1pm[1:]) - lateral_mps2
    needed_mps2 = too_fast / (2 * way_m[1:] * np.maximum(np.abs(bend_1pm[1:]), 1e-9))
    hardest_mps2 = min(HARDEST_MPS2, SHARE * (parameters.max_deceleration_mps2 or math.inf))
    return max(wanted_mps2, min(float(needed_mps2.max()), hardest_mps2))


def _feasible(
    speed_mps: float,
    way_m: np.ndarray,
    bend_1pm: np.ndarray,
    deceleration_mps2: float,
    parameters: Parameters,
) -> np.ndarray:
    """Return the curvature [N] that a braking vehicle can have along its way."""
    most_1pm = SHARE * (parameters.max_curvature_1pm or math.inf)
    lateral_mps2 = SHARE * (parameters.max_lateral_acceleration_mps2 or math.inf)
    pace2 = np.maximum(speed_mps**2 - 2 * deceleration_mps2 * way_m, 1e-9)
    most_1pm = np.minimum(most_1pm, lateral_mps2 / pace2)
    return np.clip(bend_1pm, -most_1pm, most_1pm)


def _curvature(way: CubicSpline, at_m: np.ndarray) -> np.ndarray:
    tangent, bend = way(at_m, 1), way(at_m, 2)
    # Parametrised by its length, hence |tangent| is 1 but for the spline's error.
    turning = tangent[:, 0] * bend[:, 1] - tangent[:, 1] * bend[:, 0]
    return turning / np.maximum(np.hypot(*tangent.T) ** 3, 1e-9)


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
            merge_m = _merge_length(abs(ego.speed_mps), float(np.hypot(*offset_m)), turn_rad)
            u = np.minimum(ahead_m / merge_m, 1.0)[:, None]
            # Quintic blends: from the vehicle's place and direction to those of the path.
            place = 1 - 10 * u**3 + 15 * u**4 - 6 * u**5
            course = u - 6 * u**3 + 8 * u**4 - 3 * u**5
            way_m = _extended(spline, here_m + ahead_m)
            way_m = way_m + place * offset_m + merge_m * course * (start - tangent)
    lengths_m = np.append(0.0, np.cumsum(np.hypot(*np.diff(way_m, axis=0).T)))
    return CubicSpline(lengths_m, way_m, bc_type=((1, start), 'not-a-knot'))


def _merge_length(speed_mps: float, offset_m: float, turn_rad: float) -> float:
    """Return the way in which the vehicle comes back onto the path."""
    bend_1pm = min(MERGE_1PM, MERGE_MPS2 / max(speed_mps, STANDING_MPS) ** 2)
    # The least length with place_bend * offset / length^2 + course_bend * turn / length <= bend.
    course = COURSE_BEND * turn_rad
    gentle_m = course + math.sqrt(course**2 + 4 * bend_1pm * PLACE_BEND * offset_m)
    return max(MERGE_S * speed_mps, MIN_MERGE_M, gentle_m / (2 * bend_1pm))


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
