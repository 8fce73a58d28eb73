"""Launch files, run for real, and a node to ask the launched ones from."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / 'launch'
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
    """Return a function that starts a launch file with arguments; ends it as Ctrl-C does.

    That returns a function for what the launched processes have said so far.
    """
    started = []
    log = tmp_path / 'launch.log'  # unlike a pipe, it takes all that is said at once

    def start(name: str, *arguments: str):
        with log.open('w') as output:
            process = subprocess.Popen(
                [sys.executable, '-c', LAUNCHER, str(FOLDER / name), *arguments],
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
    import rclpy

    rclpy.init()
    node = rclpy.create_node('test_launch')
    yield node
    node.destroy_node()
    rclpy.try_shutdown()


@pytest.fixture
def ask(node):
    """Return a function that calls a service of a launched node, waiting for it to come up."""
    import rclpy

    def ask(kind, name, request):
        client = node.create_client(kind, name)
        assert client.wait_for_service(timeout_sec=TIMEOUT_S), f'no service {name}'
        future = client.call_async(request)
        rclpy.spin_until_future_complete(node, future, timeout_sec=TIMEOUT_S)
        assert future.result() is not None, f'no answer from {name}'
        return future.result()

    return ask
