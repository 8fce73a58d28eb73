import os
import shutil

import pytest

pytest.importorskip('rclpy', reason='needs ROS 2')

from wamdiff_ros.evaluation import bag as bags
from wamdiff_ros.evaluation.bag import BagError, read_messages
from wamdiff_ros.ros.qos import RECORDED
from wamdiff_ros.ros.recorder import RecorderNode

pytestmark = pytest.mark.ros

TOPICS = {'/planner/status': ('wamdiff_ros/msg/PlannerStatus', RECORDED)}


@pytest.fixture(autouse=True)
def own_domain(monkeypatch):
    monkeypatch.setenv('ROS_DOMAIN_ID', str(1 + os.getpid() % 100))
    monkeypatch.setenv('ROS_AUTOMATIC_DISCOVERY_RANGE', 'LOCALHOST')


@pytest.fixture
def publish():
    import rclpy
    from wamdiff_ros.msg import PlannerStatus

    context = rclpy.Context()
    rclpy.init(context=context)
    node = rclpy.create_node('planner', context=context)
    publisher = node.create_publisher(PlannerStatus, '/planner/status', 100)

    def send(recorder, ticks):
        for _ in range(200):
            if publisher.get_subscription_count():
                break
            recorder.spin_for(0.05)
        for tick in ticks:
            publisher.publish(PlannerStatus(tick=tick))
        for _ in range(100):
            recorder.spin_for(0.05)
            if recorder.recorder.counts['/planner/status'] >= len(ticks):
                return

    yield send
    node.destroy_node()
    rclpy.try_shutdown(context=context)


def ticks_of(bag):
    return [message.tick for *_, message in read_messages(bag)]


def test_everything_that_is_published_is_in_the_bag(tmp_path, publish):
    with RecorderNode(tmp_path / 'bag', TOPICS) as recorder:
        publish(recorder, range(50))
    assert ticks_of(tmp_path / 'bag') == list(range(50))


def test_the_bag_is_finished_when_the_program_is_interrupted(tmp_path, publish):
    with pytest.raises(KeyboardInterrupt), RecorderNode(tmp_path / 'bag', TOPICS) as recorder:
        publish(recorder, range(3))
        raise KeyboardInterrupt
    assert ticks_of(tmp_path / 'bag') == [0, 1, 2]


def test_a_full_disk_is_one_clear_error_and_loses_nothing_before(tmp_path, publish, monkeypatch):
    def send_until_the_disk_is_full():
        with RecorderNode(tmp_path / 'bag', TOPICS) as recorder:
            publish(recorder, range(20))
            usage = shutil.disk_usage(tmp_path)
            monkeypatch.setattr(bags, 'RESERVE_BYTES', 1000)
            monkeypatch.setattr(bags.shutil, 'disk_usage', lambda _: usage._replace(free=0))
            recorder.recorder._writer._unchecked_bytes = bags.RESERVE_BYTES * 10**6
            publish(recorder, range(20, 40))

    with pytest.raises(BagError, match='left on the disk'):
        send_until_the_disk_is_full()
    assert ticks_of(tmp_path / 'bag') == list(range(20))


def test_an_existing_folder_is_refused_before_anything_is_recorded(tmp_path):
    (tmp_path / 'bag').mkdir()
    with pytest.raises(BagError, match='exists already'):
        RecorderNode(tmp_path / 'bag', TOPICS)
