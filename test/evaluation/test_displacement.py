import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wamdiff_ros.evaluation.displacement import TIMES_S, displacement_errors, wrapped_rad

STRAIGHT = np.stack([10 * TIMES_S, 0 * TIMES_S], axis=1)[None]  # 10 m/s ahead
AHEAD = np.zeros((1, 10))


def shifted(path_m, x_m, y_m):
    return path_m + np.array((x_m, y_m))


def moved(xy, heading, shift, turn):
    cos, sin = np.cos(turn), np.sin(turn)
    return xy @ np.array([[cos, sin], [-sin, cos]]) + shift, wrapped_rad(heading + turn)


def test_errors_are_those_worked_out_by_hand():
    plan = STRAIGHT.copy()
    plan[0, :, 0] *= 1.1  # ahead by 0.5, 1.0 … 5.0 m
    errors = displacement_errors(plan, AHEAD + 0.2, STRAIGHT, AHEAD)
    assert errors.fde_m[0] == pytest.approx([1.0, 2.0, 3.0, 4.0, 5.0])
    assert errors.ade_m[0] == pytest.approx([0.75, 1.25, 1.75, 2.25, 2.75])
    assert errors.heading_rad[0] == pytest.approx([0.2] * 5)
    assert errors.longitudinal_m[0] == pytest.approx([1.0, 2.0, 3.0, 4.0, 5.0])
    assert errors.lateral_m[0] == pytest.approx([0.0] * 5)


def test_longitudinal_and_lateral_are_the_truths_own_directions():
    """The truth has turned left, so a plan that goes on straight is behind it and on its right."""
    heading = np.full((1, 10), np.pi / 2)
    plan = shifted(STRAIGHT, 1.0, -3.0)
    errors = displacement_errors(plan, heading, STRAIGHT, heading)
    assert errors.longitudinal_m[0] == pytest.approx([-3.0] * 5)
    assert errors.lateral_m[0] == pytest.approx([-1.0] * 5)


def test_a_heading_across_the_cut_at_pi_is_a_small_error():
    errors = displacement_errors(STRAIGHT, AHEAD + 3.1, STRAIGHT, AHEAD - 3.1)
    assert errors.heading_rad[0] == pytest.approx([2 * np.pi - 6.2] * 5)


def test_a_truth_that_ends_has_errors_only_up_to_there():
    truth = STRAIGHT.copy()
    truth[0, 5:] = np.nan  # known up to 2.5 s
    errors = displacement_errors(STRAIGHT, AHEAD, truth, AHEAD)
    assert np.isnan(errors.ade_m[0]).tolist() == [False, False, True, True, True]


def test_a_plan_shorter_than_the_horizon_has_no_error_there():
    errors = displacement_errors(STRAIGHT[:, :8], AHEAD[:, :8], STRAIGHT[:, :8], AHEAD[:, :8])
    assert errors.fde_m[0, :4].tolist() == [0.0] * 4
    assert np.isnan(errors.fde_m[0, 4])


@given(st.integers(0, 2**32 - 1), st.floats(-500, 500), st.floats(-500, 500), st.floats(-3.1, 3.1))
def test_errors_do_not_depend_on_the_frame(seed, x, y, turn):
    random = np.random.default_rng(seed)
    plan, truth = random.normal(0, 20, (2, 3, 10, 2))
    plan_heading, truth_heading = random.uniform(-3, 3, (2, 3, 10))
    one = displacement_errors(plan, plan_heading, truth, truth_heading)
    other = displacement_errors(
        *moved(plan, plan_heading, (x, y), turn), *moved(truth, truth_heading, (x, y), turn)
    )
    for name in ('ade_m', 'fde_m', 'heading_rad', 'longitudinal_m', 'lateral_m'):
        assert getattr(other, name) == pytest.approx(getattr(one, name), abs=1e-6)


@given(st.integers(0, 2**32 - 1))
def test_the_directions_add_up_to_the_distance(seed):
    random = np.random.default_rng(seed)
    plan, truth = random.normal(0, 20, (2, 3, 10, 2))
    errors = displacement_errors(plan, AHEAD, truth, random.uniform(-3, 3, (3, 10)))
    assert np.hypot(errors.longitudinal_m, errors.lateral_m) == pytest.approx(errors.fde_m)
    assert (errors.ade_m <= np.maximum.accumulate(errors.fde_m, axis=1) * 10).all()
