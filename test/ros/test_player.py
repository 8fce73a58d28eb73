import signal
import subprocess
import sys
import time
from pathlib import Path

import cv2
import numpy as np
import pytest
from recording import HEIGHT, WIDTH, sensor_bag

pytest.importorskip('rclpy', reason='needs ROS 2: plays over real DDS')

from wamdiff_ros.recordings.bag import read_messages
from wamdiff_ros.ros.qos import LATCHED, RECORDED
from wamdiff_ros.ros.recorder import RecorderNode

pytestmark = pytest.mark.ros

ROOT = Path(__file__).parents[2]
FOOTAGE = ROOT / '..' / 'shared' / 'footage'
COMPRESSED = 'sensor_msgs/msg/CompressedImage'
TOPICS = {
    '/camera/front/image': (COMPRESSED, RECORDED),
    '/odometry': ('nav_msgs/msg/Odometry', RECORDED),
    '/navigation_command': ('wamdiff_ros/msg/NavigationCommand', LATCHED),
    '/camera/front/camera_info': ('sensor_msgs/msg/CameraInfo', LATCHED),
}


SENSOR_BAG = 'the recording'  # its path is not known before a test runs


def start_player(*arguments):
    command = [sys.executable, '-m', 'wamdiff_ros.ros.player', *map(str, arguments)]
    return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)


def play_and_record(bag, *arguments, topics=TOPICS):
    """Play in a second process; return {topic: [(bag time, message)]} of what arrived."""
    with RecorderNode(bag, topics) as recorder:
        player = start_player('--wait-for', '60', *arguments)
        spin_until(recorder, lambda: player.poll() is not None)
    _, log = player.communicate()
    assert player.returncode == 0, log
    received = {topic: [] for topic in topics}
    for topic, _, time_ns, message in read_messages(bag):
        received[topic].append((time_ns, message))
    return received


def spin_until(recorder, done, timeout_s=120):
    deadline = time.monotonic() + timeout_s
    while not done():
        assert time.monotonic() < deadline, f'not within {timeout_s} s'
        recorder.spin_for(0.05)


def stamps_ns(messages):
    return [m.header.stamp.sec * 10**9 + m.header.stamp.nanosec for _, m in messages]


def recorded(topic, seconds):
    """Return the messages of the recording that lie in its first seconds."""
    messages = [(t, m) for _, _, t, m in read_messages(sensor_bag(), [topic])]
    return [(t, m) for t, m in messages if t - messages[0][0] <= seconds * 1e9]


def test_all_messages_of_a_bag_arrive_in_order_with_the_recorded_intervals(tmp_path):
    began_ns = time.time_ns()
    bag = sensor_bag()
    received = play_and_record(tmp_path / 'bag', '--bag', bag, '--seconds', '1.5')
    for topic in ('/camera/front/image', '/odometry'):
        expected = recorded(topic, 1.5)
        assert len(received[topic]) == len(expected)
        np.testing.assert_array_equal(
            np.diff(stamps_ns(received[topic])), np.diff(stamps_ns(expected))
        )
        for (time_ns, _), stamp_ns in zip(
            received[topic], stamps_ns(received[topic]), strict=True
        ):
            assert began_ns < stamp_ns <= time_ns < time.time_ns()  # on the system clock
    sent = [bytes(message.data) for _, message in recorded('/camera/front/image', 1.5)]
    assert [bytes(m.data) for _, m in received['/camera/front/image']] == sent
    assert len(received['/navigation_command']) == 1
    assert received['/camera/front/camera_info'][0][1].width == WIDTH


def test_with_clock_the_recorded_stamps_are_kept_and_the_clock_leads_to_them(tmp_path):
    topics = {**TOPICS, '/clock': ('rosgraph_msgs/msg/Clock', RECORDED)}
    bag = sensor_bag()
    received = play_and_record(
        tmp_path / 'bag', '--bag', bag, '--seconds', '0.5', '--clock', topics=topics
    )
    expected = stamps_ns(recorded('/camera/front/image', 0.5))
    assert stamps_ns(received['/camera/front/image']) == expected
    clock = [m.clock.sec * 10**9 + m.clock.nanosec for _, m in received['/clock']]
    assert clock == sorted(clock)
    assert set(expected) <= set(clock)


