import math
from dataclasses import replace

import numpy as np
import pytest

from wamdiff_ros.evaluation.comfort import comfortable
from wamdiff_ros.simulation.expert import Expert
from wamdiff_ros.simulation.pacing import distance_for, speed_for, stopping
from wamdiff_ros.simulation.scene import Light
from wamdiff_ros.simulation.vehicle import VEHICLE, Control, curvature_of
from wamdiff_ros.simulation.world import World

EXPERT = Expert()


def drive(world: World, steps: int = 2000) -> World:
    for _ in range(steps):
        if world.finished:
            break
        world.step(EXPERT.control(world))
    return world


def waiting_at_red() -> World:
    for seed in range(100):
        world = World(seed)
        while not world.finished:
            reds = [j for j in world.route.junctions if j.signal is not None
                    and world.lights[j.signal] is Light.RED
                    and 0 < j.stop_s - world.s_m - VEHICLE.front_m < 3]  # fmt: skip
            if reds and world.ego.speed_mps == 0.0:
                return world
            world.step(EXPERT.control(world))
    raise AssertionError('nobody waited')


@pytest.mark.parametrize('first_seed', [0, 100, 200])
def test_expert_completes_routes_without_a_fault_and_in_comfort(first_seed):
    for seed in range(first_seed, first_seed + 6):
        world = drive(World(seed))
        assert world.completed, seed
        assert world.events == [], seed
        speed = np.array([ego.speed_mps for _, ego in world.history])
        turn = np.array([curvature_of(ego.steering_rad) for _, ego in world.history])
        assert comfortable(speed, speed * turn, 0.1).mean() > 0.97, seed


def test_expert_recovers_from_beside_and_askew():
    world = World(1, 'empty')
    for lateral, degrees in ((1.0, 10.0), (-1.0, 10.0), (1.0, -10.0), (-0.5, -10.0)):
        copy = drive(world.copy(), 20)
        ego = copy.ego
        copy.ego = replace(
            ego,
            x_m=ego.x_m - lateral * math.sin(ego.heading_rad),
            y_m=ego.y_m + lateral * math.cos(ego.heading_rad),
            heading_rad=ego.heading_rad + math.radians(degrees),
        )
        drive(copy, 50)
        assert abs(copy.lateral_m - copy.guide.at(copy.s_m)[0]) < 0.25
        assert copy.events == []


def test_plan_of_who_waits_at_red_stays_exactly_where_it_is():
    world = waiting_at_red()
    plan = EXPERT.plan(world)
    assert plan.reason == 'red'
    assert not plan.xy_base_m.any() and not plan.speed_mps.any()


def test_plan_on_an_empty_road_is_what_the_expert_then_does():
    world = drive(World(4, 'empty'), 30)
    plan, start = EXPERT.plan(world), world.ego
    assert plan.waypoints_base_m.shape == (8, 2) and plan.xy_base_m.shape == (41, 2)
    drive(world, 40)
    dx, dy = world.ego.x_m - start.x_m, world.ego.y_m - start.y_m
    cos, sin = math.cos(start.heading_rad), math.sin(start.heading_rad)
    driven = (dx * cos + dy * sin, dy * cos - dx * sin)
    assert plan.waypoints_base_m[-1] == pytest.approx(driven, abs=1e-6)
    assert plan.speed_mps[-1] == pytest.approx(world.ego.speed_mps)


def test_plan_does_not_know_what_begins_later():
    world = World(0)
    for seed in range(100):
        world = World(seed)
        signal = next((s for s in world.signals if s.programme == 'turns red'), None)
        if signal and signal.stop_s > 60 and world.signals[0] is signal:
            break
    while signal.stop_s - world.s_m - VEHICLE.front_m > signal.trigger_m + 22:
        world.step(EXPERT.control(world))
    foreseen = EXPERT.plan(world)
    signal.programme = 'green'
    assert np.array_equal(EXPERT.plan(world).xy_base_m, foreseen.xy_base_m)


def test_a_stop_ends_before_its_place_without_a_jolt():
    for speed in (3.0, 8.0, 13.0):
        room, acceleration, hardest, way = distance_for(speed) + 0.3, 0.0, 0.0, 0.0
        for _ in range(300):
            acceleration = stopping(speed, room - way)
            hardest = min(hardest, acceleration)
            speed = max(speed + acceleration * 0.1, 0.0)
            way += speed * 0.1
        assert speed == 0.0
        assert room - 1.0 < way < room + 0.05
        assert hardest > -2.6


def test_speed_and_distance_of_a_stop_are_inverse_of_each_other():
    assert distance_for(speed_for(17.0)) == pytest.approx(17.0)
    assert speed_for(-1.0) == 0.0


def test_expert_gives_way_to_who_stands_at_the_kerb():
    for seed in range(100):
        world = World(seed)
        if world.crossings and world.lead is None:
            break
    crossing = world.crossings[0]
    crossing.delay_s = 1e9
    for _ in range(900):
        world.step(EXPERT.control(world))
    front_s = world.s_m + VEHICLE.front_m
    assert crossing.s_m - 6.5 < front_s < crossing.s_m - 3.5
    assert world.ego.speed_mps == 0.0
    assert EXPERT.control(world) == Control(-1.0, world.ego.steering_rad)
