"""What is wrong with a published trajectory, judged from the message alone.

Shares with the planner's own checks nothing but their limits, the defaults of the parameters, and
is a little more lenient. The speed is that of the bench's vehicle, which drives straight ahead.
"""

import math
from bisect import bisect_left
from itertools import pairwise

from planner_bench import SPEED_MPS, duration_s, stamp_ns
from wamdiff_ros.msg import PlannedTrajectory

from wamdiff_ros.parameters import Parameters

LENIENCE = 1.05
MAX_SPEED_MPS = 7.0
MAX_START_M = 1.0  # from where odometry has told the vehicle to be
JERK_S = 0.5  # over which jerk is a mean
NEAR_NS = 200_000_000  # odometry that says something of t0
_DEFAULTS = Parameters.from_mapping({})
MAX_ACCELERATION_MPS2 = LENIENCE * _DEFAULTS.max_acceleration_mps2
MAX_DECELERATION_MPS2 = LENIENCE * _DEFAULTS.max_deceleration_mps2
MAX_LATERAL_MPS2 = LENIENCE * _DEFAULTS.max_lateral_acceleration_mps2
MAX_JERK_MPS3 = LENIENCE * _DEFAULTS.max_jerk_mps3
MAX_CURVATURE_1PM = LENIENCE * _DEFAULTS.max_curvature_1pm
MAX_START_ERROR_MPS = LENIENCE * _DEFAULTS.max_start_speed_error_mps
MAX_AGE_S = _DEFAULTS.max_plan_age_s


def faults_of(trajectory, told, bench):
    """Return one sentence per fault; `told` is the bench's odometry, sorted by stamp."""
    points = trajectory.points
    numbers = [
        value
        for p in points
        for value in (
            *(p.pose.position.x, p.pose.position.y, p.pose.position.z),
            *(p.pose.orientation.x, p.pose.orientation.y, p.pose.orientation.z),
            *(p.pose.orientation.w, p.speed_mps, p.acceleration_mps2),
            *(p.heading_rate_radps, p.curvature_1pm),
        )
    ]
    if not points:
        return ['has no points']
    if not all(map(math.isfinite, numbers)):
        return ['is not finite']
    times_s = [duration_s(p.time_from_start) for p in points]
    if times_s[0] != 0.0 or any(b <= a for a, b in pairwise(times_s)):
        return ['has times that do not start at 0 and increase']
    is_stop = trajectory.status == PlannedTrajectory.FALLBACK_STOP
    along = [math.copysign(1.0, p.speed_mps) * p.acceleration_mps2 for p in points]
    aside = [p.speed_mps * p.heading_rate_radps for p in points]
    xs = [p.pose.position.x for p in points]
    age_s = duration_s(trajectory.age)
    # A stop has to begin at the speed that odometry tells, be that true or not, and may be abrupt.
    wrong = {
        f'is faster than {MAX_SPEED_MPS} m/s': (
            not is_stop and max(abs(p.speed_mps) for p in points) > MAX_SPEED_MPS
        ),
        f'accelerates by more than {MAX_ACCELERATION_MPS2:.1f} m/s^2': (
            max(along) > MAX_ACCELERATION_MPS2
        ),
        f'brakes by more than {MAX_DECELERATION_MPS2:.1f} m/s^2': (
            min(along) < -MAX_DECELERATION_MPS2
        ),
        f'accelerates to the side by more than {MAX_LATERAL_MPS2:.1f} m/s^2': (
            max(map(abs, aside)) > MAX_LATERAL_MPS2
        ),
        f'has a jerk of more than {MAX_JERK_MPS3:.0f} m/s^3': (
            not is_stop and _jerk(times_s, along, aside) > MAX_JERK_MPS3
        ),
        f'is more curved than {MAX_CURVATURE_1PM:.2f} 1/m': (
            max(abs(p.curvature_1pm) for p in points) > MAX_CURVATURE_1PM
        ),
        'goes back': any(b < a - 0.05 for a, b in pairwise(xs)),
        f'is held at an age of {age_s:.2f} s': (
            trajectory.status == PlannedTrajectory.HELD and age_s > MAX_AGE_S
        ),
    }
    faults = [fault for fault, is_so in wrong.items() if is_so]
    t0_ns = stamp_ns(trajectory)
    if trajectory.status == PlannedTrajectory.NOMINAL:
        faults += _away_from_vehicle(points[0].pose.position, t0_ns, told, bench)
    return faults + _at_another_speed(points[0].speed_mps, t0_ns, told)


def _jerk(times_s, along, aside):
    """Return the greatest change of acceleration over half a second, per second."""
    jerks = [0.0]
    for i, start_s in enumerate(times_s):
        j = bisect_left(times_s, start_s + JERK_S - 1e-6)
        if j < len(times_s):
            change = math.hypot(along[j] - along[i], aside[j] - aside[i])
            jerks.append(change / (times_s[j] - start_s))
    return max(jerks)


def _around(t0_ns, told):
    """Return what was told around t0."""
    at = bisect_left(told, (t0_ns,))
    return told[max(at - 3, 0) : at + 3]


def _away_from_vehicle(start, t0_ns, told, bench):
    # And where the vehicle is by itself, if another process has told it.
    places = [(x, y) for _, x, y, _ in _around(t0_ns, told)]
    places.append((bench.position_m(t0_ns), 0.0))
    away_m = min(math.hypot(start.x - x, start.y - y) for x, y in places)
    return [f'starts {away_m:.1f} m away from the vehicle'] if away_m > MAX_START_M else []


def _at_another_speed(speed_mps, t0_ns, told):
    speeds = [
        told_mps
        for stamp, _, _, told_mps in _around(t0_ns, told)
        if abs(stamp - t0_ns) < NEAR_NS and math.isfinite(told_mps)
    ]
    # Without any of ours another process has told it, or nobody, and the last plan leads on.
    error_mps = min(abs(speed_mps - known_mps) for known_mps in speeds or [SPEED_MPS])
    if error_mps <= MAX_START_ERROR_MPS:
        return []
    return [f'starts {error_mps:.1f} m/s faster or slower than the vehicle is']
