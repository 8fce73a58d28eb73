import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kinematics import assert_consistent, assert_well_formed
from scipy.spatial.transform import Rotation

from wamdiff_ros.parameters import Parameters
from wamdiff_ros.planning.checks import broken_check
from wamdiff_ros.planning.fallback import MAX_OFFSET_M, state_on_plan, stop_trajectory
from wamdiff_ros.planning.trajectory import to_fixed, trajectory_from_waypoints
from wamdiff_ros.types import EgoState, Plan

SECOND = 1_000_000_000
T0 = 100 * SECOND
TIMES_S = np.arange(1, 9) * 0.5
TILT = Rotation.from_euler('ZYX', [2.5, 0.1, -0.05])
ORIGIN = np.array([4.0e5, -5.0e6, 120.0])


def ego_at(stamp_ns, xy_m=(0.0, 0.0), heading=0.0, speed=8.0, fixed_frame='odom'):
    """An ego state given in the plane of the plan, which is tilted and far from the origin."""
    return EgoState(
        stamp_ns,
        fixed_frame,
        'base_link',
        tuple(ORIGIN + TILT.apply([*xy_m, 0.0])),
        tuple((TILT * Rotation.from_euler('z', heading)).as_quat()),
        (speed, 0.0),
        0.0,
        (0.0, 0.0),
    )


def plan_for(distances_m, radius_m=math.inf, speed=8.0):
    distances_m = np.asarray(distances_m, float)
    waypoints = np.array([on_path(distance_m, radius_m)[0] for distance_m in distances_m])
    trajectory = trajectory_from_waypoints(waypoints, (speed, 0.0), 0.1)
    return Plan(T0, ego_at(T0, speed=speed), waypoints, trajectory)


def on_path(distance_m, radius_m):
    """Return (xy, heading) on a circle or a line that leaves the origin along x."""
    if math.isinf(radius_m):
        return np.array([distance_m, 0.0]), 0.0
    angle = distance_m / radius_m
    return radius_m * np.array([math.sin(angle), 1 - math.cos(angle)]), angle


def in_plan(stop):
    """Return the stop's (xy [N, 2], headings [N]) in the base frame of the plan."""
    positions_m, quaternions = to_fixed(stop.trajectory, stop.ego)
    xyz_m = TILT.inv().apply(positions_m - ORIGIN)
    assert np.abs(xyz_m[:, 2]).max() < 1e-6
    angles = (TILT.inv() * Rotation.from_quat(quaternions)).as_rotvec()
    return xyz_m[:, :2], angles[:, 2]


def braking(deceleration, interval_s=0.1):
    return Parameters(fallback_deceleration_mps2=deceleration, point_interval_s=interval_s)


def stop_of(plan, ego, deceleration=2.5, interval_s=0.1, start_ns=T0 + SECOND, rate=0.06):
    stop = stop_trajectory(plan, ego, braking(deceleration, interval_s), start_ns)
    assert stop.t0_ns == stop.ego.stamp_ns
    trajectory = stop.trajectory
    pace = np.abs(trajectory.speed_mps)
    assert (np.diff(pace) <= 0).all()
    assert pace[-1] == 0
    # The intervals of the standstill itself hold two accelerations.
    stopping = np.flatnonzero((pace[:-1] > 0) & (pace[1:] == 0))
    kink = stopping.tolist() + [i - 1 for i in stopping if i > 0]
    assert_consistent(trajectory, velocity=0.06, acceleration=1e-6, rate=rate, skip=kink)
    return stop


def test_straight_braking_distance_and_time():
    plan = plan_for(8 * TIMES_S)
    stop = stop_of(plan, ego_at(T0 + SECOND, (8.0, 0.0)))
    trajectory = stop.trajectory
    assert stop.t0_ns == T0 + SECOND
    assert trajectory.speed_mps[0] == 8.0
    assert trajectory.xy_base_m[-1] == pytest.approx([8.0**2 / 5, 0.0], abs=1e-6)
    standing = trajectory.time_ns >= 3_200_000_000
    assert (trajectory.speed_mps[standing] == 0).all()
    assert (trajectory.acceleration_mps2[~standing] == -2.5).all()
    assert (trajectory.acceleration_mps2[standing] == 0).all()
    assert trajectory.time_ns[-1] == 4_000_000_000


