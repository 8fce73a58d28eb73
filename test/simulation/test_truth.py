from dataclasses import replace

import numpy as np
import pytest

from wamdiff_ros.simulation.expert import Expert, ExpertPlan
from wamdiff_ros.simulation.truth import (
    EXPLANATIONS,
    LATERAL,
    LONGITUDINAL,
    OBJECTS,
    WORDINGS,
    longitudinal_of,
    truth,
)
from wamdiff_ros.simulation.world import World


def instants(seeds, every=10):
    expert = Expert()
    for seed in seeds:
        world, step = World(seed), 0
        while not world.finished:
            if step % every == 0:
                plan = expert.plan(world)
                yield world, plan, truth(world, plan)
            world.step(expert.control(world))
            step += 1


@pytest.fixture(scope='module')
def said():
    return [(world.seed, plan, told) for world, plan, told in instants(range(40, 52))]


def test_every_instant_has_all_fields_and_known_words(said):
    for _, _, told in said:
        assert tuple(told.objects) == OBJECTS
        assert told.longitudinal in LONGITUDINAL and told.lateral in LATERAL
        assert told.explanation in WORDINGS
        assert told.explanation in EXPLANATIONS[told.reason]


def test_what_the_world_lacks_is_never_said_to_be_there(said):
    lacking = ('road_hazard', 'emergency_vehicle', 'animal', 'special_vehicle',
               'door_opening_vehicle')  # fmt: skip
    assert not any(told.objects[name] for _, _, told in said for name in lacking)


def test_what_the_expert_gives_way_to_is_a_critical_object(said):
    for _, _, told in said:
        if told.reason in ('pedestrian', 'wait pedestrian'):
            assert told.objects['pedestrian']
        if told.reason in ('cyclist', 'wait cyclist'):
            assert told.objects['cyclist']
        if told.reason in ('red', 'wait red', 'amber'):
            assert told.objects['traffic_element']


def test_explanations_are_short_and_there_are_several_of_each():
    for wordings in EXPLANATIONS.values():
        assert len(set(wordings)) >= 3
        assert all(len(text.split()) <= 14 for text in wordings)


def test_the_same_instant_is_always_worded_alike_and_others_differ(said):
    world = World(7)
    assert truth(world) == truth(World(7))
    assert len({told.explanation for _, _, told in said if told.reason == 'free'}) == 3


def plan_of(speed: np.ndarray) -> ExpertPlan:
    xy = np.stack([np.cumsum(speed) * 0.1, np.zeros(41)], axis=1)
    return ExpertPlan(xy[5::5], xy, np.zeros(41), speed, 'cruise')


@pytest.mark.parametrize(
    ('speed', 'expected'),
    [
        (np.zeros(41), 'wait'),
        (np.linspace(0, 5, 41), 'accelerate'),
        (np.maximum(np.linspace(6, -2, 41), 0), 'stop'),
        (np.linspace(9, 5, 41), 'decelerate'),
        (np.linspace(9, 9.5, 41), 'keep_speed'),
        (np.linspace(5, 8, 41), 'accelerate'),
    ],
)
def test_manoeuvre_follows_from_the_speeds_of_the_plan(speed, expected):
    assert longitudinal_of(plan_of(speed)) == expected


def test_turns_are_those_of_the_command(said):
    turns = {told.lateral for _, _, told in said} & {'turn_left', 'turn_right'}
    assert turns
    for _, plan, told in said:
        if told.lateral in turns:
            assert (plan.heading_rad[-1] > 0) == (told.lateral == 'turn_left')


def test_bad_weather_is_told_from_the_scene():
    world = World(0)
    clear = replace(world.scene.weather, daylight=1.0, fog_per_m=0.0, rain=0.0)
    for weather, expected in ((clear, False), (replace(clear, rain=0.5), True),
                              (replace(clear, fog_per_m=0.01), True),
                              (replace(clear, daylight=0.3), True)):  # fmt: skip
        world.scene = replace(world.scene, weather=weather)
        assert truth(world).objects['weather_condition'] is expected
