"""What clocks, processes, disks and a model do to a planner."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from faults.fault import fault
from faults.sensor_faults import ONE_PERIOD_S
from planner_bench import PlannerProcess
from wamdiff_ros.msg import PlannerStatus

from wamdiff_ros.ros.planner_node import INFERENCE_IS_DEAD

HERE = Path(__file__).parent
NOMINAL, HELD = PlannerStatus.NOMINAL, PlannerStatus.HELD
WAITING, STOP = PlannerStatus.WAITING, PlannerStatus.FALLBACK_STOP
PROCESS_START_S = 15.0  # Python imports ROS, DDS participants find each other


# -- time -----------------------------------------------------------------------------------------


@fault(ONE_PERIOD_S, simulated=True)
def simulated_time_pauses(scene):
    """Somebody presses pause."""
    scene.bench.sim_runs = False
    scene.hear('simulated time has stood still')
    scene.bench.sim_runs = True


@fault(ONE_PERIOD_S, simulated=True)
def simulated_time_loops(scene):
    """A bag begins anew: time and vehicle are back at its start."""
    resets = scene.resets()
    scene.bench.leap(-4.0)
    scene.see(above=resets)


@fault(ONE_PERIOD_S, simulated=True)
def simulated_time_leaps_an_hour_ahead(scene):
    """Somebody skips a part of the recording."""
    resets = scene.resets()
    scene.bench.leap(3600.0)
    scene.see(above=resets)


@fault(ONE_PERIOD_S, simulated=True)
def simulated_time_leaps_an_hour_back(scene):
    """Another recording is played."""
    resets = scene.resets()
    scene.bench.leap(-3600.0)
    scene.see(above=resets)


@fault(ONE_PERIOD_S, simulated=True)
def clock_ticks_a_thousand_times_a_second(scene):
    """Executors that wake up at every message of /clock have been seen to lose their timers."""
    bench = scene.bench
    bench.sim_runs = False
    time.sleep(0.1)  # a step that is under way
    start = len(bench.heard['status'])
    for millisecond in range(2000):
        bench.tick_clock(10**6)
        if millisecond % 25 == 0:
            bench.publish_odometry(bench.now_ns())
        if millisecond % 100 == 0:
            bench.publish_frame(bench.now_ns())
        time.sleep(0.001)
    ticks = bench.heard['status'][start:]
    assert len(ticks) >= 15, f'{len(ticks)} ticks in 2 s at 10 Hz'
    bench.sim_runs = True


@fault(ONE_PERIOD_S, own_clock=True)
def system_clock_is_set_an_hour_ahead(scene):
    """The machine has found a time server; steady clocks do not notice."""
    resets = scene.resets()
    scene.set_clock(3600)
    scene.see(above=resets)


@fault(ONE_PERIOD_S, own_clock=True)
def system_clock_is_set_an_hour_back(scene):
    """Timers on it would sleep for that hour."""
    resets = scene.resets()
    scene.set_clock(-3600)
    scene.see(above=resets)


@fault(ONE_PERIOD_S, own_clock=True)
def system_clock_is_set_a_second_back(scene):
    """Backward is a jump of any size."""
    resets = scene.resets()
    scene.set_clock(-1)
    scene.see(above=resets)


@fault(ONE_PERIOD_S, own_clock=True)
def system_clock_is_set_a_fifth_of_a_second_back(scene):
    """By less than passes between two looks at it."""
    resets = scene.resets()
    scene.set_clock(-0.2)
    scene.see(above=resets)


@fault(ONE_PERIOD_S)
def process_is_suspended(scene):
    """The machine sleeps for two seconds."""
    pid = scene.planner.process.pid
    os.kill(pid, signal.SIGSTOP)
    time.sleep(2.0)
    os.kill(pid, signal.SIGCONT)


# -- processes ------------------------------------------------------------------------------------


@fault(PROCESS_START_S)
def publisher_is_killed_and_restarted(scene):
    """The process that sends camera and odometry dies without a word and comes back."""

    def start():
        command = [sys.executable, str(HERE / 'publisher.py'), str(scene.bench.start_ns)]
        environment = os.environ | {'PYTHONPATH': os.pathsep.join(filter(None, sys.path))}
        process = subprocess.Popen(command, env=environment)
        scene.afterwards.callback(process.wait)
        scene.afterwards.callback(process.kill)
        return process

    scene.bench.camera_on = scene.bench.odometry_on = False
    scene.see(STOP)
    first = start()
    scene.see(NOMINAL)
    first.send_signal(signal.SIGKILL)
    scene.see(STOP)
    start()


@fault(PROCESS_START_S)
def node_is_killed_and_restarted(scene):
    """The planner dies without a word, and its supervisor starts it again."""
    scene.planner.end(signal.SIGKILL)
    scene.start_planner()


@fault(PROCESS_START_S)
def parameters_are_malformed(scene):
    """A file that is no YAML ends with exit code 2; a bad value is told until it is mended."""
    assert scene.planner.end() == 0, scene.planner.output()
    broken = scene.folder / 'broken.yaml'
    broken.write_text('/**:\n  ros__parameters: {rate_hz: [1, }')
    refused = PlannerProcess(scene.folder, '--params-file', str(broken))
    assert refused.process.wait(60.0) == 2, refused.output()
    scene.start_planner('-p', 'rate_hz:=.nan')
    scene.hear('rate_hz: nan is outside 0.1 … 50.0')
    assert scene.bench.set_parameters(rate_hz=10.0).successful
    assert scene.bench.transition('configure') and scene.bench.transition('activate')


@fault(ONE_PERIOD_S)
def disk_is_full_while_recording(scene):
    """A recorder of all that the planner publishes may write no more than 64 kB."""
    command = [sys.executable, str(HERE / 'full_disk_recorder.py'), str(scene.folder / 'bag')]
    environment = os.environ | {'PYTHONPATH': os.pathsep.join(filter(None, sys.path))}
    recorder = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=90)
    told = recorder.stderr.strip()  # one line, no traceback
    as_it_should = recorder.returncode == 1 and told.count('File too large') == 1
    assert as_it_should, f'exit code {recorder.returncode}: {told[-500:]}'


# -- inference ------------------------------------------------------------------------------------


@fault(ONE_PERIOD_S)
def inference_is_ten_times_slower(scene):
    """Half a second for each plan, five periods."""
    scene.planner.steer(plan_s=0.5)
    scene.see(HELD, 'still busy')
    scene.watch(10)
    scene.planner.steer()


@fault(ONE_PERIOD_S)
def inference_hangs(scene):
    """One inference takes three seconds."""
    scene.planner.steer(plan_s=3.0)
    scene.see(STOP, 'still busy')
    scene.planner.steer()
    scene.see(NOMINAL)


@fault(ONE_PERIOD_S)
def inference_raises(scene):
    """Every inference ends with an exception."""
    scene.planner.steer(plan_error='CUDA out of memory. Tried to allocate 20.00 MiB')
    scene.see(HELD, 'inference failed: RuntimeError: CUDA out of memory')
    scene.see(STOP)
    scene.planner.steer()


@fault(PROCESS_START_S)
def inference_raises_for_ever(scene):
    """The node says so and ends, and its supervisor starts it again."""
    scene.planner.steer(plan_error='CUDA out of memory. Tried to allocate 20.00 MiB')
    scene.see(STOP, 'times in a row, the last time with RuntimeError: CUDA out of memory')
    scene.let_end(INFERENCE_IS_DEAD)


@fault(PROCESS_START_S)
def inference_never_returns(scene):
    """The same, for a model that waits for a device that does not answer."""
    scene.planner.steer(plan_s=1e6)
    scene.see(STOP, 'inference has not returned for')
    scene.let_end(INFERENCE_IS_DEAD)


@fault(PROCESS_START_S)
def inference_loses_its_device(scene):
    """An error of CUDA after which no other process than a new one can compute."""
    scene.planner.steer(plan_error='CUDA error: an illegal memory access was encountered')
    scene.see(STOP, 'inference has lost its device')
    scene.let_end(INFERENCE_IS_DEAD)


@fault(PROCESS_START_S)
def inference_stops_the_interpreter(scene):
    """Foreign code that never returns and keeps Python's lock, so that nothing else runs."""
    scene.planner.steer(hold_interpreter=True)
    scene.let_end(-signal.SIGALRM)