@pytest.mark.parametrize('radius_m', [15.0, -15.0, 60.0])
def test_curve_is_followed(radius_m):
    plan = plan_for(8 * TIMES_S, radius_m)
    xy_m, heading = on_path(8.0, radius_m)
    stop = stop_of(plan, ego_at(T0 + SECOND, xy_m, heading))
    way_m, headings = in_plan(stop)
    offsets_m = np.abs(np.hypot(way_m[:, 0], way_m[:, 1] - radius_m) - abs(radius_m))
    assert offsets_m.max() < 0.02
    assert headings[-1] == pytest.approx((8.0 + 8.0**2 / 5) / radius_m, abs=0.02)
    moving = stop.trajectory.speed_mps > 0
    assert np.allclose(stop.trajectory.curvature_1pm[moving], 1 / radius_m, rtol=0.1)


def test_standing_vehicle_stays():
    plan = plan_for(8 * TIMES_S)
    trajectory = stop_of(plan, ego_at(T0, (3.0, 0.0), speed=0.004)).trajectory
    assert (trajectory.xy_base_m == 0).all()
    assert (trajectory.speed_mps == 0).all()
    assert trajectory.time_ns[-1] == 4_000_000_000


def test_plan_that_stands_still_gives_a_straight_stop():
    plan = plan_for(np.zeros(8), speed=0.0)
    trajectory = stop_of(plan, ego_at(T0, speed=5.0)).trajectory
    assert trajectory.xy_base_m[-1] == pytest.approx([5.0, 0.0], abs=1e-6)


def test_short_path_is_lengthened_straight_at_its_end():
    radius_m = 15.0
    plan = plan_for(3 * TIMES_S, radius_m, speed=3.0)  # 12 m
    xy_m, heading = on_path(10.0, radius_m)
    ego = ego_at(T0 + SECOND, xy_m, heading, speed=10.0)
    # The curvature ends within one interval, at 0.6 rad/s.
    way_m, headings = in_plan(stop_of(plan, ego, rate=0.3))
    end_m, end_heading = on_path(12.0, radius_m)
    # Braking from 10 m/s takes 20 m, 18 m of them beyond the end.
    wanted = end_m + 18.0 * np.array([math.cos(end_heading), math.sin(end_heading)])
    assert np.hypot(*(way_m[-1] - wanted)) < 0.3
    assert headings[-1] == pytest.approx(end_heading, abs=0.02)


def test_vehicle_beyond_the_end_brakes_straight():
    plan = plan_for(2 * TIMES_S, speed=2.0)
    way_m, _ = in_plan(stop_of(plan, ego_at(T0 + SECOND, (20.0, 0.0), speed=5.0)))
    assert way_m[-1] == pytest.approx([25.0, 0.0], abs=1e-6)


def test_long_braking_lasts_until_standstill():
    plan = plan_for(30 * TIMES_S, speed=30.0)
    trajectory = stop_of(plan, ego_at(T0, speed=30.0)).trajectory
    assert trajectory.time_ns[-1] == 12_000_000_000
    assert trajectory.xy_base_m[-1] == pytest.approx([180.0, 0.0], abs=1e-6)


@pytest.mark.parametrize('offset_m', [-1.0, 0.5])
@pytest.mark.parametrize('heading', [-0.1, 0.05])
def test_vehicle_beside_the_path_starts_where_it_is_and_comes_back(offset_m, heading):
    plan = plan_for(12 * TIMES_S, speed=12.0)
    stop = stop_of(plan, ego_at(T0 + SECOND, (12.0, offset_m), heading, speed=12.0), 1.5)
    way_m, headings = in_plan(stop)
    assert way_m[0] == pytest.approx([12.0, offset_m])
    assert headings[0] == pytest.approx(heading)
    assert abs(way_m[-1, 1]) < 0.01
    assert abs(headings[-1]) < 0.01
    assert np.abs(stop.trajectory.heading_rate_radps * stop.trajectory.speed_mps).max() < 3.0


@pytest.mark.parametrize(
    ('xy_m', 'heading'), [((10.0, MAX_OFFSET_M + 0.1), 0.0), ((10.0, 0.0), 1.0), ((10.0, 0.0), -1)]
)
def test_vehicle_off_the_path_stops_straight_ahead(xy_m, heading):
    trajectory = stop_of(plan_for(8 * TIMES_S), ego_at(T0, xy_m, heading)).trajectory
    assert np.allclose(trajectory.xy_base_m[:, 1], 0.0)
    assert trajectory.xy_base_m[-1, 0] == pytest.approx(12.8)


