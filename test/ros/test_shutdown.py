"""The node itself, with the bundled checkpoint, is asked to end at any moment of its life."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.ros, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, '-m', 'wamdiff_ros.ros.planner_node', '--ros-args']
COMMAND += ['-p', 'autostart:=true', '-p', 'threads:=1']


# From importing ROS over loading and warming up to waiting for a camera.
@pytest.mark.parametrize('delay_s', [0.0, 0.2, 0.7, 1.5, 4.0])
def test_a_signal_at_any_moment_ends_with_exit_code_0_and_without_a_word(delay_s):
    process = subprocess.Popen(
        COMMAND, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    number = signal.SIGINT if delay_s in (0.2, 1.5) else signal.SIGTERM
    try:
        while not _handles(process.pid, signal.SIGTERM):
            assert process.poll() is None, process.stdout.read()
            time.sleep(0.005)  # Python is still starting, before its first line
        time.sleep(delay_s)
        process.send_signal(number)
        output, _ = process.communicate(timeout=60.0)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, output
    assert 'Traceback' not in output
    assert 'terminate called' not in output


def test_shared_memory_is_taken_back_at_the_end():
    process = subprocess.Popen(
        COMMAND, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        assert any('running on' in line for line in process.stdout)
        maps = Path(f'/proc/{process.pid}/maps').read_text().split()
        shared = {word for word in maps if word.startswith('/dev/shm/fastrtps_')}
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60.0)
    finally:
        process.kill()
        process.wait()
    assert shared
    # The ports are named after the domain and outlive their process; segments must not.
    assert {path for path in shared if 'port' not in path and Path(path).exists()} == set()


def _handles(pid, number):
    """Whether a process has a handler of its own for the signal."""
    status = Path(f'/proc/{pid}/status').read_text()
    caught = next(line for line in status.splitlines() if line.startswith('SigCgt'))
    return bool(int(caught.split()[1], 16) & 1 << (number - 1))
