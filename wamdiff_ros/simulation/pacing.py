"""How drivers of the world choose their acceleration: smooth laws without memory.

All stops share one curve of speed over distance: braking is constant far from the stop and fades
out near it, v dv/dd = BRAKING v / (v + BRAKING / EASING). Everybody on the road uses these laws,
the expert too.
"""

import math

BRAKING_MPS2 = 2.1  # comfortable
EASING_1PS = 1.5  # speed per distance at the very end of a stop
GAIN_1PS = 0.9  # of the difference between allowed and present speed
HARDEST_MPS2 = 6.0
ACCELERATION_MPS2 = 1.8
STANDING_MPS = 0.25
ARRIVED_M = 0.25  # a standing vehicle this close to its stop stays there
CREEP_M = 1.0  # and so does one that stands a little farther away
HOLD_MPS2 = -1.0  # of who stands, and means to

_SOFT_MPS = BRAKING_MPS2 / EASING_1PS


def speed_for(distance_m: float) -> float:
    """Return the speed (m/s) from which a comfortable stop takes `distance_m`."""
    if distance_m <= 0.0:
        return 0.0
    return math.sqrt(_SOFT_MPS * _SOFT_MPS + 2 * BRAKING_MPS2 * distance_m) - _SOFT_MPS


def distance_for(speed_mps: float) -> float:
    """Return the length (m) of a comfortable stop; the inverse of `speed_for`."""
    return ((speed_mps + _SOFT_MPS) ** 2 - _SOFT_MPS * _SOFT_MPS) / (2 * BRAKING_MPS2)


def stopping(speed_mps: float, distance_m: float) -> float:
    """Return the acceleration that stops after `distance_m`; large when there is no need yet."""
    return following(speed_mps, distance_m, 0.0, 0.0, 0.0)


def following(
    speed_mps: float,
    room_m: float,
    other_speed_mps: float,
    other_acceleration_mps2: float,
    headway_s: float,
) -> float:
    """Return the acceleration that keeps `headway_s` behind something that moves ahead.

    `room_m` is the gap, less what should remain of it at rest.
    """
    v, other = speed_mps, other_speed_mps
    arrived = room_m < ARRIVED_M or (v < 0.02 and room_m < CREEP_M)
    both_stand = v < STANDING_MPS and other < STANDING_MPS and other_acceleration_mps2 <= 0.1
    if arrived and both_stand:
        return HOLD_MPS2
    distance = room_m - headway_s * other + distance_for(other)
    allowed = speed_for(distance)
    # How fast the allowed speed changes by itself, since both move.
    rate = other - v
    rate += other_acceleration_mps2 * ((other + _SOFT_MPS) / BRAKING_MPS2 - headway_s)
    wanted = GAIN_1PS * (allowed - v) + BRAKING_MPS2 / (allowed + _SOFT_MPS) * rate
    closing = v - other
    if closing > 0.0 and wanted < 0.0:
        # Later than comfortable: what physics asks for, before all room is gone.
        needed = closing * closing / (2 * max(room_m, 0.3))
        if needed > 1.25 * BRAKING_MPS2:
            wanted = min(wanted, -needed)
    return max(wanted, -HARDEST_MPS2)


def cruising(
    speed_mps: float, limit_mps: float, limit_slope_1ps: float, limit_ahead_mps: float = math.inf
) -> float:
    """Return the acceleration that keeps a limit which changes along the way.

    `limit_slope_1ps` is the change of the limit (m/s) per metre. Nobody accelerates beyond
    `limit_ahead_mps`, the limit a little later, only to brake again.
    """
    near = min(max(1.0 - (limit_mps - speed_mps), 0.0), 1.0)
    wanted = GAIN_1PS * (limit_mps - speed_mps) + near * limit_slope_1ps * limit_mps
    worthwhile = max(GAIN_1PS * (limit_ahead_mps - speed_mps), 0.0)
    return min(wanted, worthwhile, ACCELERATION_MPS2)