@pytest.mark.parametrize('radius_m', [math.inf, 15.0])
def test_reversing_vehicle_brakes_in_reverse_along_a_reversing_plan(radius_m):
    plan = plan_for(-2 * TIMES_S, radius_m, speed=-2.0)
    xy_m, heading = on_path(-2.0, radius_m)
    stop = stop_of(plan, ego_at(T0 + SECOND, xy_m, heading, speed=-2.0), 1.0)
    way_m, headings = in_plan(stop)
    wanted_m, wanted_heading = on_path(-4.0, radius_m)
    assert stop.trajectory.speed_mps[0] == -2.0
    assert stop.trajectory.acceleration_mps2[0] == 1.0
    assert way_m[-1] == pytest.approx(wanted_m, abs=0.01)
    assert headings[-1] == pytest.approx(wanted_heading, abs=0.01)


def test_vehicle_rolling_against_the_plan_brakes_backward_along_its_path():
    plan = plan_for(8 * TIMES_S, 15.0)
    xy_m, heading = on_path(8.0, 15.0)
    stop = stop_of(plan, ego_at(T0 + SECOND, xy_m, heading, speed=-2.0), 1.0)
    assert in_plan(stop)[0][-1] == pytest.approx(on_path(6.0, 15.0)[0], abs=0.02)


def test_path_ends_where_the_plan_turns_back():
    forward_then_back = plan_for(4 * TIMES_S - TIMES_S**2, speed=4.0)  # to 4 m and back to 0
    way_m, _ = in_plan(stop_of(forward_then_back, ego_at(T0, (3.0, 0.0), speed=5.0)))
    assert way_m[-1] == pytest.approx([8.0, 0.0], abs=1e-3)


@pytest.mark.parametrize('ego', [None, ego_at(T0 + SECOND, (50, 50), fixed_frame='map')])
def test_without_odometry_the_stop_begins_where_the_plan_says(ego):
    plan = plan_for(8 * TIMES_S, 30.0)
    stop = stop_of(plan, ego, start_ns=T0 + SECOND)
    assert stop.t0_ns == T0 + SECOND
    assert stop.ego.fixed_frame == 'odom'
    xy_m, heading = on_path(8.0, 30.0)
    way_m, headings = in_plan(stop)
    assert way_m[0] == pytest.approx(xy_m, abs=0.01)
    assert headings[0] == pytest.approx(heading, abs=0.01)
    assert stop.trajectory.speed_mps[0] == pytest.approx(8.0, abs=0.01)


def test_state_on_plan_stays_within_the_horizon():
    plan = plan_for(8 * TIMES_S)
    assert state_on_plan(plan, T0 - SECOND).stamp_ns == T0
    late = state_on_plan(plan, T0 + 9 * SECOND)
    assert late.stamp_ns == T0 + 4 * SECOND
    xyz_m = TILT.inv().apply(np.array(late.position_fixed_m) - ORIGIN)
    assert xyz_m == pytest.approx([32, 0, 0], abs=1e-6)


def test_stop_begun_again_on_its_way_ends_at_the_same_place():
    plan = plan_for(10 * TIMES_S, 40.0, speed=10.0)
    first = stop_of(plan, replace(plan.ego, stamp_ns=T0))
    again = stop_of(plan, state_on_plan(replace(plan, trajectory=first.trajectory), T0 + SECOND))
    assert in_plan(again)[0][-1] == pytest.approx(in_plan(first)[0][-1], abs=0.05)


@given(
    xy_m=st.tuples(st.floats(-5, 40), st.floats(-6, 6)),
    heading=st.floats(-math.pi, math.pi),
    speed=st.floats(-10, 30),
    radius_m=st.sampled_from([math.inf, 10.0, -25.0]),
    deceleration=st.floats(0.5, 9.0),
)
def test_any_state_gives_a_stop_from_the_vehicle_itself(
    xy_m, heading, speed, radius_m, deceleration
):
    plan = plan_for(8 * TIMES_S, radius_m)
    ego = ego_at(T0 + SECOND, xy_m, heading, speed)
    trajectory = stop_trajectory(plan, ego, braking(deceleration), T0).trajectory
    assert_well_formed(trajectory)
    pace = np.abs(trajectory.speed_mps)
    assert (np.diff(pace) <= 0).all()
    assert pace[-1] == 0
    assert pace[0] == (abs(speed) if abs(speed) > 0.01 else 0.0)
    steps_m = np.hypot(*np.diff(trajectory.xy_base_m, axis=0).T)
    braked = abs(trajectory.acceleration_mps2[0])
    assert pace[0] == 0 or deceleration <= braked <= max(deceleration, 6.0)
    wanted_m = pace[0] ** 2 / (2 * max(braked, deceleration))
    assert steps_m.sum() == pytest.approx(wanted_m, rel=0.05, abs=0.01)


