import numpy as np
import pytest

from wamdiff_ros.evaluation.bootstrap import RouteBootstrap


def test_alike_records_of_a_route_count_as_one_observation():
    """Ten copies of every record say nothing new, so the interval stays as wide."""
    values = np.random.default_rng(0).normal(5.0, 1.0, 40)
    once = RouteBootstrap(np.arange(40)).mean(values)
    copied = RouteBootstrap(np.repeat(np.arange(40), 10)).mean(np.repeat(values, 10))
    assert copied.value == pytest.approx(once.value)
    assert (copied.low, copied.high) == pytest.approx((once.low, once.high))
    alone = RouteBootstrap(np.arange(400)).mean(np.repeat(values, 10))
    assert alone.high - alone.low < 0.5 * (copied.high - copied.low)


def test_the_interval_is_that_of_the_normal_approximation():
    values = np.random.default_rng(1).normal(2.0, 3.0, 400)
    estimate = RouteBootstrap(np.arange(400)).mean(values)
    margin = 1.96 * values.std() / 20
    assert estimate.value - estimate.low == pytest.approx(margin, rel=0.1)
    assert estimate.high - estimate.value == pytest.approx(margin, rel=0.1)


def test_records_that_do_not_count_are_left_out_of_the_mean():
    values, counted = np.array([1.0, np.nan, 3.0]), np.array([True, False, True])
    assert RouteBootstrap(np.array([7, 7, 8])).mean(values, counted).value == 2.0


def test_there_is_no_interval_from_one_route_and_no_value_from_nothing():
    one = RouteBootstrap(np.array([3, 3, 3]))
    assert one.mean(np.array([1.0, 2.0, 3.0])).value == 2.0
    assert one.mean(np.array([1.0, 2.0, 3.0])).low is None
    assert one.ratio(np.zeros(3), np.zeros(3)) is None


def test_the_interval_of_a_paired_difference_is_narrower_than_those_of_its_parts():
    random = np.random.default_rng(2)
    hardness = random.normal(0.0, 5.0, 100)
    one, other = 10 + hardness, 11 + hardness + random.normal(0.0, 0.1, 100)
    difference = RouteBootstrap(np.arange(100)).mean(other - one)
    assert 0.9 < difference.low < 1.0 < difference.high < 1.1
