"""What a recording comes to: the node's decisions, by header stamps, whatever the recorder did."""

import json
import random
from collections import Counter

import bag_forms
import numpy as np
import pytest
from recording import START_NS, header, image, message, odometry, time, write
from replaying import (
    CAMERA,
    COMMAND,
    ODOMETRY,
    SECOND_NS,
    SPEED_MPS,
    YAW_RATE_RADPS,
    FakeSession,
    command,
    drive,
    drive_bag,
    motion,
    settings,
)

from wamdiff_ros.observation import messages
from wamdiff_ros.observation.not_ready import NotReady
from wamdiff_ros.observation.synchronizer import Synchronizer
from wamdiff_ros.parameters import Parameters
from wamdiff_ros.planning.publication import PublicationPolicy
from wamdiff_ros.recordings.bag import BagError, read_messages
from wamdiff_ros.replay.bag_replay import replay_bag
from wamdiff_ros.types import Command


def replay(bag, folder, session=None, **options):
    """Return (bag.json, the lines of ticks.jsonl)."""
    chosen = settings(**options)
    info = replay_bag(session or FakeSession(chosen.parameters), chosen, bag, folder)
    return info, [json.loads(line) for line in (folder / 'ticks.jsonl').read_text().splitlines()]


def of_entries(entries, tmp_path, name='bag', **options):
    bag = write(tmp_path / name, entries)
    return replay(bag, tmp_path / f'{name}_replay', **options)


def statuses(ticks):
    return Counter(tick['status'] for tick in ticks)


