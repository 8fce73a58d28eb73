"""The simulator node as a process of its own, over real DDS."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest

pytest.importorskip('rclpy', reason='needs ROS 2: drives over real DDS')
pytest.importorskip('panda3d', reason='needs panda3d to render the world')

import rclpy
from rclpy.executors import SingleThreadedExecutor
from std_srvs.srv import Trigger

from wamdiff_ros.recordings.bag import read_messages
from wamdiff_ros.recordings.timeline import read_timeline
from wamdiff_ros.ros import simulator_node
from wamdiff_ros.ros.qos import LATCHED, RECORDED
from wamdiff_ros.ros.recorder import RecorderNode

pytestmark = pytest.mark.ros

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 120  # only a failure takes as long
SEED = 15
TOPICS = {
    '/camera/front/image': ('sensor_msgs/msg/Image', RECORDED),
    '/camera/front/camera_info': ('sensor_msgs/msg/CameraInfo', LATCHED),
    '/odometry': ('nav_msgs/msg/Odometry', RECORDED),
    '/acceleration': ('geometry_msgs/msg/AccelWithCovarianceStamped', RECORDED),
    '/navigation_command': ('wamdiff_ros/msg/NavigationCommand', LATCHED),
    '/planner/trajectory': ('wamdiff_ros/msg/PlannedTrajectory', RECORDED),
    '/simulator/truth': ('std_msgs/msg/String', RECORDED),
    '/clock': ('rosgraph_msgs/msg/Clock', RECORDED),
}


def start(*command, parameters):
    values = [part for pair in parameters.items() for part in ('-p', '{}:={}'.format(*pair))]
    return subprocess.Popen(
        [sys.executable, *map(str, command), '--ros-args', *values],
        cwd=ROOT,
        env={**os.environ, 'PYTHONPATH': f'{ROOT}:{os.environ.get("PYTHONPATH", "")}'},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def start_simulator(**parameters):
    return start('-m', 'wamdiff_ros.ros.simulator_node', parameters=parameters)


@pytest.fixture(scope='module')
def drive(tmp_path_factory):
    """Two seconds of a route with the expert's plans through the planner node, recorded."""
    folder = tmp_path_factory.mktemp('drive')
    with RecorderNode(folder / 'bag', TOPICS) as recorder:
        simulator = start_simulator(
            seed=SEED, seconds=2.0, out=folder, publish_clock='true', rate=0.5
        )
        # It waits for a planner, and a planner only comes when the recorder has found its topics.
        deadline = time.monotonic() + TIMEOUT_S
        while (
            recorder.recorder.without_publisher() - {'/planner/trajectory'}
            and simulator.poll() is None
        ):
            assert time.monotonic() < deadline, recorder.recorder.without_publisher()
            recorder.spin_for(0.05)
        planner = start(
            'test/expert_planner.py', parameters={'autostart': 'true', 'use_sim_time': 'true'}
        )
        try:
            while simulator.poll() is None:
                recorder.spin_for(0.05)
        finally:
            planner.send_signal(signal.SIGINT)
            planner_output, _ = planner.communicate(timeout=TIMEOUT_S)
    output, _ = simulator.communicate()
    assert simulator.returncode == 0, output + planner_output
    assert planner.returncode == 0, planner_output
    return folder


def messages(folder, topic):
    return [message for _, _, _, message in read_messages(folder / 'bag', [topic])]


def stamp_ns(message):
    return message.header.stamp.sec * 10**9 + message.header.stamp.nanosec


def truths(folder):
    return [json.loads(message.data) for message in messages(folder, '/simulator/truth')]


def test_the_planners_trajectories_move_the_vehicle(drive):
    told = truths(drive)
    assert told[-1]['time_s'] == pytest.approx(2.0)
    assert told[-1]['s_m'] - told[0]['s_m'] > 2.0
    assert told[-1]['faults'] == []
    (row,) = json.loads((drive / 'drive.json').read_text())['rows']
    assert (row['seed'], row['completed']) == (SEED, False)
    assert row['completion'] == pytest.approx(told[-1]['completion'], abs=1e-3)
    assert row['not_nominal'] < 1.0


def test_every_picture_has_odometry_and_truth_of_the_same_instant(drive):
    pictures = messages(drive, '/camera/front/image')
    odometry = {stamp_ns(message): message for message in messages(drive, '/odometry')}
    told = {truth['stamp_ns']: truth for truth in truths(drive)}
    stamps = [stamp_ns(picture) for picture in pictures]
    assert stamps == sorted(told)[-len(stamps) :], 'a picture is missing'
    assert len(pictures) >= 20
    for picture in pictures:
        assert (picture.width, picture.height, picture.encoding) == (512, 256, 'rgb8')
        assert picture.header.frame_id == 'camera_front_optical'
        truth, pose = told[stamp_ns(picture)], odometry[stamp_ns(picture)].pose.pose
        assert (pose.position.x, pose.position.y) == pytest.approx(
            (truth['x_m'], truth['y_m']), abs=1e-3
        )
        heading = 2 * math.atan2(pose.orientation.z, pose.orientation.w)
        assert math.cos(heading - truth['heading_rad']) == pytest.approx(1.0)


