"""The node in operation, as a process of its own over real DDS."""

import re
import time
from itertools import pairwise

import numpy as np
import pytest
from planner_bench import SPEED_MPS, duration_s, stamp_ns
from wamdiff_ros.msg import NavigationCommand, PlannedTrajectory, PlannerStatus

pytestmark = pytest.mark.ros

PERIOD_NS = 100_000_000
NOMINAL, HELD = PlannerStatus.NOMINAL, PlannerStatus.HELD
WAITING, STOP = PlannerStatus.WAITING, PlannerStatus.FALLBACK_STOP


def test_all_topics_have_their_names_and_types(planning):
    bench, _ = planning
    topics = dict(bench.node.get_topic_names_and_types())
    assert {name: topics[name] for name in topics if name.startswith('/planner/')} == {
        '/planner/trajectory': ['wamdiff_ros/msg/PlannedTrajectory'],
        '/planner/candidates': ['wamdiff_ros/msg/CandidateTrajectories'],
        '/planner/status': ['wamdiff_ros/msg/PlannerStatus'],
        '/planner/scene_description': ['wamdiff_ros/msg/SceneDescription'],
        '/planner/path': ['nav_msgs/msg/Path'],
        '/planner/markers': ['visualization_msgs/msg/MarkerArray'],
        '/planner/transition_event': ['lifecycle_msgs/msg/TransitionEvent'],
    }


def test_every_tick_is_published_once_on_the_grid(planning):
    bench, _ = planning
    start = len(bench.heard['status'])
    bench.wait(lambda: len(bench.heard['status']) >= start + 20, 'twenty ticks')
    ticks = bench.heard['status'][start:]
    for before, after in pairwise(ticks):
        assert after.tick == before.tick + 1
        assert stamp_ns(after) > stamp_ns(before)
    assert all(stamp_ns(message) % PERIOD_NS == 0 for message in ticks)


def test_trajectory_is_stamped_with_the_time_of_its_frame(planning):
    bench, _ = planning
    start = len(bench.heard['trajectory'])

    def plans():
        return [m for m in bench.heard['trajectory'][start:] if m.status != STOP - 1]

    bench.wait(lambda: len(plans()) >= 5, 'five plans')
    for message in plans():
        assert stamp_ns(message) in bench.frame_stamps_ns
        assert 0 < duration_s(message.age) <= 1.0
        assert message.header.frame_id == 'odom'


def test_trajectory_starts_at_the_vehicle_and_keeps_exact_times(planning):
    bench, _ = planning
    start = len(bench.heard['trajectory'])
    message = bench.wait(lambda: bench.heard['trajectory'][start:], 'a trajectory')[-1]
    first = message.points[0]
    t0_ns = stamp_ns(message)
    assert first.pose.position.x == pytest.approx(bench.position_m(t0_ns), abs=1e-3)
    assert first.speed_mps == pytest.approx(SPEED_MPS)
    times_ns = [p.time_from_start.sec * 10**9 + p.time_from_start.nanosec for p in message.points]
    assert times_ns == [i * PERIOD_NS for i in range(41)]


def test_path_and_markers_show_the_published_trajectory(planning):
    bench, _ = planning
    trajectory = bench.wait(lambda: bench.heard['trajectory'][-1:], 'a trajectory')[0]
    path = bench.wait(
        lambda: [m for m in bench.heard['path'] if m.header == trajectory.header], 'its path'
    )[0]
    assert [p.pose for p in path.poses] == [p.pose for p in trajectory.points]
    start = len(bench.heard['markers'])
    markers = bench.wait(lambda: bench.heard['markers'][start:], 'markers')[0].markers
    of = {(marker.ns, marker.id): marker for marker in markers}
    assert len(of['ribbon', 0].points) == 40 * 6
    assert len(of['horizon', 0].points) == 4 * 2
    assert of['words', 0].text.startswith('NOMINAL')


def test_the_words_beside_the_markers_hold_the_newest_description(planning):
    bench, _ = planning
    start = len(bench.heard['markers'])
    bench.wait(
        lambda: [
            marker.text
            for array in bench.heard['markers'][start:]
            for marker in array.markers
            if marker.ns == 'words' and marker.text.endswith('\na road, 64 by 48')
        ],
        'words with the description',
    )