def test_raw_images_are_sent_as_bgr8(tmp_path):
    topics = {'/front': ('sensor_msgs/msg/Image', RECORDED), '/odometry': TOPICS['/odometry']}
    received = play_and_record(
        tmp_path / 'bag', '--bag', sensor_bag(), '--seconds', '0.2', '--raw',
        '--ros-args', '-r', '/camera/front/image:=/front', topics=topics,
    )  # fmt: skip
    sent = [message for _, message in recorded('/camera/front/image', 0.2)]
    assert len(received['/front']) == len(sent)
    for (_, image), jpeg in zip(received['/front'], sent, strict=True):
        assert (image.encoding, image.step) == ('bgr8', 3 * WIDTH)
        bgr = cv2.imdecode(jpeg.data, cv2.IMREAD_COLOR)
        np.testing.assert_array_equal(image.data.reshape(HEIGHT, WIDTH, 3), bgr)


def test_images_and_poses_arrive_together(tmp_path):
    folder = tmp_path / 'drive'
    folder.mkdir()
    for i in range(4):
        cv2.imwrite(str(folder / f'{i:06d}.jpg'), np.full((40, 60, 3), 60 * i, np.uint8))
    rows = [f'1 0 0 0 0 1 0 0 0 0 1 {1.2 * i}' for i in range(4)]
    (folder / 'poses.txt').write_text('\n'.join(rows))
    (folder / 'calib.txt').write_text('P0: 50 0 30 0 0 50 20 0 0 0 1 0\n')
    received = play_and_record(tmp_path / 'bag', '--images', folder)
    images, odometry = received['/camera/front/image'], received['/odometry']
    assert stamps_ns(images) == stamps_ns(odometry)
    assert len(images) == 4
    assert bytes(images[2][1].data) == (folder / '000002.jpg').read_bytes()
    assert [m.pose.pose.position.x for _, m in odometry] == pytest.approx([0, 1.2, 2.4, 3.6])
    assert odometry[1][1].twist.twist.linear.x == pytest.approx(12.0)
    assert received['/camera/front/camera_info'][0][1].k[0] == 50.0


@pytest.mark.skipif(not FOOTAGE.exists(), reason='../shared/footage is absent')
def test_all_frames_of_a_video_arrive(tmp_path):
    video = FOOTAGE / 'highway_vehicles_1280x720_25fps.mp4'
    ego = FOOTAGE / 'comma_ego_20hz.npz'
    received = play_and_record(tmp_path / 'bag', '--video', video, '--ego', ego)
    images = received['/camera/front/image']
    assert len(images) == 38
    assert set(np.diff(stamps_ns(images))) == {40_000_000}
    assert len(received['/odometry']) == 30


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_player_with_exit_code_0(tmp_path, number):
    with RecorderNode(tmp_path / 'bag', TOPICS) as recorder:
        player = start_player('--bag', sensor_bag(), '--loop', '--wait-for', '60')
        spin_until(recorder, lambda: recorder.recorder.counts['/odometry'] or player.poll())
        player.send_signal(number)
        spin_until(recorder, lambda: player.poll() is not None)
    _, log = player.communicate()
    assert player.returncode == 0, log
    assert 'Traceback' not in log


@pytest.mark.parametrize(
    ('arguments', 'code', 'words'),
    [
        (['--bag', 'no/such/bag'], 1, 'no such bag'),
        (['--video', 'no/such.mp4'], 1, 'no such video'),
        (['--bag', SENSOR_BAG, '--topics', '/left'], 1, 'holds no topic /left'),
        (['--bag', SENSOR_BAG, '--wait-for', '0.5'], 3, 'fewer than 1 subscribers'),
        (['--bag', SENSOR_BAG, '--rate', '0'], 2, 'not above 0'),
    ],
)
def test_a_wrong_call_says_what_is_wrong(arguments, code, words):
    player = start_player(*(sensor_bag() if a is SENSOR_BAG else a for a in arguments))
    _, log = player.communicate(timeout=120)
    assert player.returncode == code
    assert words in log
    assert 'Traceback' not in log
