import numpy as np
import pytest

from wamdiff_ros.simulation.disturbance import Disturbances, Push, recovers
from wamdiff_ros.simulation.expert import Expert
from wamdiff_ros.simulation.vehicle import Control
from wamdiff_ros.simulation.world import World


def drive(seed, random_seed):
    """Return the world after a disturbed drive, and how far off the expert's line it was."""
    world, expert = World(seed), Expert()
    disturbances = Disturbances(np.random.default_rng(random_seed))
    off, recovering = [], []
    while not world.finished:
        disturbances.push(world, expert)
        control = disturbances.disturbed(world, expert.control(world))
        off.append(abs(world.lateral_m - world.guide.at(world.s_m)[0]))
        recovering.append(disturbances.is_recovering(world))
        world.step(control)
    return world, np.array(off), np.array(recovering)


@pytest.mark.parametrize('seed', [30, 31, 32, 33])
def test_pushes_lead_off_the_path_but_into_no_fault(seed):
    world, off, recovering = drive(seed, 1)
    assert world.events == []
    assert world.completed
    assert off.max() > 0.4
    assert off[recovering].mean() > 2 * off[~recovering].mean()
    assert 0.1 < recovering.mean() < 0.9


def test_equal_seeds_push_alike():
    (one, _, _), (two, _, _) = drive(30, 1), drive(30, 1)
    assert one.ego == two.ego
    assert drive(30, 2)[0].ego != one.ego


def test_a_push_that_ends_off_the_road_is_not_recovered_from():
    world, expert = World(30), Expert()
    for _ in range(30):
        world.step(expert.control(world))
    before = world.ego
    assert recovers(world, expert)
    assert not recovers(world, expert, Push(left_m=-6.0))
    hard_right = Control(acceleration_mps2=1.0, steering_rad=-0.5)
    assert not recovers(world, expert, Push(lasts_s=3.0), hard_right)
    assert world.ego == before  # only a copy was driven


def test_some_pushes_stop_the_vehicle_where_the_expert_would_go_on():
    stood = 0
    for seed in (30, 31, 32):
        world, expert = World(seed, 'empty'), Expert()
        disturbances = Disturbances(np.random.default_rng(5))
        while not world.finished:
            disturbances.push(world, expert)
            ego = world.ego
            if ego.speed_mps == 0.0 and world.time_s > 1.0:
                assert ego.acceleration_mps2 == pytest.approx(0.0, abs=1e-6)
                assert expert.plan(world).waypoints_base_m[-1, 0] > 5.0
                stood += 1
            world.step(disturbances.disturbed(world, expert.control(world)))
        assert world.completed and world.events == []
    assert stood > 10