def test_scene_is_described_once_a_period_with_its_own_t0(planning):
    bench, _ = planning
    start = len(bench.heard['description'])
    bench.wait(lambda: len(bench.heard['description']) >= start + 3, 'three descriptions')
    messages = bench.heard['description'][start:]
    for message in messages:
        assert message.text == 'a road, 64 by 48'
        assert stamp_ns(message) in bench.frame_stamps_ns
        assert message.header.frame_id == 'base_link'
    gaps_s = np.diff([stamp_ns(message) for message in messages]) / 1e9
    assert (gaps_s > 0.7).all()


def test_status_tells_stages_counts_and_backend(planning):
    bench, _ = planning
    status = bench.next_status(
        lambda m: [s.name for s in m.stages] == ['image_decode', 'decode', 'describe'],
        'a tick with a description',
    )
    assert status.backend == 'fake cpu'
    assert status.model == 'fake'
    assert (status.denoising_forwards, status.answer_tokens) == (3, 16)
    assert status.answer.startswith('straight')
    assert duration_s(status.deadline_slack) > -1.0


def test_diagnostics_tell_rates_ages_and_latencies(planning):
    bench, _ = planning
    values = bench.values_while_planning()
    assert values['state'] == 'active'
    assert 1 < float(values['front.rate_hz']) < 20
    assert 0 <= float(values['front.age_s']) < 1
    assert values['backend'] == 'fake cpu'
    assert values['latency'].startswith('p50 ')
    assert int(values['front.received']) > 0
    assert 'front.missing' in values
    assert 'acceleration.age_s' not in values  # none is used
    assert float(values['memory_mib']) > 10
    assert int(values['threads']) > 1
    assert int(values['open_files']) > 3


def test_plan_is_held_then_braked_when_the_camera_stops_and_planned_when_it_is_back(planning):
    bench, _ = planning
    start = len(bench.heard['status'])
    bench.camera_on = False
    bench.next_status(
        lambda m: m.state == HELD and 'no frame of camera front since the last plan' in m.reason,
        'held',
    )
    stop = bench.next_status(lambda m: m.state == STOP, 'fallback')
    assert 'limit 1.000 s' in stop.reason
    bench.next_diagnosis(
        lambda d: d.level == d.ERROR and 'FALLBACK_STOP' in d.message, 'the stop as an error'
    )
    message = bench.trajectory_of(stop)
    assert message.status == PlannedTrajectory.FALLBACK_STOP
    assert message.points[-1].speed_mps == 0.0
    bench.camera_on = True
    bench.next_status(lambda m: m.state == NOMINAL, 'planning again')
    states = [message.state for message in bench.heard['status'][start:]]
    changes = [states[0]] + [b for a, b in pairwise(states) if a != b]
    # A tick just before a frame holds the plan once more, on either side of the outage.
    assert changes.count(STOP) == 1
    assert WAITING not in changes
    ages_s = [duration_s(m.age) for m in bench.heard['trajectory'] if m.status == HELD - 1]
    assert max(ages_s) <= 1.0


def test_stop_begins_at_the_vehicle_also_when_odometrys_clock_is_a_little_ahead(planning):
    bench, _ = planning
    bench.odometry_ahead_ns = 30_000_000
    bench.camera_on = False
    stop = bench.next_status(lambda m: m.state == STOP, 'fallback')
    bench.next_status(lambda m: m.tick >= stop.tick + 10, 'ten more stops')
    bench.odometry_ahead_ns = 0
    stops = [m for m in bench.heard['trajectory'] if m.sequence > stop.tick]
    assert {m.status for m in stops} == {PlannedTrajectory.FALLBACK_STOP}
    at_vehicle = [m for m in stops if stamp_ns(m) in bench.odometry_stamps_ns]
    # The others begin where the plan ran out: the odometry of a busy machine was late.
    assert len(at_vehicle) > len(stops) / 2
    assert all(0 <= duration_s(m.age) <= 0.2 for m in at_vehicle)


