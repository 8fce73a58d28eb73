"""What was driven after a plan, from the recording's own odometry."""

import numpy as np
import pytest

from wamdiff_ros.replay.ground_truth import GroundTruth
from wamdiff_ros.types import EgoState

SPEED_MPS = 10.0
LIMITS = 200_000_000, 1.0  # of a gap [ns], of a jump [m]


def state(ns, x_m=None, y_m=3.0):
    """Return a vehicle that drives along the fixed y axis, so x in base is y in fixed."""
    x_m = SPEED_MPS * ns / 1e9 if x_m is None else x_m
    quarter = (0.0, 0.0, np.sqrt(0.5), np.sqrt(0.5))
    return EgoState(
        ns, 'odom', 'base', (y_m, x_m, 0.0), quarter, (SPEED_MPS, 0.0), 0.0, (0.0, 0.0)
    )


def states(end_s=8.0, without=(0.0, 0.0)):
    return [
        state(ns)
        for ns in range(0, round(end_s * 1e9), 20_000_000)
        if not without[0] < ns / 1e9 < without[1]
    ]


def test_the_way_ahead_is_five_seconds_in_steps_of_a_tenth_from_the_vehicle_on():
    way_m = GroundTruth(states(), *LIMITS).way_ahead(state(1_000_000_000))
    np.testing.assert_allclose(way_m[:, 0], np.arange(51), atol=1e-6)
    np.testing.assert_allclose(way_m[:, 1:], 0.0, atol=1e-6)


@pytest.mark.parametrize(
    ('driven', 'end_m'),
    [
        (states(end_s=3.0), 19.0),
        (states(without=(2.5, 3.0)), 15.0),
        ([*states(end_s=2.5), *(state(s.stamp_ns, y_m=80.0) for s in states()[125:])], 14.0),
    ],
    ids=['end', 'gap', 'jump'],
)
def test_the_way_ahead_ends_where_odometry_does_not_go_on(driven, end_m):
    way_m = GroundTruth(driven, *LIMITS).way_ahead(state(1_000_000_000))
    assert way_m[-1, 0] == pytest.approx(end_m, abs=1.0)
    assert np.abs(way_m[:, 1]).max() < 1e-6
