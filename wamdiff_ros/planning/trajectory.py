"""From eight waypoints to the states of the vehicle over time."""

from functools import lru_cache

import numpy as np
from scipy.interpolate import CubicSpline
from scipy.spatial.transform import Rotation

from ..types import EgoState, Trajectory

MOVING_MPS = 0.3  # below, the direction of motion is noise and the heading is held
JERK_MPS3 = 2.0  # usual in driving: what smoothing weighs the noise of waypoints against


def trajectory_from_waypoints(
    waypoints_base_m: np.ndarray,
    velocity_base_mps: tuple[float, float],
    point_interval_s: float,
    waypoint_interval_s: float = 0.5,
    waypoint_noise_m: float = 0.0,
) -> Trajectory:
    """Lay a twice continuously differentiable cubic spline through the vehicle and its waypoints.

    A model writes its waypoints rounded, and not quite consistent with each other. With
    `waypoint_noise_m`, their standard deviation, the spline passes them at the distance that makes
    offsets and jerk together most likely (a smoothing spline); 0 is through them.

    `waypoints_base_m` is [N, 2], at `waypoint_interval_s`, 2 `waypoint_interval_s`, …; the
    trajectory goes from time 0 to the last of them, in steps of `point_interval_s` and with the
    last point at the horizon. It starts at the vehicle, along its heading and with its forward
    speed (the sideways velocity is slip: it is not steered). The heading is the direction of
    motion above 0.3 m/s, and that of the last moving point below; motion against it is reverse.
    Raises ValueError for values that are not finite.
    """
    waypoints_base_m = np.asarray(waypoints_base_m, dtype=np.float64)
    forward_mps, left_mps = velocity_base_mps
    if waypoints_base_m.ndim != 2 or waypoints_base_m.shape[1] != 2 or not len(waypoints_base_m):
        raise ValueError(f'waypoints of shape {waypoints_base_m.shape}, wanted [N, 2]')
    if not np.isfinite(waypoints_base_m).all():
        raise ValueError(f'waypoints {waypoints_base_m.tolist()} are not finite')
    if not np.isfinite([forward_mps, left_mps]).all():
        raise ValueError(f'velocity {velocity_base_mps} is not finite')
    step_ns = round(waypoint_interval_s * 1e9)
    knots_s = np.arange(len(waypoints_base_m) + 1) * step_ns * 1e-9
    start_mps = np.array([forward_mps, 0.0])
    if waypoint_noise_m and len(waypoints_base_m) > 2:
        of_waypoints, of_start = _smoothing(len(waypoints_base_m), step_ns, waypoint_noise_m)
        waypoints_base_m = of_waypoints @ waypoints_base_m + np.outer(of_start, start_mps)
    spline = _spline(knots_s, np.vstack([np.zeros(2), waypoints_base_m]), start_mps)
    time_ns = time_grid_ns(len(waypoints_base_m) * step_ns, point_interval_s)
    time_s = time_ns * 1e-9
    return _from_motion(time_ns, spline(time_s), spline(time_s, 1), spline(time_s, 2))


def _spline(knots_s: np.ndarray, points: np.ndarray, start: np.ndarray) -> CubicSpline:
    return CubicSpline(knots_s, points, bc_type=((1, start), 'not-a-knot'))


@lru_cache(maxsize=8)
def _smoothing(count: int, step_ns: int, noise_m: float) -> tuple[np.ndarray, np.ndarray]:
    """Return what waypoints [count, count] and the first speed [count] do to smoothed waypoints.

    The jerk of a cubic spline is constant between knots and linear in its points, so the least
    squares of offsets over `noise_m` and jerks over JERK_MPS3 have a solution in closed form.
    """
    knots_s = np.arange(count + 1) * step_ns * 1e-9
    points = np.vstack([np.zeros(count), np.eye(count)])
    jerk = 6 * _spline(knots_s, points, np.zeros(count)).c[0]  # [count, count] per m
    start_jerk = 6 * _spline(knots_s, np.zeros((count + 1, 1)), np.ones(1)).c[0][:, 0]
    weight = (noise_m / JERK_MPS3) ** 2
    inverse = np.linalg.inv(np.eye(count) + weight * jerk.T @ jerk)
    return inverse, -weight * inverse @ jerk.T @ start_jerk


