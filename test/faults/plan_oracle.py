"""What is wrong with a published trajectory, judged from the message alone.

Shares nothing with the planner's own checks. The limits are those of the test bench's vehicle,
which drives straight ahead at 5 m/s.
"""

import math
from bisect import bisect_left
from itertools import pairwise

from planner_bench import duration_s, stamp_ns
from wamdiff_ros.msg import PlannedTrajectory

MAX_SPEED_MPS = 7.0
MAX_ACCELERATION_MPS2 = 9.5
MAX_CURVATURE_1PM = 0.3
MAX_START_M = 1.0  # from where odometry has told the vehicle to be
MAX_AGE_S = 1.0


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
    faults = []
    times_s = [duration_s(p.time_from_start) for p in points]
    if times_s[0] != 0.0 or any(b <= a for a, b in pairwise(times_s)):
        faults.append('has times that do not start at 0 and increase')
    # A stop has to begin at the speed that odometry tells, be that true or not.
    is_stop = trajectory.status == PlannedTrajectory.FALLBACK_STOP
    if not is_stop and max(abs(p.speed_mps) for p in points) > MAX_SPEED_MPS:
        faults.append(f'is faster than {MAX_SPEED_MPS} m/s')
    if max(abs(p.acceleration_mps2) for p in points) > MAX_ACCELERATION_MPS2:
        faults.append(f'accelerates by more than {MAX_ACCELERATION_MPS2} m/s^2')
    if max(abs(p.curvature_1pm) for p in points) > MAX_CURVATURE_1PM:
        faults.append(f'is more curved than {MAX_CURVATURE_1PM} 1/m')
    xs = [p.pose.position.x for p in points]
    if any(b < a - 0.05 for a, b in pairwise(xs)):
        faults.append('goes back')
    if trajectory.status == PlannedTrajectory.HELD and duration_s(trajectory.age) > MAX_AGE_S:
        faults.append(f'is held at an age of {duration_s(trajectory.age):.2f} s')
    if trajectory.status == PlannedTrajectory.NOMINAL:
        faults += _away_from_vehicle(points[0].pose.position, stamp_ns(trajectory), told, bench)
    return faults


def _away_from_vehicle(start, t0_ns, told, bench):
    at = bisect_left(told, (t0_ns,))
    # What was told around t0, and where the vehicle is by itself if another process has told it.
    places = [(x, y) for _, x, y in told[max(at - 3, 0) : at + 3]]
    places.append((bench.position_m(t0_ns), 0.0))
    away_m = min(math.hypot(start.x - x, start.y - y) for x, y in places)
    return [f'starts {away_m:.1f} m away from the vehicle'] if away_m > MAX_START_M else []
