import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from wamdiff_ros.evaluation.footprints import footprint_corners, footprints_overlap
from wamdiff_ros.simulation.world import Footprint


def boxes(random, count):
    low, high = (-4, -4, -3.2, 0.2, 0.2), (4, 4, 3.2, 5, 3)
    return random.uniform(low, high, (count, 5))


@given(st.integers(0, 2**32 - 1))
def test_many_at_once_agree_with_the_world_one_by_one(seed):
    random = np.random.default_rng(seed)
    ones, others = boxes(random, 20), boxes(random, 20)
    for one, other, overlap in zip(ones, others, footprints_overlap(ones, others), strict=True):
        pair = [Footprint.of(tuple(box[:2]), *box[2:]) for box in (one, other)]
        assert pair[0].overlaps(pair[1]) == overlap


def test_leading_axes_are_broadcast():
    ego = np.array([0.0, 0.0, 0.0, 4.0, 2.0])
    others = np.array([[3.9, 0.0, 0.0, 4.0, 2.0], [4.1, 0.0, 0.0, 4.0, 2.0]])
    assert footprints_overlap(ego, others).tolist() == [True, False]
    assert not footprints_overlap(ego * np.nan, others).any()


def test_corners_begin_at_the_front_left():
    box = np.array([1.0, 2.0, np.pi / 2, 4.0, 2.0])
    assert footprint_corners(box).round(6).tolist() == [[0, 4], [2, 4], [2, 0], [0, 0]]
