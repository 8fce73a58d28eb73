import csv
import json

import numpy as np
import pytest
from replay_runs import START_NS, STEP_NS, driven, straight, write_bag

from wamdiff_ros.evaluation.columns import COLUMNS
from wamdiff_ros.evaluation.metrics import judge, write
from wamdiff_ros.evaluation.ratings import RatedMoment
from wamdiff_ros.replay.replay_run import read_bag


def judged(folder, ticks, moments=()):
    write_bag(folder, ticks)
    return judge(read_bag(folder), moments)


def test_errors_of_a_drive_are_those_worked_out_by_hand(tmp_path):
    """Plans at 11 m/s of a vehicle that drives at 10, with 4 s to go and 6 s of truth."""
    values = judged(tmp_path / 'bag', straight(61, faster=1.1)).values
    assert values['fde_1s_m'][:51] == pytest.approx([1.0] * 51)
    assert np.isnan(values['fde_1s_m'][51:]).all()
    assert np.isfinite(values['fde_4s_m']).sum() == 21
    assert values['ade_4s_m'][0] == pytest.approx(np.arange(1, 9).mean() * 0.5)
    assert values['longitudinal_3s_m'][0] == pytest.approx(3.0)
    assert values['longitudinal_bias_3s_m'][0] == pytest.approx(3.0)
    assert values['lateral_3s_m'][0] == pytest.approx(0.0)
    assert (values['miss_1s'][0], values['miss_3s'][0]) == (0.0, 1.0)
    assert np.isnan(values['fde_5s_m']).all()  # plans end at 4 s
    assert values['nuscenes_l2_at_3s_m'][0] == pytest.approx(3.0)
    assert values['nuscenes_l2_mean_3s_m'][0] == pytest.approx(1.75)


def test_a_refused_answer_is_a_failure_and_never_dropped_silently(tmp_path):
    whole = judged(tmp_path / 'whole', straight(61)).metrics()
    metrics = judged(tmp_path / 'bag', straight(61, refused=range(0, 61, 10))).metrics()
    assert (metrics.ticks, metrics.plans) == (61, 54)
    assert metrics.metrics['own_plan'].mean == pytest.approx(54 / 61)
    assert metrics.failures == (('no number', 7),)
    # Plans are flawless. Five failures, at 0 … 4 s, have 2 s of truth left, and it moves on.
    assert metrics.metrics['ade_2s_m'].mean == pytest.approx(0.0, abs=1e-9)
    assert metrics.metrics['miss_2s'].mean == pytest.approx(5 / 41)
    assert metrics.metrics['ade_2s_due_m'].mean == pytest.approx(5 / 41 * 12.5)
    assert metrics.metrics['ade_2s_m'].count == 36
    assert metrics.metrics['ade_2s_due_m'].count == whole.metrics['ade_2s_due_m'].count == 41
    assert metrics.metrics['comfort'].mean == pytest.approx(54 / 61)
    assert metrics.metrics['waiting'].mean == pytest.approx(7 / 61)


def test_reasons_that_differ_in_numbers_are_one(tmp_path):
    ticks = straight(61, refused=(3, 4, 5))
    for number, reason in ((3, '7.5 m/s^2 at -0.1 s'), (4, '1e+20 m/s^2 at 4 s'), (5, '')):
        ticks[number]['reason'] = reason
    failures = judged(tmp_path / 'bag', ticks).metrics().failures
    assert failures == (('… m/s^2 at … s', 2), ('no reason given', 1))


def test_a_bag_without_any_plan_has_failures_only(tmp_path):
    metrics = judged(tmp_path / 'bag', straight(61, refused=range(61))).metrics()
    assert metrics.metrics['own_plan'].mean == 0.0
    assert metrics.metrics['miss_3s'].mean == 1.0
    assert metrics.metrics['comfort'].mean == 0.0
    assert 'ade_3s_m' not in metrics.metrics
    assert metrics.metrics['ade_3s_due_m'].mean > 10.0
    assert metrics.age_ms is None


def test_what_cannot_be_judged_says_why(tmp_path):
    skipped = judged(tmp_path / 'bag', straight(61)).skipped
    assert 'no boxes of others' in skipped['nuscenes_collision']
    assert 'no rated trajectories' in skipped['rater_feedback']
    assert 'no simulator' in skipped['pdms']


@pytest.mark.parametrize(
    'change',
    [
        {'bodies': 7}, {'bodies': [{'x_m': 1.0}]}, {'seed': 'x'}, {'seed': -1}, {'s_m': None},
        {'lights': []}, {'bodies': [{'x_m': 0, 'y_m': 0, 'heading_rad': 0, 'size_m': 3}]},
    ],
)  # fmt: skip
def test_ground_truth_that_is_none_is_not_used_and_the_rest_is_judged(tmp_path, change):
    ticks = driven(7, 50)  # with a traffic light
    for tick in ticks:
        tick['world'] = {**tick['world'], **change}
    found = judged(tmp_path / 'bag', ticks)
    assert 'pdms' not in found.values
    assert 'ground truth cannot be used' in found.skipped['pdms']
    assert np.isfinite(found.values['ade_1s_m']).any()


