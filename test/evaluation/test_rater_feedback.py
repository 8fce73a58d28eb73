import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wamdiff_ros.evaluation.rater_feedback import rater_feedback_score, trust_scale


def shifted(path_m, x_m, y_m):
    return path_m + np.array((x_m, y_m))


TIME_S = np.arange(1, 21) * 0.25
BASE = np.stack([10 * TIME_S, 0 * TIME_S], axis=1)
RATERS = (BASE, BASE * [0.6, 1.0], shifted(BASE, 0.0, 4.0))
LABELS = (9.0, 6.0, 3.0)


def score(plan, speed_mps=10.0):
    return rater_feedback_score(plan, RATERS, LABELS, speed_mps)


@pytest.mark.parametrize(
    ('plan', 'speed_mps', 'value', 'inside'),
    [
        (BASE, 10.0, 9.0, True),
        (shifted(BASE, 0.0, 0.9), 10.0, 9.0, True),
        (BASE * [0.9, 1.0], 10.0, 9.0, True),
        (shifted(BASE, 0.0, 1.5), 10.0, 5.677050053372701, False),
        (shifted(BASE, 0.0, 3.0), 10.0, 4.0, False),
        (BASE * [0.5, 1.0], 10.0, 6.0, True),
        (shifted(BASE, 0.0, 0.6), 1.0, 7.33930805016087, False),
        (shifted(BASE, 0.0, 0.99), 11.0, 9.0, True),
    ],
)
def test_scores_agree_with_those_of_the_benchmark(plan, speed_mps, value, inside):
    feedback = score(plan, speed_mps)
    assert feedback.score == pytest.approx(value, abs=1e-12)
    assert feedback.in_trust_region is inside


def test_the_trust_region_narrows_below_11_mps_to_half_at_1_4():
    assert [trust_scale(v) for v in (0.0, 1.4, 6.2, 11.0, 30.0)] == [0.5, 0.5, 0.75, 1.0, 1.0]


def test_several_modes_count_by_their_probabilities():
    modes = np.stack([BASE, shifted(BASE, 0.0, 3.0)])
    feedback = rater_feedback_score(modes, RATERS, LABELS, 10.0, (0.25, 0.75))
    assert feedback.score == pytest.approx(0.25 * 9.0 + 0.75 * 4.0)
    assert not feedback.in_trust_region


def test_fewer_raters_are_repeated_and_more_are_cut():
    alone = rater_feedback_score(BASE, RATERS[:1], LABELS[:1], 10.0)
    assert alone.score == 9.0
    best_last = rater_feedback_score(
        BASE, (*RATERS[1:], RATERS[2], BASE), (6.0, 3.0, 3.0, 9.0), 10
    )
    assert best_last.score < 9.0


def test_a_shorter_plan_stands_at_its_end():
    assert score(BASE[:16]).score < score(BASE).score
    assert score(BASE[:16]) == score(np.concatenate([BASE[:16], BASE[15:16].repeat(4, axis=0)]))


def test_a_rater_who_stands_keeps_the_direction():
    """The rater stops at 2 s having driven to the left: lateral is then along x."""
    stops = np.minimum(TIME_S, 2.0)[:, None] * [0.0, 5.0]
    aside = rater_feedback_score(shifted(stops, 1.2, 0.0), [stops], [8.0], 11.0)
    along = rater_feedback_score(shifted(stops, 0.0, 1.2), [stops], [8.0], 11.0)
    assert (aside.in_trust_region, along.in_trust_region) == (False, True)


def test_what_cannot_be_scored_is_refused():
    with pytest.raises(ValueError, match='0 rated trajectories'):
        rater_feedback_score(BASE, [], [], 10.0)
    with pytest.raises(ValueError, match='1 rated trajectories with 2 labels'):
        rater_feedback_score(BASE, [BASE], [1.0, 2.0], 10.0)
    with pytest.raises(ValueError, match='2 modes need as many probabilities'):
        rater_feedback_score(np.stack([BASE, BASE]), RATERS, LABELS, 10.0)


@given(st.integers(0, 2**32 - 1), st.floats(-3.1, 3.1), st.floats(0, 20))
def test_a_turned_frame_changes_nothing(seed, turn, speed_mps):
    random = np.random.default_rng(seed)
    raters = np.cumsum(random.normal((1.0, 0.0), 0.4, (3, 20, 2)), axis=1)
    plan = raters[0] + random.normal(0, 1, 2)
    rotation = np.array([[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]])
    one = rater_feedback_score(plan, raters, LABELS, speed_mps)
    other = rater_feedback_score(plan @ rotation, raters @ rotation, LABELS, speed_mps)
    assert other.score == pytest.approx(one.score, abs=1e-6)
    assert 0 <= one.score <= 9
