"""The launch file, run for real; the ROS wheels have no launch_ros, a ROS installation has."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip('rclpy', reason='needs ROS 2')
pytest.importorskip('launch_ros', reason='launch_ros is part of a ROS installation, not a wheel')

import rclpy
from lifecycle_msgs.srv import GetState
from rcl_interfaces.srv import GetParameters

pytestmark = pytest.mark.ros

LAUNCH_FILE = Path(__file__).parents[2] / 'launch' / 'planner.launch.py'
TIMEOUT_S = 60
LAUNCHER = """
import sys
from launch import LaunchDescription, LaunchService
from launch.actions import IncludeLaunchDescription
from launch.launch_description_sources import PythonLaunchDescriptionSource

path, *arguments = sys.argv[1:]
service = LaunchService()
service.include_launch_description(LaunchDescription([IncludeLaunchDescription(
    PythonLaunchDescriptionSource(path),
    launch_arguments=[tuple(argument.split(':=', 1)) for argument in arguments],
)]))
sys.exit(service.run())
"""


@pytest.fixture
def launch(tmp_path):
    """Return a function that starts the launch file with arguments; ends it as Ctrl-C does.

    That returns a function for what the launched processes have said so far.
    """
    started = []
    log = tmp_path / 'launch.log'  # unlike a pipe, it takes all that is said at once

    def start(*arguments: str):
        with log.open('w') as output:
            process = subprocess.Popen(
                [sys.executable, '-c', LAUNCHER, str(LAUNCH_FILE), *arguments],
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        started.append(process)
        return log.read_text

    yield start
    for process in started:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        code = process.wait(TIMEOUT_S)
        print(log.read_text())
        assert code == 0
        assert 'Traceback' not in log.read_text()


@pytest.fixture
def node():
    """Return a node to ask from."""
    rclpy.init()
    node = rclpy.create_node('test_launch')
    yield node
    node.destroy_node()
    rclpy.try_shutdown()


def ask(node, kind, name, request):
    """Call a service of the launched node, waiting for it to come up."""
    client = node.create_client(kind, name)
    assert client.wait_for_service(timeout_sec=TIMEOUT_S), f'no service {name}'
    future = client.call_async(request)
    rclpy.spin_until_future_complete(node, future, timeout_sec=TIMEOUT_S)
    assert future.result() is not None, f'no answer from {name}'
    return future.result()


def test_arguments_reach_the_node(launch, node, tmp_path):
    params_file = tmp_path / 'planner.param.yaml'
    params_file.write_text(
        '/**:\n  ros__parameters:\n    cameras: [left, right]\n    rate_hz: 5.0\n'
        '    camera: {left: {topic: stereo/left}}\n    model_dir: /from/the/file\n'
    )
    launch(
        f'params_file:={params_file}',
        'namespace:=car',
        'autostart:=False',
        'use_sim_time:=True',
        'log_level:=debug',
        'model_dir:=/somewhere/123',
    )
    names = ['cameras', 'camera.left.topic', 'rate_hz', 'use_sim_time', 'model_dir']
    answer = ask(
        node, GetParameters, '/car/planner/get_parameters', GetParameters.Request(names=names)
    )
    cameras, topic, rate, sim_time, model_dir = answer.values
    assert cameras.string_array_value == ['left', 'right']
    assert topic.string_value == 'stereo/left'
    assert rate.double_value == 5.0
    assert sim_time.bool_value is True
    assert model_dir.string_value == '/somewhere/123'
    state = ask(node, GetState, '/car/planner/get_state', GetState.Request())
    assert state.current_state.label == 'unconfigured'


def test_an_argument_left_out_keeps_the_parameter_file(launch, node, tmp_path):
    params_file = tmp_path / 'planner.param.yaml'
    params_file.write_text('/**:\n  ros__parameters:\n    model_dir: /from/the/file\n')
    launch(f'params_file:={params_file}', 'autostart:=false')
    request = GetParameters.Request(names=['model_dir'])
    answer = ask(node, GetParameters, '/planner/get_parameters', request)
    assert answer.values[0].string_value == '/from/the/file'


def test_autostart_configures_without_being_asked(launch, tmp_path):
    said = launch(f'model_dir:={tmp_path}/nothing_here')
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline and 'nothing_here' not in said():
        time.sleep(0.1)
    assert 'nothing_here' in said(), 'configure did not run into the missing checkpoint'
