import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wamdiff_ros.evaluation.comfort import alike, comfortable, motion_difference


def ramp(change_mps2, steps=60):
    """Speeds from 15 m/s on, with a constant acceleration; the first and last second none."""
    acceleration = np.zeros(steps)
    acceleration[10:-10] = change_mps2
    return 15.0 + np.cumsum(acceleration) * 0.1


def test_gentle_driving_is_comfortable():
    assert comfortable(ramp(0.0), np.full(60, 0.1), 0.1).all()
    assert comfortable(ramp(0.8), np.zeros(60), 0.1).all()


@pytest.mark.parametrize(
    ('speed_mps', 'yaw_rate_radps'),
    [
        (ramp(2.6), np.zeros(60)),  # longitudinal acceleration
        (ramp(-4.5), np.zeros(60)),
        (ramp(0.0), np.full(60, 0.35)),  # lateral acceleration 5.25 m/s^2
        (np.full(60, 1.0), np.full(60, 1.0)),  # yaw rate
        (np.full(60, 1.0), np.repeat([-0.9, 0.9], 30)),  # yaw acceleration
        (15.0 + np.sin(np.arange(60) / 2), np.zeros(60)),  # jerk
    ],
)
def test_harsh_driving_is_not_comfortable(speed_mps, yaw_rate_radps):
    assert not comfortable(speed_mps, yaw_rate_radps, 0.1).all()


def test_many_motions_at_once_are_judged_as_one_by_one():
    speeds = np.stack([ramp(0.8), ramp(2.6), ramp(-4.5)])
    rates = np.zeros((3, 60))
    together = comfortable(speeds, rates, 0.1)
    for one, speed, rate in zip(together, speeds, rates, strict=True):
        assert (one == comfortable(speed, rate, 0.1)).all()


def test_a_motion_that_is_not_known_is_not_comfortable():
    assert not comfortable(np.full(60, np.nan), np.zeros(60), 0.1).any()


def test_a_motion_is_like_itself():
    motion = ramp(0.8), np.full(60, 0.1)
    difference = motion_difference(motion, motion, 0.1)
    assert set(difference.values()) == {0.0}
    assert alike(difference)


@pytest.mark.parametrize(('change_mps2', 'like'), [(0.65, True), (0.75, False)])
def test_plans_are_alike_up_to_an_acceleration_of_0_7(change_mps2, like):
    """Steady acceleration against none: the differences are that acceleration, and nothing."""
    steady = np.full(41, 5.0), np.zeros(41)
    speeding = 5.0 + change_mps2 * np.arange(41) * 0.1, np.zeros(41)
    difference = motion_difference(speeding, steady, 0.1)
    assert difference['acceleration'] == pytest.approx(change_mps2)
    assert difference['jerk'] == pytest.approx(0.0, abs=1e-9)
    assert alike(difference) == like


@given(st.floats(0.11, 1.0), st.floats(-0.09, 0.09))
def test_plans_are_alike_up_to_a_yaw_rate_of_0_1(more, less):
    still = np.zeros(41), np.zeros(41)
    assert not alike(motion_difference((np.zeros(41), np.full(41, more)), still, 0.1))
    assert alike(motion_difference((np.zeros(41), np.full(41, less)), still, 0.1))