def test_slow_inference_holds_the_plan_and_publishing_keeps_the_rate(planning):
    bench, planner = planning
    planner.steer(plan_s=0.25)
    bench.next_status(lambda m: 'still busy' in m.reason, 'a busy tick')
    start = len(bench.heard['status'])
    bench.wait(lambda: len(bench.heard['status']) >= start + 15, 'fifteen ticks')
    ticks = bench.heard['status'][start:]
    assert [m.tick for m in ticks] == list(range(ticks[0].tick, ticks[0].tick + len(ticks)))
    assert np.median(np.diff([stamp_ns(m) for m in ticks])) == PERIOD_NS
    # On a busy machine a tick may be so late that its plan is there, or have had no plan for long.
    assert sum(m.state == HELD for m in ticks) >= 0.7 * len(ticks)
    assert ticks[-1].skipped_ticks > ticks[0].skipped_ticks
    assert ticks[-1].missed_deadlines > ticks[0].missed_deadlines
    assert min(duration_s(m.deadline_slack) for m in ticks) <= 0
    held = [
        m
        for m in bench.heard['trajectory']
        if m.sequence >= ticks[0].tick and m.status == PlannedTrajectory.HELD
    ]
    grew = [
        b.age.nanosec != a.age.nanosec for a, b in pairwise(held) if stamp_ns(a) == stamp_ns(b)
    ]
    assert len(grew) > 5
    assert all(grew)
    bench.next_diagnosis(
        lambda d: d.level != d.OK and 'is still busy with an earlier tick' in d.message, 'it told'
    )


def test_exception_in_inference_is_a_failed_tick_and_not_the_end(planning):
    bench, planner = planning
    planner.steer(plan_error='the network has a cold')
    status = bench.next_status(lambda m: 'cold' in m.reason, 'the failure')
    assert 'inference failed: RuntimeError: the network has a cold' in status.reason
    bench.wait(lambda: 'RuntimeError: the network has a cold' in planner.output(), 'its log')
    planner.steer()
    bench.next_status(lambda m: m.state == NOMINAL, 'recovery')


def test_description_that_fails_waits_its_turn_again(planning):
    """Each failure clears the KV cache, which must not happen at every tick."""
    bench, planner = planning
    planner.steer(describe_error='lost for words')
    counted = []
    for _ in range(3):
        values = bench.diagnostic_values(bench.next_diagnosis(lambda d: True, 'the counters'))
        counted.append((time.monotonic(), int(values['failed_inferences'])))
    (start_s, before), (end_s, after) = counted[0], counted[-1]
    assert before < after <= before + (end_s - start_s) + 2
    planner.steer()
    told = len(bench.heard['description'])
    bench.wait(lambda: len(bench.heard['description']) > told, 'words again')


def test_answer_without_a_trajectory_is_counted_and_its_reason_shown(planning):
    bench, planner = planning
    before = bench.heard['status'][-1].rejected_answers
    planner.steer(refusal='seven numbers, wanted sixteen')
    status = bench.next_status(lambda m: 'seven numbers' in m.reason, 'the rejection')
    assert status.rejected_answers > before
    planner.steer()


def answer(**wrong):
    """The answer of a straight drive at the bench's speed, with numbers replaced: n4=17.5."""
    numbers = [x for i in range(1, 9) for x in (SPEED_MPS * i / 2, 0.0)]
    for name, value in wrong.items():
        numbers[int(name[1:])] = value
    return ','.join(f'{number:.1f}' for number in numbers)


