"""Follow a planned trajectory: pursuit of its path, and of its progress along it.

Both are least squares fits over the near future instead of one point of it. A plan is a cubic
spline through a few waypoints, so its acceleration at t0 is mostly the waypoints' rounding; what
it says about the second to come is not. A plan may be old: position and progress are compared
with where the vehicle really is by now.
"""

import math
from dataclasses import dataclass

import numpy as np

from ..planning.fallback import StopPlan
from ..planning.trajectory import to_fixed
from ..types import Plan
from .vehicle import VEHICLE, Control, VehicleState

LOOKAHEAD_S = 0.8  # of path at the present speed
MIN_LOOKAHEAD_M = 3.5
MIN_PATH_M = 1.0  # a shorter path says nothing about where to steer
PREVIEW_S = 1.0
STEP_S = 0.1
STANDING_MPS = 0.4
STANDING_M = 0.4  # a plan that goes no farther than this wants the vehicle to stand
HOLD_MPS2 = -2.0


@dataclass(frozen=True, eq=False)
class MapTrajectory:
    """A planned trajectory in the map frame; all arrays have N entries.

    `progress_m` is the way driven since t0, along the heading: it does not grow in reverse.
    """

    t0_ns: int
    time_s: np.ndarray  # [N], from t0
    xy_map_m: np.ndarray  # [N, 2]
    progress_m: np.ndarray  # [N]

    @classmethod
    def of_points(
        cls, t0_ns: int, time_s: np.ndarray, xy_map_m: np.ndarray, heading_rad: np.ndarray
    ) -> 'MapTrajectory':
        """Return the trajectory through these points and headings, [N], [N, 2] and [N]."""
        middle_rad = heading_rad[:-1] + np.diff(heading_rad) / 2
        ahead = np.stack([np.cos(middle_rad), np.sin(middle_rad)], axis=1)
        steps_m = (np.diff(xy_map_m, axis=0) * ahead).sum(axis=1)
        progress_m = np.maximum.accumulate(np.append(0.0, np.cumsum(steps_m)))
        return cls(t0_ns, time_s, xy_map_m, progress_m)

    @classmethod
    def of_plan(cls, plan: Plan | StopPlan) -> 'MapTrajectory':
        """Return the plan's trajectory; the odometry's fixed frame is the map frame."""
        positions_m, quaternions = to_fixed(plan.trajectory, plan.ego)
        x, y, z, w = quaternions.T
        heading_rad = np.unwrap(np.arctan2(2 * (w * z + x * y), 1 - 2 * (y**2 + z**2)))
        time_s = plan.trajectory.time_ns / 1e9
        return cls.of_points(plan.t0_ns, time_s, positions_m[:, :2], heading_rad)


def follow(trajectory: MapTrajectory, now_ns: int, state: VehicleState) -> Control:
    """Return what to do now to be where the trajectory wants the vehicle in the second to come."""
    xy_base_m = _in_base(trajectory.xy_map_m, state)
    here_m = _progress_of_vehicle(trajectory.progress_m, xy_base_m)
    age_s = (now_ns - trajectory.t0_ns) / 1e9
    return Control(
        acceleration_mps2=_acceleration(trajectory, age_s, here_m, state.speed_mps),
        steering_rad=_steering(trajectory.progress_m, xy_base_m, here_m, state),
    )


def _in_base(xy_map_m: np.ndarray, state: VehicleState) -> np.ndarray:
    cos, sin = math.cos(state.heading_rad), math.sin(state.heading_rad)
    return (xy_map_m - [state.x_m, state.y_m]) @ np.array([[cos, -sin], [sin, cos]])


def _progress_of_vehicle(progress_m: np.ndarray, xy_base_m: np.ndarray) -> float:
    """Return the progress of the path's point nearest to the vehicle, straight beyond its ends."""
    start, step = xy_base_m[:-1], np.diff(xy_base_m, axis=0)
    length_m2 = (step**2).sum(axis=1)
    moving = length_m2 > 1e-8
    if not moving.any():
        return 0.0
    share = np.where(moving, -(start * step).sum(axis=1) / np.where(moving, length_m2, 1.0), 0.0)
    first, last = np.flatnonzero(moving)[[0, -1]]
    inside = np.clip(share, 0.0, 1.0)
    nearest = int(np.argmin(np.where(moving, ((start + inside[:, None] * step) ** 2).sum(axis=1),
                                     np.inf)))  # fmt: skip
    beyond = (nearest == first and share[first] < 0) or (nearest == last and share[last] > 1)
    at = share[nearest] if beyond else inside[nearest]
    return float(progress_m[nearest] + at * math.sqrt(length_m2[nearest]))


def _acceleration(
    trajectory: MapTrajectory, age_s: float, here_m: float, speed_mps: float
) -> float:
    """Return the constant acceleration that keeps up best with the progress to come."""
    end_m = trajectory.progress_m[-1]
    if end_m - here_m < STANDING_M and speed_mps < STANDING_MPS:
        return HOLD_MPS2
    ahead_s = np.arange(STEP_S, PREVIEW_S + STEP_S / 2, STEP_S)
    wanted_m = np.interp(age_s + ahead_s, trajectory.time_s, trajectory.progress_m) - here_m
    # Once the plan stands there is nothing more to fit: braking does not fade out before.
    stands = wanted_m >= end_m - here_m - 0.02
    used = max(4, len(ahead_s) if not stands.any() else int(np.argmax(stands)) + 1)
    ahead_s, wanted_m = ahead_s[:used], wanted_m[:used]
    half_m = ahead_s**2 / 2
    return float(half_m @ (wanted_m - speed_mps * ahead_s) / (half_m @ half_m))


def _steering(
    progress_m: np.ndarray, xy_base_m: np.ndarray, here_m: float, state: VehicleState
) -> float:
    """Return the angle of the arc that fits the path best over the lookahead."""
    lookahead_m = max(MIN_LOOKAHEAD_M, LOOKAHEAD_S * state.speed_mps)
    reach_m = min(lookahead_m, progress_m[-1] - here_m)
    if reach_m < MIN_PATH_M:
        return state.steering_rad
    ahead_m = here_m + np.linspace(0.25, 1.0, 8) * reach_m
    # Where the vehicle stands the progress stays the same: keep one point of each.
    grows = np.append(True, np.diff(progress_m) > 0)
    x, y = (np.interp(ahead_m, progress_m[grows], axis[grows]) for axis in xy_base_m.T)
    distance_m2 = x**2 + y**2
    curvature_1pm = 2 * float(y @ distance_m2 / (distance_m2 @ distance_m2))
    return math.atan(curvature_1pm * VEHICLE.wheelbase_m)
