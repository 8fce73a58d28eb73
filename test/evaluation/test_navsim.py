import numpy as np
import pytest

from wamdiff_ros.evaluation.navsim import (
    driving_direction,
    ego_progress,
    extended_pdm_score,
    lane_keeping,
    pdm_score,
)


def test_pdms_multiplies_gates_and_averages_the_rest():
    assert pdm_score(True, True, 1.0, 1.0, 1.0) == 1.0
    assert pdm_score(True, True, 0.6, 0.8, 0.5) == pytest.approx((3.0 + 4.0 + 1.0) / 12)
    assert pdm_score(False, True, 1.0, 1.0, 1.0) == 0.0
    assert pdm_score(True, False, 1.0, 1.0, 1.0) == 0.0


def test_epdms_multiplies_four_gates_and_averages_the_rest():
    assert extended_pdm_score(*[1.0] * 9) == 1.0
    terms = dict(
        no_collision=1.0, on_road=1.0, direction=0.5, lights=1.0, progress=0.6,
        time_to_collision=0.8, lane_keeping=1.0, history_comfort=0.0, extended_comfort=1.0,
    )  # fmt: skip
    assert extended_pdm_score(**terms) == pytest.approx(0.5 * (3.0 + 4.0 + 2.0 + 2.0) / 16)
    for gate in ('no_collision', 'on_road', 'direction', 'lights'):
        assert extended_pdm_score(**{**terms, gate: 0.0}) == 0.0


def test_progress_is_a_share_of_the_longer_way_and_full_where_nobody_moves():
    own = np.array([20.0, 40.0, 4.0, -3.0, 4.0])
    reference = np.array([40.0, 20.0, 4.9, 30.0, 16.0])
    assert ego_progress(own, reference) == pytest.approx([0.5, 1.0, 1.0, 0.0, 0.25])


def test_driving_against_the_traffic_costs_half_from_2_m_and_all_from_6_m_within_a_second():
    way = np.zeros((5, 41))
    way[1, 10:20] = 0.19  # 1.9 m within a second
    way[2, 10:20] = 0.25
    way[3, 10:20] = 0.7
    way[4, ::10] = 1.5  # two steps at most within any 1.1 s, as NAVSIM counts them
    assert driving_direction(way).tolist() == [1.0, 1.0, 0.5, 0.0, 0.5]


def test_a_lane_is_left_after_2_s_on_end_beyond_half_a_metre():
    away, inside = np.zeros((5, 41)), np.zeros((5, 41), bool)
    away[1, 5:24] = 0.6  # 19 steps
    away[2, 5:25] = -0.6  # 20 steps, to the other side
    away[3, 5:35], inside[3] = 0.6, True  # in a junction
    away[4, 5:15], away[4, 16:26] = 0.6, 0.6  # interrupted
    assert lane_keeping(away, inside).tolist() == [1.0, 1.0, 0.0, 1.0, 1.0]
