import resource
import shutil

import numpy as np
import pytest

from wamdiff_ros.recordings import bag as bags
from wamdiff_ros.recordings.bag import BagError, BagWriter, bag_topics, read_messages, typestore


def navigation_command(command, stamp_s):
    types = typestore().types
    stamp = types['builtin_interfaces/msg/Time'](sec=stamp_s, nanosec=5)
    header = types['std_msgs/msg/Header'](stamp=stamp, frame_id='')
    return types['wamdiff_ros/msg/NavigationCommand'](header=header, command=command)


def test_messages_come_back_in_order_with_their_bag_times(tmp_path):
    with BagWriter(tmp_path / 'bag') as writer:
        for i in range(5):
            writer.write_message('/command', 10**9 + i, navigation_command(i % 3, i))
    read = list(read_messages(tmp_path / 'bag'))
    assert [stamp_ns for _, _, stamp_ns, _ in read] == [10**9 + i for i in range(5)]
    assert [message.command for *_, message in read] == [0, 1, 2, 0, 1]
    assert [message.header.stamp.sec for *_, message in read] == list(range(5))
    assert bag_topics(tmp_path / 'bag') == {'/command': ('wamdiff_ros/msg/NavigationCommand', 5)}


def test_rclpy_reads_the_same_message_from_the_bytes(tmp_path):
    pytest.importorskip('rclpy', reason='needs rclpy to compare with')
    from rclpy.serialization import deserialize_message, serialize_message
    from wamdiff_ros.msg import PlannedTrajectory, TrajectoryPoint

    message = PlannedTrajectory(sequence=7, status=PlannedTrajectory.HELD)
    message.header.frame_id = 'odom'
    message.points = [TrajectoryPoint(speed_mps=float(i)) for i in range(3)]
    with BagWriter(tmp_path / 'bag') as writer:
        cdr = serialize_message(message)
        writer.write('/trajectory', 'wamdiff_ros/msg/PlannedTrajectory', 1, cdr)
    [(_, type_name, _, read)] = read_messages(tmp_path / 'bag')
    assert [point.speed_mps for point in read.points] == [0.0, 1.0, 2.0]
    again = bytes(typestore().serialize_cdr(read, type_name))
    assert deserialize_message(again, PlannedTrajectory) == message


def test_only_the_chosen_topics_are_read(tmp_path):
    with BagWriter(tmp_path / 'bag') as writer:
        for topic in ('/a', '/b'):
            writer.write_message(topic, 1, navigation_command(0, 0))
    assert [topic for topic, *_ in read_messages(tmp_path / 'bag', ['/b'])] == ['/b']
    assert list(read_messages(tmp_path / 'bag', ['/c'])) == []


def test_a_bag_is_finished_when_the_block_ends_with_an_exception(tmp_path):
    with pytest.raises(KeyboardInterrupt), BagWriter(tmp_path / 'bag') as writer:
        writer.write_message('/a', 1, navigation_command(2, 0))
        raise KeyboardInterrupt
    assert len(list(read_messages(tmp_path / 'bag'))) == 1


def test_an_existing_output_is_not_overwritten(tmp_path):
    (tmp_path / 'bag').mkdir()
    with pytest.raises(BagError, match='exists already'):
        BagWriter(tmp_path / 'bag')


def test_a_nearly_full_disk_ends_the_bag_and_keeps_what_came_before(tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    writer = BagWriter(tmp_path / 'bag', reserve_bytes=1000)
    with pytest.raises(BagError, match='left on the disk'), writer:
        writer.write_message('/a', 1, navigation_command(1, 0))
        monkeypatch.setattr(bags.shutil, 'disk_usage', lambda _: usage._replace(free=999))
        for stamp_ns in range(2, 1000):
            writer.write_message('/a', stamp_ns, navigation_command(1, 0))
    assert 1 <= len(list(read_messages(tmp_path / 'bag'))) == writer.message_count < 999


def test_a_disk_that_is_full_all_the_same_is_one_error_that_names_the_bag(tmp_path):
    random = np.random.default_rng(0)
    writer = BagWriter(tmp_path / 'bag')
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)  # stands in for the disk
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, limits[1]))
    try:
        with pytest.raises(BagError, match=r'bag: .*\(File too large\)'), writer:
            for stamp_ns in range(4):
                cdr = b'\0\1\0\0' + random.bytes(2**20)  # too random to be compressed
                writer.write('/a', 'wamdiff_ros/msg/NavigationCommand', stamp_ns, cdr)
        writer.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_an_unknown_type_is_refused_by_name(tmp_path):
    with BagWriter(tmp_path / 'bag') as writer, pytest.raises(BagError, match='other/msg/Thing'):
        writer.write('/a', 'other/msg/Thing', 1, b'\0' * 8)


@pytest.mark.parametrize(
    ('make', 'words'),
    [
        (lambda path: None, 'no such bag'),
        (lambda path: path.mkdir(), 'neither metadata.yaml nor'),
        (lambda path: (path.mkdir(), (path / 'metadata.yaml').write_text('[}')), 'cannot be read'),
    ],
)
def test_a_bag_that_cannot_be_read_is_named(tmp_path, make, words):
    make(tmp_path / 'recording')
    with pytest.raises(BagError, match='recording.*' + words):
        list(read_messages(tmp_path / 'recording'))


def test_numbers_survive_exactly(tmp_path):
    values = np.random.default_rng(1).normal(size=36)
    types = typestore().types
    pose = types['geometry_msgs/msg/PoseWithCovariance'](
        pose=types['geometry_msgs/msg/Pose'](
            position=types['geometry_msgs/msg/Point'](x=1e6 + 1e-9, y=-0.0, z=3.0),
            orientation=types['geometry_msgs/msg/Quaternion'](x=0.0, y=0.0, z=0.0, w=1.0),
        ),
        covariance=values,
    )
    with BagWriter(tmp_path / 'bag') as writer:
        writer.write_message('/pose', 1, pose)
    [(*_, read)] = read_messages(tmp_path / 'bag')
    assert read.pose.position.x == 1e6 + 1e-9
    np.testing.assert_array_equal(read.covariance, values)
