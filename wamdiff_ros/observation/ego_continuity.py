"""Whether odometry goes on from where it was, and whether its poses and its twists agree.

Neither is repaired: a jump means that plan and buffers belong to another place, a disagreement
that a frame or a unit is wrong, and only people can say which.
"""

import math
from collections.abc import Sequence

import numpy as np
from scipy.spatial.transform import Rotation

from ..types import EgoState

# What a road vehicle may do between two messages beyond what their twists say.
TWIST_SLACK = 1.5
MAX_ACCELERATION_MPS2 = 10.0
MAX_TURN_RAD = 0.5
MAX_YAW_ACCELERATION_RADPS2 = 2.0
# Of the comparison of poses with twists; both are means over at least this long.
COMPARED_S = 1.0
MIN_STATES = 5
MAX_DISAGREEMENT_MPS = 1.0
MAX_DISAGREEMENT_SHARE = 0.2


def break_between(before: EgoState, after: EgoState, max_jump_m: float) -> str:
    """Say why `after` cannot be the same drive as the earlier `before`, or ''.

    Other frames, or a pose farther away than `max_jump_m` beyond what the twists of the two
    allow, as after a relocalisation or at the end of a bag that is played again.
    """
    was = f'{before.base_frame!r} in {before.fixed_frame!r}'
    now = f'{after.base_frame!r} in {after.fixed_frame!r}'
    if now != was:
        return f'odometry changed from {was} to {now}'
    duration_s = (after.stamp_ns - before.stamp_ns) * 1e-9
    speed_mps = max(math.hypot(*state.velocity_base_mps) for state in (before, after))
    reach_m = (
        max_jump_m
        + TWIST_SLACK * speed_mps * duration_s
        + MAX_ACCELERATION_MPS2 / 2 * duration_s**2
    )
    moved_m = math.dist(before.position_fixed_m, after.position_fixed_m)
    if moved_m > reach_m:
        return f'odometry jumped by {moved_m:.1f} m in {duration_s:.3f} s at {speed_mps:.1f} m/s'
    turn_rad = (
        MAX_TURN_RAD
        + TWIST_SLACK * max(abs(before.yaw_rate_radps), abs(after.yaw_rate_radps)) * duration_s
        + MAX_YAW_ACCELERATION_RADPS2 / 2 * duration_s**2
    )
    turned_rad = _angle_between(before.orientation_xyzw, after.orientation_xyzw)
    if turned_rad > turn_rad:
        return f'odometry turned by {math.degrees(turned_rad):.0f} degrees in {duration_s:.3f} s'
    return ''


def disagreement(states: Sequence[EgoState]) -> str:
    """Say by how much the poses of `states` move otherwise than their twists say, or ''.

    Compares the mean velocities over the last second or a little more, forward and to the left.
    `states` are sorted by stamp; with too few of them there is nothing to say.
    """
    window = [s for s in states if (states[-1].stamp_ns - s.stamp_ns) * 1e-9 <= COMPARED_S * 1.2]
    if len(window) < MIN_STATES:
        return ''
    times_s = np.array([(s.stamp_ns - window[0].stamp_ns) * 1e-9 for s in window])
    if times_s[-1] < COMPARED_S * 0.8:
        return ''
    positions_m = np.array([s.position_fixed_m for s in window])
    to_base = Rotation.from_quat([s.orientation_xyzw for s in window]).inv()
    by_pose_mps = to_base.apply(np.gradient(positions_m, times_s, axis=0))[:, :2].mean(axis=0)
    by_twist_mps = np.mean([s.velocity_base_mps for s in window], axis=0)
    limit_mps = MAX_DISAGREEMENT_MPS + MAX_DISAGREEMENT_SHARE * np.hypot(*by_twist_mps)
    if np.hypot(*(by_pose_mps - by_twist_mps)) <= limit_mps:
        return ''
    # Adding zero turns -0.0 into 0.0.
    pairs = np.round([by_pose_mps, by_twist_mps], 1) + 0.0
    pose, twist = (f'({forward}, {left})' for forward, left in pairs.tolist())
    return (
        f'the poses move with {pose} m/s forward and left, the twist says {twist}; publish the '
        'pose of child_frame_id in header.frame_id and the twist in child_frame_id, in m/s'
    )


def _angle_between(a_xyzw: tuple, b_xyzw: tuple) -> float:
    """Return the angle of the rotation from a to b [rad]; the norms do not matter."""
    norms = math.hypot(*a_xyzw) * math.hypot(*b_xyzw)
    if not norms > 0:
        return 0.0
    dot = abs(sum(a * b for a, b in zip(a_xyzw, b_xyzw, strict=True))) / norms
    return 2 * math.acos(min(dot, 1.0))
