import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wamdiff_ros.evaluation.consistency import shifts_m

TIME_S = np.arange(9) * 0.5
STAMPS_NS = np.arange(3) * 300_000_000


def plans(speeds_mps, left_m):
    """Plans made at `STAMPS_NS` by a vehicle that drives at 10 m/s along x."""
    x = 10 * STAMPS_NS[:, None] * 1e-9 + np.array(speeds_mps)[:, None] * TIME_S
    return np.stack([x, np.broadcast_to(np.array(left_m)[:, None], x.shape)], axis=2)


def test_plans_that_go_on_do_not_shift():
    mean, most = shifts_m(STAMPS_NS, TIME_S, plans([10, 10, 10], [0, 0, 0]))
    assert np.isnan(mean[0])
    assert mean[1:] == pytest.approx([0, 0], abs=1e-9)
    assert most[1:] == pytest.approx([0, 0], abs=1e-9)


def test_shifts_are_those_worked_out_by_hand():
    mean, most = shifts_m(STAMPS_NS, TIME_S, plans([10, 12, 12], [0, 0, 0.5]))
    # 2 m/s faster: at 0, 0.5 … 3.5 s, as the older plan ends at 3.7 s of the newer.
    assert mean[1] == pytest.approx(2 * np.arange(8).mean() * 0.5)
    assert most[1] == pytest.approx(7.0)
    # The third plan starts 0.6 m behind where the second would be, and 0.5 m aside.
    assert most[2] == pytest.approx(np.hypot(0.6, 0.5))


def test_a_missing_plan_has_no_shift_and_neither_has_the_next():
    xy = plans([10, 10, 10], [0, 0, 0])
    xy[1] = np.nan
    assert np.isnan(shifts_m(STAMPS_NS, TIME_S, xy)[0]).all()


def test_plans_too_far_apart_in_time_are_not_compared():
    mean, _ = shifts_m(STAMPS_NS * 20, TIME_S, plans([10, 10, 10], [0, 0, 0]))
    assert np.isnan(mean).all()


@given(st.integers(0, 2**32 - 1), st.floats(-3.1, 3.1))
def test_shifts_do_not_depend_on_the_frame(seed, turn):
    xy = np.random.default_rng(seed).normal(0, 10, (3, 9, 2))
    rotation = np.array([[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]])
    one, other = (shifts_m(STAMPS_NS, TIME_S, each) for each in (xy, xy @ rotation + [3, -5]))
    assert np.array(other) == pytest.approx(np.array(one), nan_ok=True)