def test_what_is_published_is_what_the_parts_of_the_node_decide(tmp_path):
    """The plain way: at each instant, everything so far into fresh buffers."""
    entries = [e for e in drive(4.0) if not (e[0] == CAMERA and 1.0 < since(e) < 2.6)]
    entries.append((COMMAND, START_NS, command(START_NS + 10**9 // 2, 1)))
    info, ticks = of_entries(entries, tmp_path)
    parameters = Parameters.from_mapping({})
    session, policy = FakeSession(parameters), PublicationPolicy(parameters)
    camera, last_ns = parameters.camera_settings[0], 0
    starved_reset = False
    for number, tick in enumerate(ticks):
        grid_ns = START_NS + (number + 1) * 100_000_000
        buffers = Synchronizer(parameters)
        fill(buffers, entries, camera, grid_ns)
        try:
            observation = buffers.observe(grid_ns)
            reason = ''
        except NotReady as not_ready:
            observation, reason = None, not_ready.reason
        if observation is not None and observation.t0_ns <= last_ns:
            observation, reason = None, 'no frame of camera front since the last plan'
        if observation is None:
            policy.reject(reason, number)
        else:
            if observation.t0_ns - last_ns > SECOND_NS and last_ns:
                session.reset()  # a gap in the stream
                starved_reset = True
            last_ns = observation.t0_ns
            result = session.plan(observation)
            assert tick['answer'] == result.answer
            policy.accept(result.plan, number)
        now_ns = grid_ns + 80_000_000
        fill(buffers, entries, camera, now_ns)
        decided = policy.decide(number, now_ns, buffers.ego.newest_before(now_ns), '')
        assert (tick['grid_ns'], tick['status']) == (grid_ns, decided.status.name)
        assert tick['reason'] == decided.reason
        assert tick['t0_ns'] == decided.plan.t0_ns
        assert tick['age_ns'] == decided.age_ns
        path = decided.plan.trajectory
        np.testing.assert_allclose(tick['trajectory']['x_base_m'], path.xy_base_m[:, 0], atol=1e-6)
        np.testing.assert_allclose(tick['trajectory']['speed_mps'], path.speed_mps, atol=1e-6)
        expected = Command.LEFT if grid_ns >= START_NS + SECOND_NS // 2 else Command.STRAIGHT
        assert tick['command'] == expected.value
    assert len(ticks) == 40
    assert starved_reset
    assert statuses(ticks).keys() == {'NOMINAL', 'HELD', 'FALLBACK_STOP'}
    assert info['ticks'] == dict(statuses(ticks))
    assert info['counters']['stream_resets'] == 1


def since(entry):
    return (entry[1] - START_NS) / 1e9


def fill(buffers, entries, camera, until_ns):
    stamped = [(e.header.stamp.sec * 10**9 + e.header.stamp.nanosec, t, e) for t, _, e in entries]
    for stamp_ns, topic, entry in sorted(stamped, key=lambda s: s[0]):
        if stamp_ns > until_ns:
            return
        if topic == CAMERA:
            buffers.frames['front'].add(messages.encoded_compressed(entry, camera))
        elif topic == ODOMETRY:
            buffers.ego.add(messages.ego_state(entry))
        else:
            buffers.command = messages.command(entry)


def test_stamps_count_and_the_time_and_order_of_arrival_do_not(tmp_path):
    entries = drive()
    _, expected = of_entries(entries, tmp_path, 'ordered')
    shuffled = random.Random(1)
    late = [(topic, ns + shuffled.randrange(300_000_000), m) for topic, ns, m in entries]
    _, ticks = of_entries(late, tmp_path, 'late')
    assert ticks == expected


def test_a_recording_on_another_clock_than_the_bags_gives_the_same(tmp_path):
    _, expected = of_entries(drive(), tmp_path, 'system')
    simulated = [(topic, 2 * ns + 10**18, m) for topic, ns, m in drive()]
    _, ticks = of_entries(simulated, tmp_path, 'simulated')
    assert ticks == expected


def test_a_clock_in_the_bag_is_ignored(tmp_path):
    _, expected = of_entries(drive(), tmp_path, 'without')
    clock = [
        ('/clock', START_NS + i, message('rosgraph_msgs/msg/Clock', clock=time(i * 10**11)))
        for i in range(50)
    ]
    _, ticks = of_entries([*drive(), *clock], tmp_path, 'with')
    assert ticks == expected


def test_start_and_duration_count_from_the_first_picture(tmp_path):
    bag = drive_bag(tmp_path / 'bag', 4.0)
    _, all_of_it = replay(bag, tmp_path / 'all')
    info, ticks = replay(bag, tmp_path / 'part', start_s=1.005, duration_s=2.0)
    assert [tick['grid_ns'] for tick in ticks] == [
        START_NS + i * 100_000_000 for i in range(11, 32)
    ]
    assert (info['start_ns'], info['end_ns']) == (START_NS + 1045 * 10**6, START_NS + 3045 * 10**6)
    # What came before is known, as to a node that has just been activated.
    key = 'trajectory'
    assert [tick[key] for tick in ticks] == [tick[key] for tick in all_of_it[10:31]]
    with pytest.raises(BagError, match=r'lasts 4\.0 s, so --start 5 is beyond'):
        replay(bag, tmp_path / 'beyond', start_s=5.0)


def test_refused_answers_and_failing_inferences_are_ticks_too(tmp_path):
    bag = drive_bag(tmp_path / 'bag')
    session = FakeSession(Parameters.from_mapping({}), refuse=(5,), fail=(10,))
    info, ticks = replay(bag, tmp_path / 'replay', session)
    assert statuses(ticks) == {'NOMINAL': 28, 'HELD': 2}
    assert ticks[5]['reason'] == 'answer refused: as asked'
    assert ticks[5]['t0_ns'] == ticks[4]['t0_ns'] < ticks[5]['inferred_t0_ns']
    assert ticks[10]['reason'] == 'inference failed: RuntimeError: out of luck'
    assert ticks[10]['answer'] is ticks[10]['counts'] is None
    assert ticks[11]['answer'].endswith('straight 1')  # the cache was cleared
    assert info['counters']['failed_inferences'] == info['counters']['rejected_answers'] == 1
    assert any('out of luck' in note for note in info['notes'])


def test_odometry_that_does_not_go_on_clears_the_stream(tmp_path):
    entries = drive()
    for i, (topic, ns, entry) in enumerate(entries):
        if topic == ODOMETRY and ns >= START_NS + 2 * SECOND_NS:
            entry.pose.pose.position.x += 100.0
            entries[i] = (topic, ns, entry)
    info, ticks = of_entries(entries, tmp_path)
    assert info['counters']['stream_resets'] == 1
    [waiting] = [tick for tick in ticks if tick['status'] == 'WAITING']
    assert 'stream reset: odometry jumped by' in waiting['reason']
    # No ground truth is interpolated across the jump either.
    before, after = ticks[waiting['tick'] - 2], ticks[waiting['tick'] + 1]
    assert before['truth_base_m'] == [None] * 10
    assert after['truth_base_m'][0] is not None


def test_ground_truth_is_the_later_odometry_seen_from_the_plans_start(tmp_path):
    _, ticks = of_entries(drive(6.0), tmp_path)
    for tick in ticks:
        for i, row in enumerate(tick['truth_base_m']):
            after_s = 0.5 * (i + 1)
            known = (tick['t0_ns'] - START_NS) / 1e9 + after_s <= 6.0
            assert (row is not None) == known
            if known:
                yaw, radius = YAW_RATE_RADPS * after_s, SPEED_MPS / YAW_RATE_RADPS
                circle = [radius * np.sin(yaw), radius * (1 - np.cos(yaw)), yaw]
                assert row == pytest.approx(circle, abs=2e-3)


def test_ground_truth_has_no_value_in_a_gap_of_the_odometry(tmp_path):
    entries = [e for e in drive(4.0) if not (e[0] == ODOMETRY and 2.0 < since(e) < 2.5)]
    _, ticks = of_entries(entries, tmp_path)
    [tick] = [t for t in ticks if t['grid_ns'] == START_NS + SECOND_NS]
    # t0 is 10 ms before the instant, and 1.5 s later is in the gap.
    assert [row is None for row in tick['truth_base_m'][:5]] == [False, False, True, False, False]


def test_descriptions_come_as_often_as_in_the_node(tmp_path):
    _, ticks = of_entries(drive(), tmp_path)
    described = [tick for tick in ticks if tick['description']]
    assert [tick['tick'] for tick in described] == [0, 10, 20]
    assert described[1]['description'] == {
        't0_ns': described[1]['t0_ns'], 'text': 'after 11 plans', 'sections': [['road', 'dry']],
        'truncated': False,
    }  # fmt: skip


def test_a_description_that_fails_waits_its_turn_again(tmp_path):
    """Each failure clears the KV cache, which must not happen at every tick."""
    entries, session = drive(), FakeSession(Parameters.from_mapping({}), speechless=True)
    info, ticks = replay(write(tmp_path / 'bag', entries), tmp_path / 'replay', session)
    assert info['counters']['failed_inferences'] == 3
    assert statuses(ticks) == {'NOMINAL': len(ticks)}


# -- stamps and messages that are none ----------------------------------------------------------


@pytest.mark.parametrize(
    ('topic', 'places', 'ahead_s'),
    [
        (CAMERA, (20,), 3600), (CAMERA, (0,), -3600), (CAMERA, (20, 21, 22), -3600),
        (ODOMETRY, (-1,), 3600), (ODOMETRY, (20,), -3600), (ODOMETRY, (0,), 3600),
    ],
)  # fmt: skip
def test_stamps_of_another_time_are_left_out_and_noted(topic, places, ahead_s, tmp_path):
    entries = drive()
    at = [i for i, entry in enumerate(entries) if entry[0] == topic]
    for place in places:
        _, ns, _ = entries[at[place]]
        stray_ns = ns + ahead_s * SECOND_NS
        stray = image(stray_ns) if topic == CAMERA else motion(ns)
        stray.header.stamp = time(stray_ns)
        entries[at[place]] = (topic, ns, stray)
    info, ticks = of_entries(entries, tmp_path)
    assert len(ticks) in (29, 30)
    assert statuses(ticks)['NOMINAL'] >= 27
    assert any(f'{topic}: header.stamp is of another time' in note for note in info['notes'])


def test_messages_that_cannot_be_used_are_left_out_and_counted(tmp_path):
    broken = odometry(START_NS + SECOND_NS + 1, np.nan, 0.0, 0.0, 5.0)
    nobody = image(0)
    entries = [
        *drive(),
        (ODOMETRY, START_NS + SECOND_NS + 1, broken),
        (CAMERA, START_NS + SECOND_NS + 2, nobody),
    ]
    info, ticks = of_entries(entries, tmp_path)
    assert statuses(ticks) == {'NOMINAL': 30}
    assert info['counters']['odometry.refused'] == 1
    assert any('not finite' in note for note in info['notes'])
    assert any('header.stamp is zero' in note for note in info['notes'])


def test_a_picture_that_is_broken_is_counted_and_the_one_before_is_used(tmp_path):
    entries = drive()
    for i, (topic, ns, entry) in enumerate(entries):
        if topic == CAMERA and ns % 100_000_000 == 0 and i > 100:
            entry.data = entry.data[:20]
            break
    info, ticks = of_entries(entries, tmp_path)
    assert info['counters']['front.undecodable'] == 1
    assert any('camera front: ' in note and '(1 pictures)' in note for note in info['notes'])
    assert statuses(ticks) == {'NOMINAL': 30}


def raw(ns, grey, encoding):
    data = np.full(4 * 6 * 3, grey, np.uint8)
    return message(
        'sensor_msgs/msg/Image', header=header(ns), height=4, width=6, encoding=encoding,
        is_bigendian=0, step=18, data=data,
    )  # fmt: skip


def test_raw_pictures_are_taken_and_encodings_nobody_knows_are_named(tmp_path):
    def entries(encoding):
        return [
            (t, ns, raw(ns, i % 250, encoding) if t == CAMERA else m)
            for i, (t, ns, m) in enumerate(drive(1.0))
        ]

    _, ticks = of_entries(entries('bgr8'), tmp_path, 'known')
    assert statuses(ticks) == {'NOMINAL': 10}
    info, ticks = of_entries(entries('holographic'), tmp_path, 'unknown')
    assert statuses(ticks) == {'WAITING': 10}
    assert any("encoding 'holographic' is not supported" in note for note in info['notes'])


@pytest.mark.parametrize(
    ('entries', 'words'),
    [
        ([], 'is empty'),
        ([e for e in drive(0.5) if e[0] == CAMERA], 'no nav_msgs/msg/Odometry for odometry'),
        ([e for e in drive(0.5) if e[0] == ODOMETRY], 'no sensor_msgs/msg/Image or .*Compressed'),
        ([*drive(2.0), *drive(2.0)], 'go back by 1.9 s, so it holds several runs'),
        (
            [(t, ns, image(ns % 10**9 + 10**9) if t == CAMERA else m) for t, ns, m in drive(0.5)],
            'two clocks',
        ),
        ([(t, ns, image(0) if t == CAMERA else m) for t, ns, m in drive(0.5)], 'stamp is zero'),
    ],
)
def test_a_recording_that_nothing_can_be_planned_from_is_refused(entries, words, tmp_path):
    if len(entries) > 200:  # two runs, one after the other in the bag's time
        half = len(entries) // 2
        entries = [
            (t, ns + (10 * SECOND_NS if i >= half else 0), m)
            for i, (t, ns, m) in enumerate(entries)
        ]
    with pytest.raises(BagError, match=words):
        of_entries(entries, tmp_path)


def test_an_unfinished_recording_is_replayed_as_far_as_it_goes(tmp_path):
    entries = drive(4.0)
    whole = write(tmp_path / 'whole', entries)
    _, expected = replay(whole, tmp_path / 'expected')
    bag = bag_forms.write(tmp_path / 'bag', list(read_messages(whole)))
    size = bag_forms.storage(bag).stat().st_size
    bag_forms.cut(bag, 0.99)  # in the index: the data are whole
    assert bag_forms.storage(bag).stat().st_size < size
    info, ticks = replay(bag, tmp_path / 'replay')
    assert ticks == expected
    assert any('not finished' in note for note in info['notes'])


def test_two_cameras_are_matched_as_in_the_node(tmp_path):
    at_ns = [ns for topic, ns, _ in drive() if topic == CAMERA]
    left = [('/left', ns, image(ns - 30_000_000, 100 + i)) for i, ns in enumerate(at_ns)]
    parameters = {'cameras': ['front', 'left'], 'camera.left.topic': 'left'}
    info, ticks = of_entries([*drive(), *left], tmp_path, parameters=parameters)
    assert info['topics'] == {
        'camera.front': CAMERA, 'camera.left': '/left', 'odometry': ODOMETRY,
    }  # fmt: skip
    assert ticks[9]['answer'].startswith('[20, 119] ')
    skewed = {**parameters, 'max_camera_skew_s': 0.01}
    _, ticks = of_entries([*drive(), *left], tmp_path, 'skewed', parameters=skewed)
    assert statuses(ticks) == {'WAITING': 30}
    assert 'nearest frame of camera left is 0.020 s from t0' in ticks[10]['reason']
