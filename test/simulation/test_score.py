from dataclasses import replace

import numpy as np
import pytest

from wamdiff_ros.simulation.expert import Expert
from wamdiff_ros.simulation.score import (
    Drive,
    RouteScore,
    share_of_windows,
    summarise,
)
from wamdiff_ros.simulation.vehicle import Control
from wamdiff_ros.simulation.world import World
from wamdiff_ros.types import PlanStatus

FLAWLESS = RouteScore(
    seed=1, completed=True, collisions=0, off_road=0, red_lights=0, wrong_way=0, completion=1.0,
    duration_s=40.0, lane_deviation_m=0.1, progress=1.0, time_to_collision=1.0, comfort=1.0,
    pdms=1.0, not_nominal=0.0, faults=(),
)  # fmt: skip


def driven(seed, control_of):
    """Drive a world to its end, or to its first fault, and score it."""
    world, drive = World(seed), Drive()
    while not (world.finished or world.events):
        drive.add(world, PlanStatus.NOMINAL)
        world.step(control_of(world))
    return drive.score(world)


def test_the_expert_gets_full_marks():
    score = driven(28, Expert().control)
    assert score.success
    assert score.progress == pytest.approx(1.0)
    assert (score.completion, score.time_to_collision, score.faults) == (1.0, 1.0, ())
    assert score.pdms > 0.9


def test_running_into_somebody_costs_everything():
    def reckless(world):
        return Control(2.5, Expert().control(world).steering_rad)

    drives = (driven(seed, reckless) for seed in range(40))
    score = next(drive for drive in drives if drive.collisions)
    assert not score.success
    assert score.pdms == 0.0
    assert score.time_to_collision < 1.0
    assert 'collision' in score.faults[0]


@pytest.mark.parametrize(
    ('changes', 'success'),
    [
        ({}, True),
        ({'wrong_way': 1}, True),  # told, but not among the faults that count
        ({'completed': False}, False),
        ({'collisions': 1}, False),
        ({'off_road': 1}, False),
        ({'red_lights': 1}, False),
    ],
)
def test_success_is_to_complete_the_route_without_a_fault_that_counts(changes, success):
    assert replace(FLAWLESS, **changes).success is success


def test_the_interval_is_wilsons():
    scores = [FLAWLESS] * 45 + [replace(FLAWLESS, collisions=1)] * 5
    summary = summarise(scores)
    assert (summary.routes, summary.successes, summary.success_rate) == (50, 45, 0.9)
    # (p + z^2/2n -+ z sqrt(p(1-p)/n + z^2/4n^2)) / (1 + z^2/n) with z = 1.959964
    assert summary.success_interval == pytest.approx((0.786398, 0.956524), abs=1e-6)
    assert summary.collisions == 5


def test_no_routes_have_no_summary():
    with pytest.raises(ValueError, match='no routes'):
        summarise([])


def test_one_bad_step_costs_its_window_of_four_seconds():
    kept = np.ones(100, bool)
    kept[50] = False
    assert share_of_windows(kept, 0.1) == pytest.approx(2 / 3)  # 40, 40 and 20 steps
    assert share_of_windows(np.zeros(0, bool), 0.1) == 1.0
