import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest

pytest.importorskip('rclpy', reason='needs ROS 2')

from rclpy.duration import Duration

from wamdiff_ros.recordings import bag as bags
from wamdiff_ros.recordings.bag import BagError, read_messages
from wamdiff_ros.ros import recorder as recorders
from wamdiff_ros.ros.qos import RECORDED
from wamdiff_ros.ros.recorder import RecorderNode

pytestmark = pytest.mark.ros

TOPICS = {'/planner/status': ('wamdiff_ros/msg/PlannerStatus', RECORDED)}


@pytest.fixture
def publisher():
    import rclpy
    from wamdiff_ros.msg import PlannerStatus

    context = rclpy.Context()
    rclpy.init(context=context)
    node = rclpy.create_node('planner', context=context)
    yield node.create_publisher(PlannerStatus, '/planner/status', 100)
    node.destroy_node()
    rclpy.try_shutdown(context=context)


def send(publisher, recorder, ticks):
    from wamdiff_ros.msg import PlannerStatus

    spin_until(recorder, publisher.get_subscription_count)
    for tick in ticks:
        publisher.publish(PlannerStatus(tick=tick))


def record(publisher, recorder, ticks):
    wanted = recorder.recorder.counts['/planner/status'] + len(ticks)
    send(publisher, recorder, ticks)
    spin_until(recorder, lambda: recorder.recorder.counts['/planner/status'] == wanted)


def spin_until(recorder, done):
    for _ in range(1200):
        if done():
            return
        recorder.spin_for(0.05)
    pytest.fail('nothing for 60 s')


def ticks_of(bag):
    return [message.tick for *_, message in read_messages(bag)]


def test_everything_that_is_published_is_in_the_bag(tmp_path, publisher):
    with RecorderNode(tmp_path / 'bag', TOPICS) as recorder:
        record(publisher, recorder, range(50))
    assert ticks_of(tmp_path / 'bag') == list(range(50))


def test_what_was_sent_but_not_taken_at_the_end_is_in_the_bag_too(tmp_path, publisher):
    with RecorderNode(tmp_path / 'bag', TOPICS) as recorder:
        send(publisher, recorder, range(50))
    assert ticks_of(tmp_path / 'bag') == list(range(50))


def test_a_sender_that_goes_on_does_not_keep_the_recording_from_ending(
    tmp_path, publisher, monkeypatch
):
    from wamdiff_ros.msg import PlannerStatus

    monkeypatch.setattr(recorders, 'DRAIN_LIMIT_S', 0.5)
    ended = threading.Event()

    def go_on():
        while not ended.wait(0.01):
            publisher.publish(PlannerStatus(tick=1))

    sender = threading.Thread(target=go_on)
    try:
        with RecorderNode(tmp_path / 'bag', TOPICS) as recorder:
            record(publisher, recorder, [0])
            sender.start()
    finally:
        ended.set()
        sender.join()
    assert ticks_of(tmp_path / 'bag')[0] == 0


def test_the_bag_is_finished_when_the_program_is_interrupted(tmp_path, publisher):
    with pytest.raises(KeyboardInterrupt), RecorderNode(tmp_path / 'bag', TOPICS) as recorder:
        send(publisher, recorder, range(3))
        raise KeyboardInterrupt
    assert ticks_of(tmp_path / 'bag') == [0, 1, 2]


def test_a_full_disk_is_one_clear_error_and_loses_nothing_before(tmp_path, publisher, monkeypatch):
    def send_until_the_disk_is_full():
        with RecorderNode(tmp_path / 'bag', TOPICS) as recorder:
            record(publisher, recorder, range(20))
            usage = shutil.disk_usage(tmp_path)
            monkeypatch.setattr(bags, 'RESERVE_BYTES', 1000)
            monkeypatch.setattr(bags.shutil, 'disk_usage', lambda _: usage._replace(free=0))
            recorder.recorder._writer._unchecked_bytes = bags.RESERVE_BYTES * 10**6
            record(publisher, recorder, range(20, 40))

    with pytest.raises(BagError, match='left on the disk'):
        send_until_the_disk_is_full()
    assert ticks_of(tmp_path / 'bag') == list(range(20))


def test_an_existing_folder_is_refused_before_anything_is_recorded(tmp_path):
    (tmp_path / 'bag').mkdir()
    with pytest.raises(BagError, match='exists already'):
        RecorderNode(tmp_path / 'bag', TOPICS)


def test_the_recorder_as_a_process_leaves_a_finished_bag_when_it_is_interrupted(
    tmp_path, publisher
):
    from wamdiff_ros.msg import PlannerStatus

    command = [sys.executable, '-m', 'wamdiff_ros.ros.recorder', '--out', str(tmp_path / 'bag')]
    process = subprocess.Popen(command)
    try:
        deadline = time.monotonic() + 60
        while not publisher.get_subscription_count() and time.monotonic() < deadline:
            time.sleep(0.05)
        for tick in range(20):
            publisher.publish(PlannerStatus(tick=tick))
        publisher.wait_for_all_acked(Duration(seconds=30))
    finally:
        process.send_signal(signal.SIGINT)
        code = process.wait(60)
    assert code == 0
    assert ticks_of(tmp_path / 'bag') == list(range(20))