# -- feasible, whatever the state ---------------------------------------------------------------


@st.composite
def accepted_plans(draw):
    """A plan at some speed on some bend, its waypoints written with one decimal."""
    speed = draw(st.floats(0.0, 25.0))
    gentlest_m = max(5.0, speed**2 / 4.0)
    radius_m = draw(st.sampled_from([-1, 1])) * gentlest_m / draw(st.floats(1e-3, 1.0))
    acceleration = draw(st.floats(-speed / 4.0, 1.0))
    distances_m = speed * TIMES_S + acceleration * TIMES_S**2 / 2
    waypoints = np.array([on_path(distance_m, radius_m)[0] for distance_m in distances_m])
    waypoints = waypoints.round(1)
    trajectory = trajectory_from_waypoints(waypoints, (speed, 0.0), 0.1)
    return Plan(T0, ego_at(T0, speed=speed), waypoints, trajectory)


@settings(deadline=None, max_examples=200)
@given(
    plan=accepted_plans(),
    since_s=st.floats(0.0, 4.0),
    aside_m=st.floats(-4.0, 4.0),
    heading=st.floats(-1.0, 1.0),
    speed=st.floats(-8.0, 35.0),
    deceleration=st.floats(0.5, 9.0),
)
def test_any_stop_passes_the_checks(plan, since_s, aside_m, heading, speed, deceleration):
    there = state_on_plan(plan, T0 + round(since_s * 1e9))
    course = Rotation.from_quat(there.orientation_xyzw)
    ego = replace(
        there,
        position_fixed_m=tuple(there.position_fixed_m + course.apply([0.0, aside_m, 0.0])),
        orientation_xyzw=tuple((course * Rotation.from_euler('z', heading)).as_quat()),
        velocity_base_mps=(speed, 0.0),
    )
    parameters = braking(deceleration)
    stop = stop_trajectory(plan, ego, parameters, T0)
    assert broken_check(stop.trajectory, ego, parameters, stop=True) is None


@settings(deadline=None)
@given(plan=accepted_plans(), since_s=st.floats(0.0, 1.1), faster=st.floats(0.8, 1.2))
def test_a_vehicle_on_the_path_stops_on_it_also_when_it_is_a_little_fast(plan, since_s, faster):
    there = state_on_plan(plan, T0 + round(since_s * 1e9))
    ego = replace(there, velocity_base_mps=(faster * there.speed_mps, 0.0))
    way_m, _ = in_plan(stop_trajectory(plan, ego, braking(2.5), T0))
    path_m = plan.trajectory.xy_base_m
    ends = np.hypot(*path_m[-1])
    for point in way_m:
        if np.hypot(*point) < ends - 1.0:  # beyond, it is lengthened straight
            assert np.hypot(*(path_m - point).T).min() < 0.3 + 0.06 * plan.ego.speed_mps


def test_a_vehicle_too_fast_for_the_bend_brakes_harder_and_as_much_as_it_may():
    for radius_m, speed, braked in ((60.0, 9.0, 2.0), (15.0, 11.0, 6.0)):
        plan = plan_for(5 * TIMES_S, radius_m, 5.0)
        ego = replace(plan.ego, velocity_base_mps=(speed, 0.0))
        trajectory = stop_trajectory(plan, ego, braking(2.0), T0).trajectory
        assert trajectory.acceleration_mps2[0] == -braked
        lateral_mps2 = trajectory.heading_rate_radps * trajectory.speed_mps
        bent_mps2 = min(speed**2 / radius_m, 0.9 * Parameters().max_lateral_acceleration_mps2)
        assert lateral_mps2.max() == pytest.approx(bent_mps2, rel=0.05)