@pytest.mark.parametrize(
    ('wrong', 'check'),
    [
        ({'n4': 17.5}, 'acceleration'),  # the tens digit of the third waypoint
        ({'n8': 90.0}, 'speed'),
        ({'n7': 1.0}, 'lateral acceleration'),
        ({'n4': 6.9, 'n6': 8.1, 'n8': 8.5, 'n10': 8.2, 'n12': 7.4, 'n14': 6.6}, 'fold back'),
    ],
)
def test_corrupted_answer_holds_the_plan_and_is_named_in_diagnostics(planning, wrong, check):
    bench, planner = planning
    before = bench.heard['status'][-1].rejected_plans
    planner.steer(answer=answer(**wrong))
    held = bench.next_status(lambda m: 'plan rejected' in m.reason and m.state == HELD, 'HELD')
    assert held.reason.startswith(f'plan rejected: {check} ')
    assert held.rejected_plans > before
    trajectory = bench.trajectory_of(held)
    assert trajectory.status == PlannedTrajectory.HELD
    assert max(p.speed_mps for p in trajectory.points) == pytest.approx(SPEED_MPS, abs=0.01)
    bench.next_status(
        lambda m: m.state == STOP and f'plan rejected: {check} ' in m.reason, 'the fallback'
    )
    diagnosis = bench.next_diagnosis(lambda d: f'{check} ' in d.message, 'the diagnosis')
    values = {entry.key: entry.value for entry in diagnosis.values}
    assert int(values['rejected_plans']) > before
    assert re.search(rf'\b{check} \d+', values['rejected_plans_by_check'])
    assert values['last_rejected_plan'].startswith(f'plan rejected: {check} ')
    planner.steer(answer=answer())
    bench.next_status(lambda m: m.state == NOMINAL, 'recovery')
    planner.steer()


def test_reset_drops_the_plan_and_tells_why(planning):
    bench, planner = planning
    before = bench.heard['status'][-1].stream_resets
    planner.steer(refusal='not yet')
    response = bench.reset()
    assert response.success
    status = bench.next_status(lambda m: m.state == WAITING, 'waiting')
    assert 'stream reset: ~/reset was called' in status.reason
    assert status.stream_resets == before + 1
    assert status.t0.sec == 0
    deleted = [m for array in bench.heard['markers'] for m in array.markers if m.action == 3]
    assert deleted
    planner.steer()
    status = bench.next_status(lambda m: m.state == NOMINAL, 'planning again')
    assert int(status.answer.split()[1]) >= 1  # the KV cache was reset as well


def test_resets_in_quick_succession_do_not_silence_the_status(planning):
    bench, _ = planning
    start = len(bench.heard['status'])
    bench.wait(
        lambda: bench.reset() and len(bench.heard['status']) >= start + 10, 'ticks between resets'
    )
    ticks = bench.heard['status'][start:]
    assert [m.tick for m in ticks] == list(range(ticks[0].tick, ticks[0].tick + len(ticks)))
    assert all('stream reset' in m.reason for m in ticks if m.state == WAITING)


def test_disabled_planner_publishes_nothing_but_its_status(planning):
    bench, _ = planning
    assert bench.enable(False).success
    disabled = bench.next_status(lambda m: m.state == WAITING and 'disabled' in m.reason, 'so')
    bench.next_diagnosis(lambda d: d.level == d.WARN and 'disabled' in d.message, 'the warning')
    bench.next_status(lambda m: m.tick >= disabled.tick + 3, 'three more ticks')
    assert max(m.sequence for m in bench.heard['trajectory']) < disabled.tick
    assert bench.enable(True).success
    bench.next_status(lambda m: m.state == NOMINAL, 'planning again')


def test_latched_command_reaches_the_model_and_an_unknown_one_does_not(planning):
    bench, planner = planning
    bench.send_command(NavigationCommand.LEFT)
    bench.next_status(lambda m: m.answer.startswith('left'), 'the command')
    bench.send_command(7)
    bench.wait(
        lambda: (
            "command 7 is none of 0 straight, 1 left, 2 right; staying with 'left'"
            in planner.output()
        ),
        'the complaint',
    )
    bench.next_status(lambda m: m.answer.startswith('left'), 'the command kept')
    bench.send_command(NavigationCommand.STRAIGHT)
    bench.next_status(lambda m: m.answer.startswith('straight'), 'the next command')


def test_command_that_is_not_latched_is_an_error_that_names_topic_and_policy(planning):
    bench, _ = planning
    publisher = bench.node.create_publisher(NavigationCommand, 'navigation_command', 1)
    diagnosis = bench.next_diagnosis(lambda d: 'QoS' in d.message, 'the complaint')
    assert diagnosis.level == diagnosis.ERROR
    assert '/navigation_command: node bench publishes with incompatible QoS' in diagnosis.message
    assert 'Volatile' in diagnosis.message
    bench.node.destroy_publisher(publisher)
    bench.next_diagnosis(lambda d: 'QoS' not in d.message, 'good again')