def test_plans_that_jump_to_and_fro_shift_and_are_not_alike(tmp_path):
    ticks = straight(61)
    for number, tick in enumerate(straight(61, left_m=2.0)):
        if number % 2:
            ticks[number] = tick
    calm = judged(tmp_path / 'calm', straight(61)).metrics().metrics
    restless = judged(tmp_path / 'restless', ticks).metrics().metrics
    assert calm['shift_m'].mean == pytest.approx(0.0, abs=1e-6)
    assert calm['extended_comfort'].mean == 1.0
    assert restless['shift_max_m'].mean == pytest.approx(2.0, abs=0.1)
    assert restless['extended_comfort'].mean < calm['extended_comfort'].mean


def test_comfort_after_what_was_driven_notices_a_plan_that_begins_with_a_jerk(tmp_path):
    """The vehicle brakes at 3.9 m/s2, the plan goes on at its speed: each alone is comfortable."""
    ticks = straight(61)
    for number, tick in enumerate(ticks):
        speed = 40.0 - 0.39 * number
        tick['ego'] |= {'speed_mps': speed, 'velocity_base_mps': [speed, 0.0]}
        tick['trajectory']['speed_mps'] = [speed] * 41
    values = judged(tmp_path / 'bag', ticks).values
    assert (values['comfort'] == 1.0).all()
    assert np.isnan(values['history_comfort'][:15]).all()
    assert (values['history_comfort'][15:] == 0.0).all()


def test_rated_moments_are_scored_and_failures_among_them_get_nothing(tmp_path):
    path = np.stack([10 * np.arange(1, 21) * 0.25, np.zeros(20)], axis=1)
    short = path[:16]  # as far as the plans go
    moments = [
        RatedMoment(START_NS + 10 * STEP_NS, (short,), (9.0,)),
        RatedMoment(START_NS + 20 * STEP_NS, (path,), (9.0,)),
        RatedMoment(START_NS + 30 * STEP_NS, (path,), (9.0,)),
        RatedMoment(START_NS + 500 * STEP_NS, (path,), (9.0,)),  # of no tick
    ]
    values = judged(tmp_path / 'bag', straight(61, refused=(30,)), moments).values
    score = values['rater_feedback']
    assert np.isfinite(score).sum() == 3
    assert score[10] == pytest.approx(9.0)
    assert 4.0 <= score[20] < 9.0  # plans of 4 s stand still at 5 s
    assert score[30] == values['in_trust_region'][30] == 0.0


def test_the_experts_plans_get_full_marks_in_its_own_world(tmp_path):
    metrics = judged(tmp_path / 'bag', driven(28, 120)).metrics().metrics
    for name in ('no_collision', 'on_road', 'direction', 'lights', 'lane_keeping'):
        assert metrics[name].mean == 1.0, name
    assert (
        metrics['pdms'].count == 81
    )  # 4 s of ground truth are needed after t0, give or take 0.1 s
    assert metrics['pdms'].mean > 0.85
    assert metrics['epdms'].mean > 0.7
    assert metrics['nuscenes_collision_at_3s'].mean == 0.0


def test_the_worst_ticks_are_apart_in_time(tmp_path):
    ticks = straight(100)
    for number in (20, 21, 22, 60):
        ticks[number] = straight(100, faster=1 + number / 100)[number]
    found = judged(tmp_path / 'bag', ticks)
    assert found.worst(2) == [60, 22]
    assert found.worst(100) == [60, 22, 0]  # the rest is nearer than 2 s, or without truth


def test_files_repeat_byte_for_byte_and_hold_every_tick(tmp_path):
    ticks = straight(61, faster=1.03, refused=(5,))
    for name in ('one', 'other'):
        write(judged(tmp_path / name, ticks), tmp_path / name)
    for file in ('metrics.json', 'metrics.csv'):
        one, other = ((tmp_path / name / file).read_bytes() for name in ('one', 'other'))
        assert one.replace(b'"one"', b'"other"') == other
    content = json.loads((tmp_path / 'one' / 'metrics.json').read_text())
    assert (content['format'], content['ticks'], content['plans']) == ('wamdiff-metrics', 61, 60)
    with (tmp_path / 'one' / 'metrics.csv').open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 61
    assert rows[0]['fde_1s_m'] == '0.3'
    assert (rows[5]['status'], rows[5]['fde_1s_m'], rows[5]['miss_1s']) == ('WAITING', '', '1')


def test_every_column_that_a_drive_has_is_declared(tmp_path):
    names = {column.name for column in COLUMNS}
    assert set(judged(tmp_path / 'bag', driven(28, 60)).values) <= names