def test_pictures_come_at_ten_hertz_shortly_before_the_planners_grid(drive):
    stamps = [stamp_ns(message) for message in messages(drive, '/camera/front/image')]
    assert {later - earlier for earlier, later in pairwise(stamps)} == {10**8}
    assert {stamp % 10**8 for stamp in stamps} == {90_000_000}


def test_odometry_moves_smoothly_between_pictures(drive):
    odometry = messages(drive, '/odometry')
    moving = [m for m in odometry if stamp_ns(m) >= stamp_ns(odometry[-1]) - 10**9]
    assert len(moving) == 41  # 40 Hz
    for before, after in pairwise(moving):
        step_s = (stamp_ns(after) - stamp_ns(before)) / 1e9
        a, b = before.pose.pose.position, after.pose.pose.position
        speed = (before.twist.twist.linear.x + after.twist.twist.linear.x) / 2
        assert math.hypot(b.x - a.x, b.y - a.y) == pytest.approx(speed * step_s, abs=2e-3)
    assert len(messages(drive, '/acceleration')) == len(odometry)


def test_the_clock_never_goes_back_and_passes_every_picture(drive):
    clock = [m.clock.sec * 10**9 + m.clock.nanosec for m in messages(drive, '/clock')]
    assert clock == sorted(clock)
    stamps = {stamp_ns(message) for message in messages(drive, '/camera/front/image')}
    assert len(stamps - set(clock)) <= 1  # the recorder may have missed the very first


def test_the_recording_tells_the_camera_the_command_and_the_truth(drive):
    (info,) = messages(drive, '/camera/front/camera_info')
    assert info.k[0] == pytest.approx(256.0)  # 90 degrees
    timeline = read_timeline(drive / 'bag')
    truth = timeline.truth_at(timeline.truths[-1][0])
    assert truth['command'] in ('straight', 'left', 'right')
    assert len(truth['objects']) == 12
    assert len(truth['expert_waypoints_base_m']) == 8
    assert messages(drive, '/navigation_command')


def test_without_a_planner_it_ends_with_a_reason():
    simulator = start_simulator(wait_s=1.0)
    output, _ = simulator.communicate(timeout=TIMEOUT_S)
    assert simulator.returncode == 3
    assert '/planner/reset: no such service after 1 s' in output
    assert 'Traceback' not in output


def test_a_route_on_which_nobody_plans_ends_as_stuck_and_is_scored_before_the_next(tmp_path):
    file = tmp_path / 'drive.json'
    context = rclpy.Context()
    rclpy.init(context=context)
    try:
        planner = rclpy.create_node('planner', context=context)
        planner.create_service(Trigger, 'planner/reset', lambda request, response: response)
        executor = SingleThreadedExecutor(context=context)
        executor.add_node(planner)
        simulator = start_simulator(
            seed=SEED, routes=2, out=tmp_path, publish_clock='true', rate=50.0
        )
        while simulator.poll() is None and not file.exists():
            executor.spin_once(timeout_sec=0.05)
        simulator.terminate()  # on the second route
    finally:
        rclpy.shutdown(context=context)
    output, _ = simulator.communicate()
    assert simulator.returncode == 0 and 'driving off without' in output, output
    result = json.loads(file.read_text())
    (row,) = result['rows']
    assert result['routes_asked'] == 2
    assert (row['ended_early'], row['success']) == ('stuck', False)
    assert 30.0 <= row['duration_s'] < 40.0  # it has to come to a stop first


@pytest.mark.parametrize(
    ('parameter', 'words'),
    [
        ('routes:=0', 'routes 0'),
        ('seed:=-1', 'seed -1'),
        ('rate:=2.0', 'rate 2.0 needs publish_clock'),
        ('seed:=one', "'seed'"),
    ],
)
def test_wrong_parameters_are_refused(parameter, words, capsys):
    assert simulator_node.main(['--ros-args', '-p', parameter]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_with_exit_code_0(number):
    simulator = start_simulator(wait_s=100.0)
    line = ''
    while 'waiting for /planner/reset' not in line and simulator.poll() is None:
        line = simulator.stdout.readline()
    simulator.send_signal(number)
    output, _ = simulator.communicate(timeout=TIMEOUT_S)
    assert simulator.returncode == 0, line + output
    assert 'Traceback' not in output
