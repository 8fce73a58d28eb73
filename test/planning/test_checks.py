"""Each check passes just below its limit and fails just above it, and names value and limit."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wamdiff_ros.parameters import Parameters
from wamdiff_ros.planning.checks import LIMITS, broken_check, shifted
from wamdiff_ros.planning.trajectory import trajectory_from_waypoints
from wamdiff_ros.types import EgoState, Plan, Trajectory

SECOND = 1_000_000_000
TIME_S = np.arange(41) / 10
ONLY_BELOW, ONLY_ABOVE = 0.98, 1.02


def ego(speed_mps=8.0, t0_ns=10 * SECOND, xy_m=(0.0, 0.0), heading_rad=0.0, frame='odom'):
    return EgoState(
        t0_ns, frame, 'base_link', (*xy_m, 0.0),
        (0.0, 0.0, math.sin(heading_rad / 2), math.cos(heading_rad / 2)),
        (speed_mps, 0.0), 0.0, (0.0, 0.0),
    )  # fmt: skip


def straight(distance_m, speed_mps, acceleration_mps2, time_s=TIME_S):
    """Return a trajectory along x; all arguments are [N]."""
    time_ns = np.round(np.asarray(time_s) * SECOND).astype(np.int64)
    heading_rad, rate_radps, curvature_1pm, y_m = np.zeros((4, len(time_s)))
    return Trajectory(
        time_ns, np.stack([distance_m, y_m], axis=1), heading_rad,
        y_m + speed_mps, y_m + acceleration_mps2, rate_radps, curvature_1pm,
    )  # fmt: skip


def steady(speed_mps=8.0):
    return straight(speed_mps * TIME_S, speed_mps, 0.0)


def accelerating(acceleration_mps2, speed_mps=8.0):
    distance_m = speed_mps * TIME_S + acceleration_mps2 * TIME_S**2 / 2
    return straight(distance_m, speed_mps + acceleration_mps2 * TIME_S, acceleration_mps2)


def circle(radius_m, speed_mps):
    angle_rad = speed_mps / radius_m * TIME_S
    xy_m = radius_m * np.stack([np.sin(angle_rad), 1 - np.cos(angle_rad)], axis=1)
    rate = np.full(len(TIME_S), speed_mps / radius_m)
    return replace(
        steady(speed_mps), xy_base_m=xy_m, heading_base_rad=angle_rad,
        heading_rate_radps=rate, curvature_1pm=rate / speed_mps,
    )  # fmt: skip


def there_and_back(back_m, speed_mps=4.0):
    """Return 2 s ahead and then, at once, some way back."""
    distance_m = np.where(
        TIME_S < 2, speed_mps * TIME_S, 2 * speed_mps - back_m * (TIME_S - 2) / 2
    )
    return straight(distance_m, np.where(TIME_S < 2, speed_mps, -back_m / 2), 0.0)


def jerking(jerk_mps3):
    return straight(
        8 * TIME_S + jerk_mps3 * TIME_S**3 / 6, 8 + jerk_mps3 * TIME_S**2 / 2, jerk_mps3 * TIME_S
    )


def moved(trajectory, offset_m):
    return replace(trajectory, xy_base_m=trajectory.xy_base_m + np.array([offset_m, 0.0]))


CASES = {
    'max_start_offset_m': ('start', 0.5, lambda limit: (moved(steady(), limit), ego())),
    'max_start_speed_error_mps': (
        'start speed', 1.0, lambda limit: (steady(8.0 + limit), ego(8.0))),
    'max_speed_mps': ('speed', 20.0, lambda limit: (steady(limit), ego(limit))),
    'max_acceleration_mps2': ('acceleration', 3.0, lambda limit: (accelerating(limit), ego())),
    'max_deceleration_mps2': ('deceleration', 1.9, lambda limit: (accelerating(-limit), ego())),
    'max_lateral_acceleration_mps2': (
        'lateral acceleration', 4.0, lambda limit: (circle(64 / limit, 8.0), ego())),
    'max_fold_back_m': ('fold back', 0.3, lambda limit: (there_and_back(limit), ego(4.0))),
    'max_curvature_1pm': ('curvature', 0.2, lambda limit: (circle(1 / limit, 2.0), ego(2.0))),
    'max_jerk_mps3': ('jerk', 2.0, lambda limit: (jerking(limit), ego())),
}  # fmt: skip
OFF = dict.fromkeys(LIMITS, 0.0)


@pytest.mark.parametrize('parameter', CASES)
def test_a_check_passes_just_below_its_limit_and_fails_just_above(parameter):
    check, limit, case = CASES[parameter]
    parameters = Parameters(**{**OFF, parameter: limit})
    assert broken_check(*case(limit * ONLY_BELOW), parameters) is None
    broken = broken_check(*case(limit * ONLY_ABOVE), parameters)
    assert broken.check == check
    number = re.escape(f'{limit * ONLY_ABOVE:.2f}')
    assert re.fullmatch(rf'{check} {number} \S+ at \d\.\d s, limit {limit:g} \S+', broken.reason)
    assert broken.reason.isascii()


@pytest.mark.parametrize('parameter', CASES)
def test_zero_turns_a_check_off(parameter):
    _, limit, case = CASES[parameter]
    assert broken_check(*case(limit * ONLY_ABOVE), Parameters(**OFF)) is None


def test_a_reason_names_value_unit_time_and_limit():
    parameters = Parameters(max_acceleration_mps2=3.0)
    trajectory = accelerating(2.0)
    trajectory.acceleration_mps2[15] = 4.25
    broken = broken_check(trajectory, ego(), parameters)
    assert broken.reason == 'acceleration 4.25 m/s^2 at 1.5 s, limit 3 m/s^2'


@pytest.mark.parametrize('value', [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(
    'field', ['xy_base_m', 'heading_base_rad', 'speed_mps', 'acceleration_mps2',
              'heading_rate_radps', 'curvature_1pm'],
)  # fmt: skip
def test_what_is_not_finite_is_named_with_its_place(field, value):
    trajectory = steady()
    getattr(trajectory, field)[7] = value
    broken = broken_check(trajectory, ego(), Parameters(**OFF))
    assert broken.reason == f'{field} is not finite at point 7'


@pytest.mark.parametrize(
    ('time_s', 'words'),
    [
        (TIME_S + 0.1, 'time 0.100 s at point 0, wanted from 0 on and increasing'),
        (np.where(TIME_S == 0.5, 0.4, TIME_S), 'time 0.400 s at point 5'),
        (np.where(TIME_S == 0.5, 0.3, TIME_S), 'time 0.300 s at point 5'),
    ],
)
def test_time_has_to_increase_from_zero(time_s, words):
    trajectory = replace(steady(), time_ns=(time_s * SECOND).astype(np.int64))
    assert broken_check(trajectory, ego(), Parameters(**OFF)).reason.startswith(words)


def test_arrays_of_other_lengths_are_named():
    trajectory = replace(steady(), speed_mps=np.zeros(40))
    broken = broken_check(trajectory, ego(), Parameters(**OFF))
    assert 'speed_mps has the shape (40,), wanted (41,)' in broken.reason


def test_a_leap_of_the_positions_is_speed_also_when_the_speeds_hide_it():
    trajectory = steady()
    trajectory.xy_base_m[20:, 0] += 10.0
    assert broken_check(trajectory, ego(), Parameters()).check == 'speed'


def test_a_vehicle_that_reverses_may_have_a_plan_in_reverse_and_not_one_that_turns_back():
    parameters = Parameters()
    back = trajectory_from_waypoints(
        -1.0 * np.arange(1, 9)[:, None] * [1.0, 0.0], (-2.0, 0.0), 0.1
    )
    assert broken_check(back, ego(-2.0), parameters) is None
    assert broken_check(back, replace(ego(-2.0), velocity_base_mps=(0.0, 0.0)), parameters)
    turning = there_and_back(-4.0, speed_mps=-4.0)
    assert broken_check(turning, ego(-4.0), Parameters(**OFF)) is None
    only_folds = Parameters(**{**OFF, 'max_fold_back_m': 0.3})
    assert broken_check(turning, ego(-4.0), only_folds).check == 'fold back'


def test_braking_in_reverse_is_deceleration():
    distance_m = -5 * TIME_S + TIME_S**2 / 2
    reverse = straight(distance_m, -5 + TIME_S, 1.0)
    parameters = Parameters(**{**OFF, 'max_acceleration_mps2': 0.5, 'max_deceleration_mps2': 0.9})
    assert broken_check(reverse, ego(-5.0), parameters).check == 'deceleration'


@pytest.mark.parametrize('heading_rad', [0.0, 2.0])
@pytest.mark.parametrize('sign', [-1, 1])
def test_a_path_that_leaves_the_vehicle_sideways_is_bent(heading_rad, sign):
    xy_m = 4.0 * TIME_S[:, None] * [math.cos(1.0), sign * math.sin(1.0)]
    trajectory = replace(steady(4.0), xy_base_m=xy_m, heading_base_rad=TIME_S * 0 + sign * 1.0)
    broken = broken_check(trajectory, ego(4.0, heading_rad=heading_rad), Parameters())
    assert (broken.check, ' at 0.0 s' in broken.reason) == ('curvature', True)


# -- against the last plan --------------------------------------------------------------------


def plan(trajectory, state):
    return Plan(state.stamp_ns, state, np.zeros((8, 2)), trajectory)


def next_state(speed_mps=8.0, heading_rad=0.7, **changes):
    """Return the state 0.1 s after `first_plan`, for a vehicle that followed it."""
    xy_m = (100.0 + 0.8 * math.cos(heading_rad), -50.0 + 0.8 * math.sin(heading_rad))
    state = ego(speed_mps, 10 * SECOND + SECOND // 10, xy_m, heading_rad)
    return replace(state, **changes)


def first_plan():
    return plan(steady(), ego(xy_m=(100.0, -50.0), heading_rad=0.7))


def to_the_side(shift_m):
    """Return a trajectory that is `shift_m` to the left after a second."""
    return replace(steady(), xy_base_m=np.stack([8 * TIME_S, shift_m * TIME_S**2], axis=1))


@pytest.mark.parametrize('sign', [-1, 1])
def test_shift_to_the_side_passes_just_below_its_limit_and_fails_just_above(sign):
    parameters = Parameters(max_lateral_shift_m=1.0)
    below = plan(to_the_side(sign * ONLY_BELOW), next_state())
    above = plan(to_the_side(sign * ONLY_ABOVE), next_state())
    assert shifted(below, first_plan(), parameters) is None
    broken = shifted(above, first_plan(), parameters)
    assert broken.reason == 'lateral shift 1.02 m at 1.0 s, limit 1 m'
    assert shifted(above, first_plan(), replace(parameters, max_lateral_shift_m=0.0)) is None


def test_shift_ahead_passes_just_below_its_limit_and_fails_just_above():
    parameters = Parameters(max_forward_shift_m=1.0)
    below, above = (
        plan(accelerating(2 * shift_m), next_state()) for shift_m in (ONLY_BELOW, ONLY_ABOVE)
    )
    assert shifted(below, first_plan(), parameters) is None
    assert shifted(above, first_plan(), parameters).check == 'forward shift'


def test_braking_is_never_a_shift():
    parameters = Parameters(max_forward_shift_m=0.01)
    assert shifted(plan(accelerating(-6.0), next_state()), first_plan(), parameters) is None


def test_a_vehicle_that_does_not_follow_the_plan_is_no_shift():
    state = next_state(
        position_fixed_m=(103.0, -48.0, 0.0), velocity_base_mps=(5.0, 0.0),
        orientation_xyzw=ego(heading_rad=0.9).orientation_xyzw,
    )  # fmt: skip
    tight = Parameters(max_lateral_shift_m=0.05, max_forward_shift_m=0.05)
    assert shifted(plan(steady(5.0), state), first_plan(), tight) is None


def test_plans_of_different_fixed_frames_are_not_compared():
    state = next_state(fixed_frame='map')
    assert shifted(plan(to_the_side(9.0), state), first_plan(), Parameters()) is None


def test_an_old_plan_is_not_compared_with():
    parameters = Parameters(max_plan_age_s=1.0)
    for age_ns, compared in ((SECOND, True), (SECOND + 1, False)):
        state = ego(8.0, 10 * SECOND + age_ns, (100.0, -50.0), 0.7)
        broken = shifted(plan(to_the_side(9.0), state), first_plan(), parameters)
        assert (broken is not None) is compared


# -- what has to pass, and what has to be caught ------------------------------------------------


@settings(deadline=None)
@given(
    speed_mps=st.floats(0.0, 15.0),
    acceleration_mps2=st.floats(-3.0, 2.0),
    curvature_1pm=st.floats(-0.15, 0.15),
    seed=st.integers(0, 10**6),
)
def test_rounded_waypoints_of_a_sensible_drive_pass(
    speed_mps, acceleration_mps2, curvature_1pm, seed
):
    curvature_1pm = np.clip(curvature_1pm, *(np.array([-3, 3]) / max(speed_mps, 1.0) ** 2))
    time_s = np.arange(1, 9) / 2
    stop_s = speed_mps / -acceleration_mps2 if acceleration_mps2 < 0 else math.inf
    time_s = np.minimum(time_s, stop_s)
    # Keep the lateral acceleration where it is while speed grows.
    curvature_1pm /= max(1.0, (speed_mps + acceleration_mps2 * 4) / max(speed_mps, 3.0)) ** 2
    distance_m = speed_mps * time_s + acceleration_mps2 * time_s**2 / 2
    turn_rad = curvature_1pm * distance_m
    xy_m = distance_m[:, None] * np.stack(
        [np.sinc(turn_rad / np.pi), np.sin(turn_rad / 2) * np.sinc(turn_rad / 2 / np.pi)], axis=1
    )
    trajectory = trajectory_from_waypoints(xy_m.round(1), (speed_mps, 0.0), 0.1)
    assert broken_check(trajectory, ego(speed_mps), Parameters()) is None


@settings(deadline=None)
@given(jitter=st.lists(st.sampled_from([0.0, 0.1]), min_size=16, max_size=16))
def test_jitter_of_a_digit_at_standstill_passes(jitter):
    trajectory = trajectory_from_waypoints(np.reshape(jitter, (8, 2)), (0.0, 0.0), 0.1)
    assert broken_check(trajectory, ego(0.0), Parameters()) is None


@settings(deadline=None)
@given(
    speed_mps=st.floats(0.0, 15.0),
    index=st.integers(0, 7),
    axis=st.integers(0, 1),
    error_m=st.sampled_from([-90.0, -20.0, -10.0, 10.0, 20.0, 90.0]),
)
def test_one_wrong_tens_digit_is_caught(speed_mps, index, axis, error_m):
    waypoints = speed_mps * np.arange(1, 9)[:, None] * [0.5, 0.0]
    waypoints[index, axis] += error_m
    trajectory = trajectory_from_waypoints(waypoints.round(1), (speed_mps, 0.0), 0.1)
    assert broken_check(trajectory, ego(speed_mps), Parameters()) is not None
