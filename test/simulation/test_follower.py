import math

import numpy as np
import pytest

from wamdiff_ros.planning.trajectory import trajectory_from_waypoints
from wamdiff_ros.simulation.expert import Expert
from wamdiff_ros.simulation.follower import MapTrajectory, follow
from wamdiff_ros.simulation.vehicle import VehicleState, step
from wamdiff_ros.simulation.world import World
from wamdiff_ros.types import EgoState, Plan

STEP_NS = 100_000_000


def straight(speed_mps, heading_rad=0.0):
    """A plan from the origin, made at time 0, straight on at a constant speed."""
    time_s = np.arange(41) * 0.1
    way_m = speed_mps * time_s
    xy = np.stack([way_m * math.cos(heading_rad), way_m * math.sin(heading_rad)], axis=1)
    return MapTrajectory.of_points(0, time_s, xy, np.full(41, heading_rad))


def arc(speed_mps, radius_m):
    """A plan from the origin along a circle to the left."""
    time_s = np.arange(41) * 0.1
    angle = speed_mps * time_s / radius_m
    xy = radius_m * np.stack([np.sin(angle), 1 - np.cos(angle)], axis=1)
    return MapTrajectory.of_points(0, time_s, xy, angle)


def drive(trajectory, state, seconds):
    """Follow one plan, however old it gets."""
    for k in range(round(seconds * 10)):
        state = step(state, follow(trajectory, k * STEP_NS, state), 0.1)
    return state


def test_on_the_plan_nothing_is_corrected():
    control = follow(straight(8.0), 0, VehicleState(0.0, 0.0, 0.0, 8.0))
    assert control.acceleration_mps2 == pytest.approx(0.0, abs=1e-6)
    assert control.steering_rad == pytest.approx(0.0, abs=1e-9)


def test_an_arc_is_followed_with_its_own_curvature():
    control = follow(arc(8.0, 40.0), 0, VehicleState(0.0, 0.0, 0.0, 8.0))
    assert control.steering_rad == pytest.approx(math.atan(2.8 / 40.0), rel=0.02)


def test_a_plan_may_lie_anywhere_on_the_map():
    east = follow(straight(8.0), 0, VehicleState(0.0, 0.5, 0.1, 7.0))
    north = follow(straight(8.0, math.pi / 2), 0, VehicleState(-0.5, 0.0, math.pi / 2 + 0.1, 7.0))
    assert north.acceleration_mps2 == pytest.approx(east.acceleration_mps2)
    assert north.steering_rad == pytest.approx(east.steering_rad)


@pytest.mark.parametrize('side', [1, -1])
def test_beside_the_plan_it_steers_back(side):
    state = drive(straight(8.0), VehicleState(0.0, 0.8 * side, 0.0, 8.0), 3.0)
    assert abs(state.y_m) < 0.1
    assert abs(state.heading_rad) < 0.03


def test_an_old_plan_is_followed_from_where_it_wants_the_vehicle_by_now():
    # 1 s after t0 the vehicle is where the plan foresaw it: nothing to correct.
    control = follow(straight(8.0), 10 * STEP_NS, VehicleState(8.0, 0.0, 0.0, 8.0))
    assert control.acceleration_mps2 == pytest.approx(0.0, abs=1e-6)
    behind = follow(straight(8.0), 10 * STEP_NS, VehicleState(7.0, 0.0, 0.0, 8.0))
    assert behind.acceleration_mps2 > 0.5


def test_a_plan_that_stops_brings_the_vehicle_to_a_stop_where_it_ends():
    # From 6 m/s with 2 m/s^2: 9 m in 3 s, then it stands.
    time_s = np.arange(41) * 0.1
    braking = np.minimum(time_s, 3.0)
    x = 6.0 * braking - braking**2
    plan = MapTrajectory.of_points(0, time_s, np.stack([x, 0 * x], axis=1), 0 * x)
    state = drive(plan, VehicleState(0.0, 0.0, 0.0, 6.0), 4.5)
    assert state.speed_mps == 0.0
    assert state.x_m == pytest.approx(9.0, abs=0.4)


def test_a_standing_plan_holds_the_brake_whatever_its_last_digits_say():
    jitter = np.random.default_rng(1).normal(0.0, 0.05, (41, 2))
    plan = MapTrajectory.of_points(0, np.arange(41) * 0.1, jitter - jitter[0], np.zeros(41))
    state = VehicleState(0.0, 0.0, 0.0, 0.0, 0.0, 0.2)
    control = follow(plan, 0, state)
    assert control.acceleration_mps2 < -1.0
    assert control.steering_rad == 0.2


def test_a_plan_to_start_gets_going():
    time_s = np.arange(41) * 0.1
    x = 0.5 * time_s**2
    plan = MapTrajectory.of_points(0, time_s, np.stack([x, 0 * x], axis=1), 0 * x)
    assert follow(plan, 0, VehicleState(0.0, 0.0, 0.0)).acceleration_mps2 == pytest.approx(1, 0.1)


def test_a_plan_becomes_a_trajectory_on_the_map():
    ego = EgoState(
        5, 'odom', 'base_link', (10.0, 20.0, 0.0), (0.0, 0.0, math.sqrt(0.5), math.sqrt(0.5)),
        (4.0, 0.0), 0.0, (0.0, 0.0),
    )  # fmt: skip
    waypoints = np.array([[2.0 * (i + 1), 0.0] for i in range(8)])
    plan = Plan(5, ego, waypoints, trajectory_from_waypoints(waypoints, (4.0, 0.0), 0.1))
    trajectory = MapTrajectory.of_plan(plan)
    assert trajectory.t0_ns == 5
    np.testing.assert_allclose(trajectory.xy_map_m[-1], [10.0, 36.0], atol=1e-9)
    assert trajectory.progress_m[-1] == pytest.approx(16.0)


@pytest.mark.parametrize(('seed', 'age_steps'), [(3, 0), (7, 3)])
def test_the_experts_plans_drive_as_cleanly_as_the_expert(seed, age_steps):
    # Rounded as the small models write them; this is the ceiling of what a model can reach.
    world, expert, plans = World(seed), Expert(), []
    while not world.finished:
        now_ns = round(world.time_s * 1e9)
        ego = world.ego_state(now_ns)
        waypoints = expert.plan(world).waypoints_base_m.round(1)
        trajectory = trajectory_from_waypoints(waypoints, ego.velocity_base_mps, 0.1)
        plans.append(MapTrajectory.of_plan(Plan(now_ns, ego, waypoints, trajectory)))
        world.step(follow(plans[max(0, len(plans) - 1 - age_steps)], now_ns, world.ego))
    assert world.completed
    assert world.events == []
    assert world.lane_deviation_m < 0.3
