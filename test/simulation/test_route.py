import math

import numpy as np
import pytest

from wamdiff_ros.simulation import route as route_module
from wamdiff_ros.simulation.route import STEP_M, TURN_RAD, make_route
from wamdiff_ros.types import Command

SEEDS = range(40)


@pytest.fixture(scope='module')
def routes():
    return [make_route(np.random.default_rng(seed)) for seed in SEEDS]


def test_one_seed_gives_one_route_bit_for_bit():
    first, second, other = (make_route(np.random.default_rng(seed)) for seed in (7, 7, 8))
    assert first.xy_map_m.tobytes() == second.xy_map_m.tobytes()
    assert first.curvature_1pm.tobytes() == second.curvature_1pm.tobytes()
    assert first.junctions == second.junctions
    assert first.xy_map_m.tobytes() != other.xy_map_m.tobytes()


def test_routes_have_the_promised_sizes(routes):
    for route in routes:
        assert 200 <= route.length_m <= 320
        assert 3.2 <= route.lane_width_m <= 3.8
        assert 8 <= route.speed_limit_mps <= 13
        assert 1 <= len(route.junctions) <= 3
        assert route.pieces[0].start_s == 0
        assert route.pieces[-1].end_s == pytest.approx(route.length_m)
    commands = {junction.command for route in routes for junction in route.junctions}
    assert commands == set(Command)


def test_samples_are_evenly_spaced_and_headings_follow_them(routes):
    for route in routes:
        steps = np.diff(route.xy_map_m, axis=0)
        assert np.allclose(np.hypot(*steps.T), STEP_M, atol=2e-3)
        along = np.unwrap(np.arctan2(steps[:, 1], steps[:, 0]))
        middle = (route.heading_rad[1:] + route.heading_rad[:-1]) / 2
        assert np.allclose(np.angle(np.exp(1j * (along - middle))), 0, atol=0.01)
        assert np.allclose(np.diff(route.heading_rad) / STEP_M, route.curvature_1pm[1:], atol=0.06)


def test_curvature_is_continuous_and_a_car_can_steer_it(routes):
    for route in routes:
        assert np.abs(route.curvature_1pm).max() < 0.2
        assert np.abs(np.diff(route.curvature_1pm)).max() < 0.05


def test_junctions_turn_by_their_command_and_leave_in_the_lane_of_the_arm(routes):
    for route in routes:
        for junction in route.junctions:
            turn = route.at(junction.end_s)[2] - route.at(junction.start_s)[2]
            assert turn == pytest.approx(TURN_RAD[junction.command], abs=0.02)
            assert junction.command in junction.arms
            exit_pose = route.arm_pose(
                junction, junction.command, junction.half_size_m, incoming=False
            )
            assert route.pose(junction.end_s) == pytest.approx(exit_pose, abs=0.03)
            assert junction.stop_s < junction.start_s
            if junction.crosswalk_s is not None:
                assert junction.stop_s < junction.crosswalk_s < junction.start_s


def test_signals_are_numbered_along_the_route(routes):
    for route in routes:
        signals = [j.signal for j in route.junctions if j.signal is not None]
        assert signals == list(range(len(signals)))
    assert any(j.signal is None for route in routes for j in route.junctions)


def test_incoming_traffic_of_an_arm_keeps_right(routes):
    junction = routes[0].junctions[0]
    arm = junction.arms[0]
    x, y, heading = routes[0].arm_pose(junction, arm, 30.0, incoming=True)
    to_centre = np.array(junction.centre_map_m) - (x, y)
    forward = np.array([math.cos(heading), math.sin(heading)])
    left = np.array([-forward[1], forward[0]])
    assert to_centre @ forward == pytest.approx(30.0)
    assert to_centre @ left == pytest.approx(routes[0].lane_width_m / 2)


def test_projection_inverts_pose_from_a_rough_guess(routes):
    rng = np.random.default_rng(0)
    for route in routes:
        for _ in range(20):
            s, lateral = rng.uniform(-30, route.length_m + 30), rng.uniform(-4, 4)
            x, y, _ = route.pose(s, lateral)
            found = route.project(x, y, near_s=s + rng.uniform(-10, 10))
            assert found == pytest.approx((s, lateral), abs=0.05)


def test_projection_without_a_guess_searches_the_whole_route(routes):
    x, y, heading = routes[3].pose(150.0, 1.0)
    state = routes[3].lane_state(x, y, heading + 0.1 + 2 * math.pi)
    assert (state.s_m, state.lateral_m) == pytest.approx((150.0, 1.0), abs=0.05)
    assert state.heading_error_rad == pytest.approx(0.1, abs=0.01)


def test_route_goes_on_straight_beyond_its_ends(routes):
    route = routes[0]
    x, y, heading, curvature = route.at(route.length_m + 10)
    last = route.xy_map_m[-1]
    assert np.hypot(x - last[0], y - last[1]) == pytest.approx(10)
    assert (heading, curvature) == (route.heading_rad[-1], 0)
    assert route.at(-5)[:2] == pytest.approx(
        (-5 * math.cos(route.heading_rad[0]), -5 * math.sin(route.heading_rad[0]))
    )


def test_command_holds_from_40_m_before_the_junction_to_its_end(routes):
    turning = [
        (route, junction)
        for route in routes
        for junction in route.junctions[:1]
        if junction.command is not Command.STRAIGHT
    ]
    assert turning
    for route, junction in turning:
        assert route.command_at(junction.start_s - 40.5) is Command.STRAIGHT
        assert route.command_at(junction.start_s - 39.5) is junction.command
        assert route.command_at(junction.end_s - 0.1) is junction.command
        assert route.command_at(route.length_m + 5) is Command.STRAIGHT


def test_parts_of_a_road_keep_clear_of_each_other(routes):
    for route in routes:
        s = np.arange(-80, route.length_m + 100, 2.0)
        xy = np.array([route.pose(value)[:2] for value in s])
        apart = np.hypot(*(xy[:, None] - xy).transpose(2, 0, 1))
        assert apart[np.abs(s[:, None] - s) > 60].min() > 20


def test_a_road_that_meets_itself_is_refused(routes):
    circle = np.linspace(0, 2 * np.pi, 500)
    loop = route_module.Route(
        40 * np.column_stack([np.sin(circle), 1 - np.cos(circle)]),
        circle, np.full(500, 1 / 40), 3.5, 10.0, (), (),
    )  # fmt: skip
    assert not route_module._keeps_clear(loop)
    assert all(route_module._keeps_clear(route) for route in routes)