def test_unknown_encoding_is_one_error_that_names_topic_and_encoding(planning):
    bench, planner = planning
    bench.encoding = 'rgb13'
    diagnosis = bench.next_diagnosis(lambda d: 'rgb13' in d.message, 'the complaint')
    assert "/camera/front/image: encoding 'rgb13' is not supported" in diagnosis.message
    assert planner.output().count('rgb13') == 1
    values = bench.diagnostic_values(diagnosis)
    assert int(values['complaints.camera/front/image.encoding']) >= 1
    bench.encoding = 'rgb8'
    bench.next_status(lambda m: m.state == NOMINAL, 'planning again')


def test_frame_without_a_stamp_is_refused(planning):
    bench, planner = planning
    heard, start = bench.heard['diagnostics'], len(bench.heard['diagnostics'])
    bench.publish_frame(0)
    bench.wait(lambda: 'header.stamp is zero' in planner.output(), 'the complaint')
    diagnosis = bench.wait(
        lambda: next(
            (m.status[0] for m in heard[start:] if 'header.stamp is zero' in m.status[0].message),
            None,
        ),
        'the complaint in diagnostics',
    )
    # No error while there are plans, which a busy machine may not have.
    assert diagnosis.level == diagnosis.WARN or 'FALLBACK_STOP' in diagnosis.message
    bench.next_diagnosis(lambda d: 'header.stamp is zero' not in d.message, 'the end of it')


def test_camera_that_changes_its_size_resets_the_stream(planning):
    bench, planner = planning
    before = bench.heard['status'][-1].stream_resets
    bench.frame_size = (80, 48)
    status = bench.next_status(lambda m: m.stream_resets > before, 'the reset')
    assert status.stream_resets == before + 1  # one, though many frames follow
    assert 'stream reset: camera front changed from 64x48 to 80x48' in planner.output()


@pytest.mark.parametrize(
    ('offset_s', 'complaint'),
    [(60.5, 'header.stamp is 60.'), (-60.5, 's behind the clock; check')],
)
def test_stamps_of_another_clock_are_refused_named_and_counted_and_planning_goes_on(
    planning, offset_s, complaint
):
    bench, planner = planning
    inputs = {'camera/front/image': 'stamp', 'odometry': 'value'}
    before = refusals(bench, inputs)

    def refused():
        stamp_ns = bench.now_ns() + round(offset_s * 1e9)
        bench.publish_frame(stamp_ns)
        bench.publish_odometry(stamp_ns)
        lines = planner.output().splitlines()
        return all(
            any(f'/{topic}: header.stamp is 60.' in line and complaint in line for line in lines)
            for topic in inputs
        )

    bench.wait(refused, 'the complaints')
    after = refusals(bench, inputs)
    assert all(after[topic] > before[topic] for topic in inputs)
    bench.next_status(lambda m: m.state == NOMINAL, 'planning goes on')


def refusals(bench, inputs):
    """Return how many messages of each topic were dropped unread, by the next diagnosis."""
    values = bench.diagnostic_values(bench.next_diagnosis(lambda d: True, 'counters'))
    return {
        topic: int(values.get(f'complaints.{topic}.{kind}', 0)) for topic, kind in inputs.items()
    }


def test_odometry_of_another_vehicle_frame_resets_the_stream(planning):
    bench, planner = planning
    before = bench.heard['status'][-1].stream_resets
    bench.base_frame = 'base_footprint'
    status = bench.next_status(
        lambda m: m.state == NOMINAL and m.stream_resets > before, 'planning again'
    )
    assert status.stream_resets == before + 1
    assert status.header.frame_id == 'base_footprint'
    assert "odometry changed from 'base_link' in 'odom' to 'base_foot" in planner.output()
    bench.base_frame = 'base_link'
    bench.next_status(lambda m: m.stream_resets > before + 1, 'the way back')
