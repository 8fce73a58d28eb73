"""The oracle of the faults finds what is bad, one rule at a time, and nothing else."""

import math
from types import SimpleNamespace

import pytest
from faults.plan_oracle import faults_of
from planner_bench import SPEED_MPS, time_message
from wamdiff_ros.msg import PlannedTrajectory, TrajectoryPoint

pytestmark = pytest.mark.ros

T0_NS = 100 * 10**9
STEP_NS = 10**8
BENCH = SimpleNamespace(position_m=lambda stamp_ns: SPEED_MPS * stamp_ns / 1e9)
TOLD = [
    (stamp_ns, BENCH.position_m(stamp_ns), 0.0, SPEED_MPS)
    for stamp_ns in range(T0_NS - 10**9, T0_NS + 10**9, 25_000_000)
]
NOMINAL, STOP = PlannedTrajectory.NOMINAL, PlannedTrajectory.FALLBACK_STOP


def good(status=NOMINAL, deceleration_mps2=0.0):
    """A straight drive of 4 s from where the vehicle is, or a stop."""
    message = PlannedTrajectory(status=status)
    message.header.stamp = time_message(T0_NS)
    place_m, speed_mps = BENCH.position_m(T0_NS), SPEED_MPS
    for i in range(41):
        point = TrajectoryPoint(speed_mps=speed_mps)
        point.time_from_start.sec, point.time_from_start.nanosec = divmod(i * STEP_NS, 10**9)
        point.acceleration_mps2 = -deceleration_mps2 if speed_mps > 0 else 0.0
        point.pose.position.x, point.pose.orientation.w = place_m, 1.0
        message.points.append(point)
        place_m += speed_mps * STEP_NS / 1e9
        speed_mps = max(speed_mps - deceleration_mps2 * STEP_NS / 1e9, 0.0)
    return message


@pytest.mark.parametrize('message', [good(), good(STOP, deceleration_mps2=2.5)])
def test_a_good_trajectory_has_no_fault(message):
    assert faults_of(message, TOLD, BENCH) == []


@pytest.mark.parametrize(
    ('spoil', 'fault'),
    [
        (lambda m: m.points.clear(), 'has no points'),
        (lambda m: each(m, curvature_1pm=math.nan), 'is not finite'),
        (lambda m: set_point(m, 7, time_s=0), 'has times that do not start at 0 and increase'),
        (lambda m: set_point(m, 0, time_s=1), 'has times that do not start at 0 and increase'),
        (lambda m: set_point(m, 20, speed_mps=7.5), 'is faster than 7.0 m/s'),
        (lambda m: each(m, acceleration_mps2=6.4), 'accelerates by more than 6.3 m/s^2'),
        (lambda m: each(m, acceleration_mps2=-9.6), 'brakes by more than 9.5 m/s^2'),
        (
            lambda m: each(m, heading_rate_radps=8.0 / SPEED_MPS),
            'accelerates to the side by more than 7.9 m/s^2',
        ),
        (
            lambda m: each(m, start=20, heading_rate_radps=-8.0 / SPEED_MPS),
            'accelerates to the side by more than 7.9 m/s^2',
        ),
        (lambda m: alternate(m, 5.5), 'has a jerk of more than 21 m/s^3'),
        (lambda m: each(m, curvature_1pm=-0.33), 'is more curved than 0.32 1/m'),
        (lambda m: move(m, range(21, 41), x=-1.0), 'goes back'),
        (lambda m: move(m, range(41), y=1.2), 'starts 1.2 m away from the vehicle'),
        (
            lambda m: each(m, speed_mps=3.8),
            'starts 1.2 m/s faster or slower than the vehicle is',
        ),
    ],
)
def test_each_rule_finds_what_breaks_it_and_that_alone(spoil, fault):
    message = good()
    spoil(message)
    assert faults_of(message, TOLD, BENCH) == [fault]


def test_a_held_plan_that_is_too_old_is_found():
    message = good(PlannedTrajectory.HELD)
    message.age.sec, message.age.nanosec = 1, 10_000_000
    assert faults_of(message, TOLD, BENCH) == ['is held at an age of 1.01 s']


def test_a_stop_may_be_abrupt_and_begins_at_the_speed_that_was_told():
    stop = good(STOP)
    each(stop, speed_mps=18.0)
    told_wrongly = [(*entry[:3], 18.0) for entry in TOLD]
    assert faults_of(stop, told_wrongly, BENCH) == []
    assert faults_of(stop, TOLD, BENCH) == ['starts 13.0 m/s faster or slower than the vehicle is']
    alternate(stop, 5.5)
    assert faults_of(stop, told_wrongly, BENCH) == []


@pytest.mark.parametrize('told', [[], [(*TOLD[40][:3], math.nan)]])
def test_without_odometry_it_starts_at_the_speed_that_the_vehicle_has(told):
    assert faults_of(good(), told, BENCH) == []


def each(message, start=0, **values):
    for point in message.points[start:]:
        for name, value in values.items():
            setattr(point, name, value)


def set_point(message, index, time_s=None, **values):
    point = message.points[index]
    if time_s is not None:
        point.time_from_start.sec, point.time_from_start.nanosec = time_s, 0
    for name, value in values.items():
        setattr(point, name, value)


def move(message, indices, x=0.0, y=0.0):
    for index in indices:
        message.points[index].pose.position.x += x
        message.points[index].pose.position.y += y


def alternate(message, acceleration_mps2):
    """Change the sign of the acceleration every half second."""
    for i, point in enumerate(message.points):
        point.acceleration_mps2 = acceleration_mps2 * (-1) ** (i // 5)
