import math
from dataclasses import replace

import pytest

from wamdiff_ros.simulation.expert import Expert
from wamdiff_ros.simulation.scene import BodyKind, Light
from wamdiff_ros.simulation.traffic import Lead
from wamdiff_ros.simulation.vehicle import VEHICLE, Control
from wamdiff_ros.simulation.world import Footprint, World

COAST = Control(0.0, 0.0)


def seed_where(condition, seeds=range(200)) -> World:
    for seed in seeds:
        world = World(seed)
        if condition(world):
            return world
    raise AssertionError('no such world among the seeds')


def drive(world: World, control=None, steps=600) -> World:
    expert = Expert()
    for _ in range(steps):
        if world.finished:
            break
        world.step(control or expert.control(world))
    return world


def place(world: World, s_m: float, lateral_m: float = 0.0, speed_mps: float = 8.0) -> None:
    x, y, heading = world.route.pose(s_m, lateral_m)
    world.s_m = s_m
    world.ego = replace(world.ego, x_m=x, y_m=y, heading_rad=heading, speed_mps=speed_mps)
    assert (world.s_m, world.lateral_m) == pytest.approx((s_m, lateral_m), abs=0.01)


def kinds(world: World) -> list[str]:
    return [event.kind for event in world.events]


def test_equal_seeds_and_controls_give_equal_worlds():
    a, b = drive(World(11), steps=200), drive(World(11), steps=200)
    assert a.ego == b.ego
    assert a.moving_bodies() == b.moving_bodies()
    assert a.lights == b.lights
    assert World(12).scene.strips[0].left_map_m.tolist() != a.scene.strips[0].left_map_m.tolist()


def test_a_copy_goes_on_like_its_original_and_leaves_it_alone():
    world = drive(World(3), steps=60)
    twin = world.copy()
    before = (world.ego, world.moving_bodies(), list(world.lights), len(world.history))
    drive(twin, steps=150)
    assert (world.ego, world.moving_bodies(), list(world.lights), len(world.history)) == before
    drive(world, steps=150)
    assert (twin.ego, twin.moving_bodies(), twin.lights) == (
        world.ego, world.moving_bodies(), world.lights
    )  # fmt: skip


def test_looking_ahead_in_a_frozen_copy_changes_nothing():
    world = drive(World(3), steps=60)
    before = (world.ego, world.moving_bodies(), list(world.lights), len(world.history))
    drive(world.frozen(), COAST, steps=40)
    assert (world.ego, world.moving_bodies(), list(world.lights), len(world.history)) == before


def test_crossing_the_line_at_red_is_a_fault_and_at_green_none():
    for light, expected in ((Light.RED, ['red_light']), (Light.GREEN, [])):
        world = World(3, 'empty')
        junction = next(j for j in world.route.junctions if j.signal is not None)
        signal = world.signals[junction.signal]
        signal.programme, signal.since_s, signal.red_s = 'red first', 0.0, 100.0
        if light is Light.GREEN:
            signal.since_s = 101.0
        place(world, junction.stop_s - VEHICLE.front_m - 2.0)
        drive(world, COAST, 5)
        assert kinds(world) == expected


def test_standing_before_the_line_at_red_is_no_fault():
    world = World(3, 'empty')
    junction = next(j for j in world.route.junctions if j.signal is not None)
    world.signals[junction.signal].programme = 'red first'
    place(world, junction.stop_s - VEHICLE.front_m - 0.5, speed_mps=0.0)
    drive(world, Control(-1.0, 0.0), 20)
    assert world.events == []


def test_driving_into_the_vehicle_ahead_is_one_collision():
    world = World(3, 'empty')
    world.lead = Lead(BodyKind.CAR, (9, 9, 9), 40.0, 0.0, 0.0, ())
    place(world, 25.0)
    drive(world, Control(0.5, 0.0), 30)
    assert kinds(world).count('collision') == 1
    assert world.events[0].detail == 'car'


def test_leaving_the_asphalt_to_the_right_is_off_road():
    world = World(3, 'empty')
    place(world, 20.0)
    drive(world, Control(0.0, -0.05), 40)
    assert kinds(world)[0] == 'off_road'
    edge_m = world.route.lane_width_m / 2 + 0.5
    at = next(e for _, e in world.history if world.events[0].time_s == pytest.approx(_))
    _, lateral = world.route.project(at.x_m, at.y_m)
    assert -edge_m - 1.5 < lateral < 0


def test_the_opposite_lane_is_the_wrong_way_after_two_seconds():
    world = World(3, 'empty')
    place(world, 10.0, world.route.lane_width_m, 5.0)
    drive(world, COAST, 19)
    assert 'wrong_way' not in kinds(world)
    drive(world, COAST, 6)
    assert kinds(world).count('wrong_way') == 1


def test_roads_end_completes_and_time_over_does_not():
    world = World(5, 'empty')
    place(world, world.route.length_m - 11.0)
    drive(world, COAST, 10)
    assert world.finished and world.completed and world.completion == 1.0
    world = World(5, 'empty')
    world.time_limit_s = 1.0
    drive(world, Control(-3.0, 0.0), 11)
    assert world.finished and not world.completed


def test_view_shows_every_light_and_the_state_of_the_ego_vehicle():
    world = drive(World(3), steps=50)
    view = world.view()
    assert len(view.lights) == len(world.scene.signals)
    assert view.position_map_m == (world.ego.x_m, world.ego.y_m)
    assert view.frame_number == 50
    state = world.ego_state(7)
    assert state.stamp_ns == 7 and state.speed_mps == world.ego.speed_mps
    z, w = state.orientation_xyzw[2:]
    turn = 2 * math.atan2(z, w) - world.ego.heading_rad
    assert math.cos(turn) == pytest.approx(1.0)


def test_who_crosses_waits_until_the_ego_vehicle_comes_near():
    world = seed_where(lambda w: w.crossings and w.lead is None)
    crossing = world.crossings[0]
    lateral = crossing.lateral_m
    drive(world, Control(-3.0, 0.0), 50)
    assert crossing.lateral_m == lateral
    place(world, crossing.s_m - VEHICLE.front_m - 20.0, speed_mps=0.0)
    drive(world, Control(-3.0, 0.0), 150)
    assert crossing.lateral_m > world.route.lane_width_m
    assert not crossing.in_the_way


def test_footprints_overlap_by_their_corners_too():
    a = Footprint.of((0.0, 0.0), 0.0, 4.0, 2.0)
    assert a.overlaps(Footprint.of((2.9, 0.0), 0.0, 2.0, 2.0))
    assert not a.overlaps(Footprint.of((3.1, 0.0), 0.0, 2.0, 2.0))
    # A diamond beside the corner is apart only along its own axes.
    assert not a.overlaps(Footprint.of((2.9, 1.9), math.pi / 4, 2.0, 2.0))
    assert a.overlaps(Footprint.of((2.6, 1.6), math.pi / 4, 2.0, 2.0))


def test_an_unknown_variant_is_named():
    with pytest.raises(ValueError, match="'nothing'"):
        World(0, 'nothing')
