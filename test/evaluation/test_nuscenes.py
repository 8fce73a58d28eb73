import numpy as np
import pytest

from wamdiff_ros.evaluation.nuscenes import (
    at_horizons,
    collisions,
    mean_to_horizons,
    occupancy,
)

AHEAD = np.stack([5.0 * np.arange(1, 7) * 0.5, np.zeros(6)], axis=1)  # 5 m/s
NOBODY = [np.zeros((0, 5))] * 6


def shifted(path_m, x_m, y_m):
    return path_m + np.array((x_m, y_m))


def car(x, y, heading=0.0):
    return np.array([[x, y, heading, 4.0, 2.0]])


def test_the_two_conventions_differ_as_uniad_and_vad_do():
    distance = np.array([[0.1, 0.2, 0.3, 0.4, 0.5, 0.6]])
    assert at_horizons(distance)[0] == pytest.approx([0.2, 0.4, 0.6])
    assert mean_to_horizons(distance)[0] == pytest.approx([0.15, 0.25, 0.35])


def test_the_grid_has_cells_of_half_a_metre():
    # Corners at -2 … 2 m and -1 … 1 m are rounded to the cells 96 … 104 and 98 … 102.
    grid = occupancy(car(0.0, 0.0))
    assert np.argwhere(grid).min(axis=0).tolist() == [96, 98]
    assert np.argwhere(grid).max(axis=0).tolist() == [104, 102]
    turned = occupancy(car(0.0, 0.0, np.pi / 2))
    assert (turned[98:103, 96:105] == 1).all()
    assert turned.sum() == grid.sum() == 45


def test_a_box_is_drawn_where_it_is():
    grid = occupancy(car(20.0, -10.0))
    middle = np.argwhere(grid).mean(axis=0)
    assert middle == pytest.approx([(20 + 50) / 0.5, (-10 + 50) / 0.5])


def test_a_plan_collides_at_the_steps_at_which_somebody_is_there():
    truth = shifted(AHEAD, 0.0, 20.0)
    boxes = [car(10.0, 0.0)] * 6
    # The ego box reaches from 1.5 m behind to 2.5 m ahead of the pose: 7.5, 10 and 12.5 m touch.
    assert collisions(AHEAD, truth, boxes).tolist() == [False, False, True, True, True, False]


def test_a_step_at_which_the_truth_collides_does_not_count():
    boxes = [car(10.0, 0.0)] * 6
    assert not collisions(AHEAD, AHEAD, boxes).any()


def test_the_ego_box_is_not_turned():
    """A plan that drives to the left past a post still has a box along x."""
    left = AHEAD[:, ::-1]
    post = np.array([[2.2, 10.0, 0.0, 0.2, 0.2]])
    assert collisions(left, AHEAD, [post] * 6).any()


def test_where_nobody_is_nothing_collides():
    assert not collisions(AHEAD, AHEAD, NOBODY).any()
    assert not collisions(AHEAD * np.nan, AHEAD, [car(10.0, 0.0)] * 6).any()