def time_grid_ns(horizon_ns: int, point_interval_s: float) -> np.ndarray:
    """Return int64 [N]: 0, one interval, two, …, and the horizon, strictly increasing."""
    interval_ns = round(point_interval_s * 1e9)
    if interval_ns < 1:
        raise ValueError(f'point interval {point_interval_s} s is not above 0')
    # An interval such as 1/3 s is not a whole number of ns: no extra point just before the end.
    grid_ns = np.arange(0, max(horizon_ns - interval_ns // 100, 1), interval_ns, dtype=np.int64)
    return np.append(grid_ns, np.int64(horizon_ns))


def _from_motion(
    time_ns: np.ndarray,
    xy_base_m: np.ndarray,
    velocity_mps: np.ndarray,
    acceleration_mps2: np.ndarray,
) -> Trajectory:
    """Derive heading, speed and curvature from position [N, 2] and its two derivatives."""
    pace_mps = np.hypot(*velocity_mps.T)
    moving = pace_mps > MOVING_MPS
    heading_rad = _headings(velocity_mps, moving)
    ahead = np.stack([np.cos(heading_rad), np.sin(heading_rad)], axis=1)
    speed_mps = (velocity_mps * ahead).sum(axis=1)
    turning = (
        velocity_mps[:, 0] * acceleration_mps2[:, 1] - velocity_mps[:, 1] * acceleration_mps2[:, 0]
    )
    pace_or_one = np.where(moving, pace_mps, 1.0)
    heading_rate_radps = np.where(moving, turning / pace_or_one**2, 0.0)
    return Trajectory(
        time_ns=time_ns,
        xy_base_m=xy_base_m,
        heading_base_rad=heading_rad,
        speed_mps=speed_mps,
        acceleration_mps2=(acceleration_mps2 * ahead).sum(axis=1),
        heading_rate_radps=heading_rate_radps,
        curvature_1pm=np.where(moving, heading_rate_radps / np.where(moving, speed_mps, 1.0), 0.0),
    )


def _headings(velocity_mps: np.ndarray, moving: np.ndarray) -> np.ndarray:
    """Return continuous headings [N] from 0 on, held at standstill and kept in reverse."""
    courses_rad = np.arctan2(velocity_mps[:, 1], velocity_mps[:, 0])
    headings_rad = np.zeros(len(courses_rad))
    held_rad = 0.0
    for i in np.flatnonzero(moving):
        # The nearest of course + k pi: a vehicle reverses rather than turns round at once.
        turn_rad = np.remainder(courses_rad[i] - held_rad + np.pi / 2, np.pi) - np.pi / 2
        headings_rad[i:] = held_rad = held_rad + turn_rad
    return headings_rad


def to_fixed(trajectory: Trajectory, ego: EgoState) -> tuple[np.ndarray, np.ndarray]:
    """Return positions [N, 3] in metres and quaternions (x, y, z, w) [N, 4] in the fixed frame.

    `ego` is the state at the trajectory's t0; the trajectory lies in the plane of its base
    frame, so it follows a slope.
    """
    base_in_fixed = Rotation.from_quat(ego.orientation_xyzw)
    xyz_base_m = np.pad(trajectory.xy_base_m, ((0, 0), (0, 1)))
    positions_m = base_in_fixed.apply(xyz_base_m) + np.array(ego.position_fixed_m)
    headings = np.zeros((len(xyz_base_m), 3))
    headings[:, 2] = trajectory.heading_base_rad
    return positions_m, (base_in_fixed * Rotation.from_rotvec(headings)).as_quat()
