"""Answers of stand-ins whose errors and words are known."""

from dataclasses import replace

import numpy as np
import pytest
from training_data import records

from wamdiff_ros.evaluation.comparison import compare
from wamdiff_ros.evaluation.comparison_text import to_text
from wamdiff_ros.evaluation.held_out import HeldOutError, ask, choose, offsets_m
from wamdiff_ros.planning.answer import parse_description
from wamdiff_ros.training.conversations import format_description
from wamdiff_ros.training.records import ConversationRecord
from wamdiff_ros.training.shards import Shards, ShardWriter
from wamdiff_ros.types import (
    InferenceCounts,
    Plan,
    PlanningResult,
    SceneDescription,
    StageTimings,
)


class StandIn:
    """Plans what the record says, moved by `offset_m`; refuses and mumbles where it is told to."""

    window_frames = 1

    def __init__(self, data, offset_m=(0.0, 0.0), refuse=(), mumble=(), claim=(), calls=None):
        self._next = iter([data[0], *data])  # the first one is asked for twice, to warm up
        self._offset_m = np.array(offset_m)
        self._refuse, self._mumble, self._claim = refuse, mumble, claim
        self._calls = [] if calls is None else calls

    def plan(self, observation):
        self._calls.append(self)
        self._record = next(self._next)
        counts = InferenceCounts(denoising_forwards=9, commit_forwards=3, answer_tokens=96)
        timings = StageTimings((('vision', 1_000_000), ('decode', 2_000_000)))
        waypoints = self._record.waypoints_base_m + self._offset_m
        plan, reason = Plan(observation.t0_ns, observation.ego, waypoints, None), ''
        if self._record.seed in self._refuse:
            plan, reason = None, 'answer refused: empty answer'
        return PlanningResult(observation.t0_ns, plan, reason, '', timings, counts)

    def describe(self, observation):
        record = self._record
        if record.seed in self._claim:
            record = replace(record, objects={**record.objects, 'animal': True}, lateral='fly')
        text = 'Hm.' if record.seed in self._mumble else format_description(record)
        text, sections = parse_description(text)
        said = SceneDescription(observation.t0_ns, 'base_link', text, sections)
        return said, StageTimings()


def judged(data, *planners):
    names = [f'model_{place}' for place in range(len(planners))]
    return compare(names, ask(planners, data), data, ['shards'])


def test_errors_are_split_along_and_across_the_way_of_the_truth():
    truth = np.array([[4.0, 0.0]] * 2 + [[4.0, 4.0 + k] for k in range(6)])
    offset = offsets_m(truth + np.array([1.0, 0.5]), truth)
    assert offset[0] == pytest.approx([1.0, 0.5])
    assert offset[1] == pytest.approx([1.0, 0.5])  # stands: the last direction is kept
    assert offset[2] == pytest.approx([0.5, -1.0])  # goes to the left now


def test_refused_answers_are_counted_and_named_and_not_in_the_means():
    data = records(10)
    comparison = judged(data, StandIn(data, (0.3, 0.4), refuse=(2, 5)))
    (score,) = comparison.checkpoints
    assert (score.parsed, comparison.records, comparison.routes) == (8, 10, 10)
    assert score.parsed_share.value == 0.8
    assert score.refusals == (('answer refused: empty answer', 2),)
    assert score.l2_m.value == pytest.approx(0.5)
    assert [at.value for at in score.l2_at_m] == pytest.approx([0.5] * 8)
    assert score.along_m.value == pytest.approx(0.3)
    assert score.across_m.value == pytest.approx(0.4)
    assert 'model_0: 2 times answer refused: empty answer' in to_text(comparison)


def test_a_checkpoint_without_any_plan_has_no_error_at_all():
    data = records(4)
    comparison = judged(data, StandIn(data), StandIn(data, refuse=range(4)))
    score, difference = comparison.checkpoints[1], comparison.differences[0]
    assert (score.parsed, score.l2_m, score.along_m) == (0, None, None)
    assert (difference.plans, difference.l2_difference_m, difference.l2_ratio) == (0, None, None)
    assert 'model_1' in to_text(comparison)


def test_comparisons_use_the_records_that_both_have_a_plan_for():
    data = records(10)
    first = StandIn(data, (0.5, 0.0), refuse=(1,))
    comparison = judged(data, first, StandIn(data, (0.6, 0.8), refuse=(2, 3)))
    (difference,) = comparison.differences
    assert difference.plans == 7
    assert difference.l2_difference_m.value == pytest.approx(0.5)
    assert difference.l2_ratio.value == pytest.approx(2.0)
    assert difference.forwards_ratio.value == pytest.approx(1.0)


def test_forwards_are_those_of_the_decoder_and_tokens_are_per_second_of_it():
    data = records(3)
    (score,) = judged(data, StandIn(data)).checkpoints
    assert (score.forwards, score.tokens) == (12, 96)
    assert score.tokens_per_s == pytest.approx(96 / 0.002)


def test_an_unreadable_description_says_no_of_everything_and_is_right_about_nothing():
    data = records(10)  # even ones have all objects
    (score,) = judged(data, StandIn(data, mumble=(0, 1))).checkpoints
    assert score.readable.value == 0.8
    assert score.longitudinal.value == score.lateral.value == 0.8
    assert score.objects_f1.value == pytest.approx(2 * 4 / (2 * 4 + 1))


def test_f1_counts_false_alarms_field_by_field():
    data = records(10)
    (score,) = judged(data, StandIn(data, claim=(1, 3))).checkpoints
    fields = {field.name: field for field in score.objects}
    assert fields['animal'].f1.value == pytest.approx(10 / 12)
    assert fields['animal'].support == 5
    assert fields['cyclist'].f1.value == 1.0
    assert score.objects_f1.value == pytest.approx(120 / 122)
    assert (score.longitudinal.value, score.lateral.value) == (1.0, 0.8)


def test_checkpoints_take_turns_record_by_record():
    data, calls = records(3), []
    one, other = StandIn(data, calls=calls), StandIn(data, calls=calls)
    ask([one, other], data)
    assert calls == [one, other, one, other, other, one, one, other]


def test_the_records_are_spread_evenly_over_the_data(tmp_path):
    _write(tmp_path, records(10))
    assert [r.seed for r in choose(Shards(tmp_path), 4)] == [0, 3, 6, 9]
    assert len(choose(Shards(tmp_path), 50)) == 10


def test_converted_conversations_are_refused(tmp_path):
    picture = next(iter(records(1)[0].images.values()))
    _write(tmp_path, [ConversationRecord('<image>What?', 'That.', {'jpg': picture})])
    with pytest.raises(HeldOutError, match='00000000 is a converted conversation'):
        choose(Shards(tmp_path), 1)


def _write(folder, data):
    with ShardWriter(folder / 'shard-000000.tar') as writer:
        for index, record in enumerate(data):
            writer.write(f'{index:08d}', record)


def test_a_checkpoint_may_be_compared_with_itself():
    data = records(2)
    comparison = compare(['runs/a', 'runs/a'], ask([StandIn(data), StandIn(data)], data), data)
    assert comparison.differences[0].l2_difference_m.value == 0.0
    assert 'against runs/a' in to_text(comparison)