@fault(ONE_PERIOD_S)
def inference_writes_garbage(scene):
    """Answers that are no waypoints."""
    for answer in ('', '1.0,2.0', 'nan,' * 16, '\x00<|im_end|>', '9' * 3000):
        scene.planner.steer(answer=answer)
        scene.see(words='answer refused')
    scene.see(STOP)
    scene.planner.steer()


@fault(ONE_PERIOD_S)
def inference_plans_what_no_vehicle_can_drive(scene):
    """Waypoints behind the vehicle, 200 m away at once, folding back, in a circle, in zigzag."""
    for points in (
        [(-5.0 * i, 0.0) for i in range(1, 9)],
        [(200.0, 0.0)] * 8,
        [(2.5, 0.0), (5.0, 0.0), (2.0, 0.0), (6.0, 0.0), (1.0, 0.0)] + [(8.0, 0.0)] * 3,
        [(0.3, 2.0), (-2.0, 2.5), (-3.0, 0.0), (0.0, -2.0)] * 2,
        [(2.5 * i, 4.0 * (-1) ** i) for i in range(1, 9)],
    ):
        scene.planner.steer(answer=','.join(f'{x},{y}' for x, y in points))
        scene.see(words='plan rejected')
    scene.see(STOP)
    scene.planner.steer()
