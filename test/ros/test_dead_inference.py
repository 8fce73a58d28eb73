"""When inference will not plan again, the node says so, brakes, and ends to be started anew."""

import os
import signal
import time
from pathlib import Path

import pytest
from planner_bench import PlannerProcess, time_ns
from wamdiff_ros.msg import PlannedTrajectory, PlannerStatus

from wamdiff_ros.ros.planner_node import INFERENCE_IS_DEAD

pytestmark = [pytest.mark.ros, pytest.mark.slow]

FATAL = 'the process ends, to be started anew'


@pytest.fixture
def planner(bench, tmp_path):
    """A node that plans and is less patient than by default; `segments` are its own."""
    before = segments(os.getpid())
    planner = PlannerProcess(
        tmp_path,
        *('-p', 'autostart:=true', '-p', 'inference_timeout_s:=2.0'),
        *('-p', 'max_inference_failures:=30'),
    )
    bench.next_status(lambda m: m.state == PlannerStatus.NOMINAL, 'planning')
    planner.segments = segments(planner.process.pid) - before
    yield planner
    planner.process.kill()
    planner.process.wait()


def end_of(bench, planner):
    """Wait for the process to end by itself; return its exit code."""
    bench.wait(lambda: planner.process.poll() is not None, 'the end')
    return planner.end()


@pytest.mark.parametrize(
    ('steering', 'reason'),
    [
        ({'plan_s': 1e6}, 'inference has not returned for 2.'),
        (
            {'plan_error': 'a cold'},
            'times in a row, the last time with RuntimeError: a cold',
        ),
        (
            {'plan_error': 'CUDA error: device-side assert triggered'},
            'inference has lost its device: RuntimeError: CUDA error: device-side assert trigg',
        ),
    ],
    ids=['never returns', 'raises for ever', 'loses its device'],
)
def test_dead_inference_is_told_and_ends_the_process_under_a_stop(
    bench, planner, steering, reason
):
    diagnosed = len(bench.heard['diagnostics'])
    planner.steer(**steering)
    stop = bench.next_status(
        lambda m: m.state == PlannerStatus.FALLBACK_STOP and reason in m.reason, 'the stop'
    )
    assert bench.trajectory_of(stop).status == PlannedTrajectory.FALLBACK_STOP
    assert end_of(bench, planner) == INFERENCE_IS_DEAD, planner.output()
    (fatal,) = [line for line in planner.output().splitlines() if FATAL in line]
    assert '[FATAL]' in fatal and reason in fatal
    told = [m.status[0] for m in bench.heard['diagnostics'][diagnosed:]]
    assert any(
        d.message.startswith('inference has') and reason in d.message and d.level == d.ERROR
        for d in told
    )
    assert planner.segments
    assert {path for path in planner.segments if path.exists()} == set()


def test_a_signal_amid_the_farewell_leaves_the_exit_code(bench, planner):
    planner.steer(plan_error='CUDA error: misaligned address')
    bench.next_status(lambda m: 'lost its device' in m.reason, 'the farewell')
    assert planner.end(signal.SIGTERM) == INFERENCE_IS_DEAD, planner.output()


def test_foreign_code_that_stops_the_interpreter_ends_the_process_with_its_place(bench, planner):
    planner.steer(hold_interpreter=True)
    assert end_of(bench, planner) == -signal.SIGALRM, planner.output()
    assert 'in plan' in planner.output()  # where the thread stands


def test_process_that_was_suspended_for_longer_than_the_timeout_goes_on(bench, planner):
    """Here shorter than the last resort, which counts on while the process is stopped."""
    planner.process.send_signal(signal.SIGSTOP)
    time.sleep(3.0)
    planner.process.send_signal(signal.SIGCONT)
    resumed_ns = bench.now_ns()
    bench.next_status(
        lambda m: m.state == PlannerStatus.NOMINAL and time_ns(m.t0) > resumed_ns, 'planning again'
    )
    assert planner.end() == 0, planner.output()


def segments(pid):
    """Return the shared memory that a process has mapped, but for the ports of the domain."""
    words = Path(f'/proc/{pid}/maps').read_text().split()
    found = {Path(word) for word in words if word.startswith('/dev/shm/fastrtps_')}
    return {path for path in found if 'port' not in path.name}
