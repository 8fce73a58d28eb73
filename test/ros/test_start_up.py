"""Parameters from the command line and from YAML, several cameras, simulated time."""

import os
import signal
import sys
import time
from itertools import pairwise

import numpy as np
import pytest
from faults.resources import cpu_seconds
from planner_bench import Bench, PlannerProcess, duration_s, stamp_ns
from wamdiff_ros.msg import PlannerStatus

from wamdiff_ros.ros.planner_node import MissingPackage, load_session

pytestmark = pytest.mark.ros

PERIOD_NS = 100_000_000


@pytest.fixture
def start(tmp_path):
    """Start benches and planners that end with the test."""
    benches, planners = [], []

    def start(*arguments, **bench_options):
        benches.append(Bench(**bench_options))
        planners.append(PlannerProcess(tmp_path, '-p', 'autostart:=true', *arguments))
        return benches[-1], planners[-1]

    yield start
    codes = [planner.end() for planner in planners]
    for bench in benches:
        bench.close()
    assert codes == [0] * len(codes), [planner.output() for planner in planners]


def test_cameras_from_the_command_line(start):
    bench, _ = start(
        '-p',
        'cameras:=[front,left]',
        '-p',
        'camera.left.topic:=/somewhere/else',
        '-p',
        'rate_hz:=5',
    )
    bench.next_status(
        lambda m: 'no frame from camera left yet (topic /somewhere/else)' in m.reason, 'waiting'
    )
    assert bench.get_parameter('cameras') == ['front', 'left']
    assert bench.get_parameter('camera.left.topic') == '/somewhere/else'


def test_all_cameras_and_the_measured_acceleration_reach_the_session(start):
    bench, _ = start('-p', 'cameras:=[front,left]', '-p', 'camera.left.topic:=/side')
    bench.add_side_camera('/side')
    bench.acceleration = (-1.5, 0.25)
    status = bench.next_status(lambda m: '(-1.5, 0.25)' in m.answer, 'planning with both')
    assert status.answer.endswith(' 2 (-1.5, 0.25)')  # two frames
    values = bench.values_while_planning()
    assert values['left.skew_s'] == '0.000'
    assert 0 <= float(values['left.age_s']) < 1
    assert 0 <= float(values['acceleration.age_s']) < 1
    assert 1 < float(values['acceleration.rate_hz']) < 100


def test_diagnostics_come_from_the_first_second_on_and_once_a_second(tmp_path):
    bench = Bench()
    planner = PlannerProcess(tmp_path, '-p', 'autostart:=true', load_s=1e6, ignore_cancel=True)
    bench.wait(lambda: 'planner' in bench.node.get_node_names(), 'the node')
    bench.wait(lambda: bench.heard['diagnostics'], 'the first', timeout_s=10.0)
    bench.wait(lambda: len(bench.heard['diagnostics']) >= 6, 'six')
    assert planner.end() == 0, planner.output()
    bench.close()
    first = bench.heard['diagnostics'][0].status[0]
    assert bench.diagnostic_values(first)['state'] in ('unconfigured', 'configuring')
    gaps_s = [
        (stamp_ns(b) - stamp_ns(a)) / 1e9 for a, b in pairwise(bench.heard['diagnostics'][:6])
    ]
    assert 0.5 < np.median(gaps_s) < 2.0  # a busy machine is late now and then


def test_parameters_from_yaml(start, tmp_path):
    path = tmp_path / 'planner.yaml'
    path.write_text(
        """
/**:
  ros__parameters:
    cameras: [middle]
    camera:
      middle: {topic: camera/front/image, transport: raw}
    rate_hz: 5
    deadline_s: 0.2
    trajectory_frame: base
    point_interval_s: 0.5
"""
    )
    bench, _ = start('--params-file', str(path))
    status = bench.next_status(lambda m: m.state == PlannerStatus.NOMINAL, 'planning')
    trajectory = bench.trajectory_of(status)
    assert trajectory.header.frame_id == 'base_link'
    assert (trajectory.points[0].pose.position.x, trajectory.points[0].pose.position.y) == (0, 0)
    assert len(trajectory.points) == 9
    # A deadline of a whole period falls on the next tick and is still served, once.
    ticks = [m.tick for m in bench.heard['status']]
    assert ticks == list(range(ticks[0], ticks[0] + len(ticks)))
    assert duration_s(trajectory.age) >= 0.2


def test_unknown_name_in_the_parameters_is_refused(start):
    bench, _ = start('-p', 'rate_hertz:=10.0')
    bench.next_diagnosis(
        lambda d: d.level == d.ERROR and d.message == 'rate_hertz: no such parameter', 'the reason'
    )
    assert bench.state() == 'unconfigured'


def test_compressed_images_are_found_out_from_the_topic(start):
    bench, _ = start('-p', 'fallback:=silent', jpeg=True)
    bench.next_status(lambda m: m.state == PlannerStatus.NOMINAL, 'planning')
    bench.camera_on = False
    stop = bench.next_status(lambda m: m.state == PlannerStatus.FALLBACK_STOP, 'fallback')
    assert 'nothing is published (fallback: silent)' in stop.reason
    bench.next_status(lambda m: m.tick >= stop.tick + 3, 'three more ticks')
    assert max(m.sequence for m in bench.heard['trajectory']) < stop.tick


def test_topic_of_another_type_than_insisted_on_is_an_error(start):
    bench, _ = start('-p', 'camera.front.transport:=raw', jpeg=True)
    bench.next_diagnosis(
        lambda d: (
            d.level == d.ERROR
            and d.message.startswith(
                '/camera/front/image: node bench publishes sensor_msgs/msg/CompressedImage, '
                'wanted sensor_msgs/msg/Image'
            )
        ),
        'the reason',
    )


def test_qos_can_be_overridden_and_what_does_not_fit_is_named(start):
    bench, _ = start('-p', 'qos_overrides./odometry.subscription.reliability:=reliable')
    # The name of a publisher's node comes a little later than the publisher.
    complaint = '/odometry: node bench publishes with incompatible QoS'
    diagnosis = bench.next_diagnosis(lambda d: complaint in d.message, 'the complaint')
    assert diagnosis.level == diagnosis.ERROR
    bench.next_status(lambda m: 'no odometry yet' in m.reason, 'waiting for it')


def test_inputs_that_are_lost_after_a_reset_are_an_error_and_not_a_wait(start):
    bench, _ = start()
    bench.next_status(lambda m: m.state == PlannerStatus.NOMINAL, 'planning')
    bench.camera_on = False
    assert bench.reset().success
    bench.next_diagnosis(
        lambda d: d.level == d.ERROR and d.message.startswith('LOST: no frame from camera front'),
        'the loss',
    )
    bench.camera_on = True
    bench.values_while_planning()


def test_odometry_that_leaps_resets_the_stream_once_and_planning_goes_on(start):
    bench, planner = start()
    bench.next_status(lambda m: m.state == PlannerStatus.NOMINAL, 'planning')
    bench.start_ns -= 20 * 10**9  # 100 m on
    status = bench.next_status(
        lambda m: m.state == PlannerStatus.NOMINAL and m.stream_resets, 'planning again'
    )
    assert status.stream_resets == 1
    assert 'stream reset: odometry jumped by 100.' in planner.output()


def test_node_that_is_not_active_leaves_the_processor_alone(start, tmp_path):
    bench, planner = start('-p', 'rate_hertz:=10.0')  # refused: it stays unconfigured
    bench.next_diagnosis(lambda d: d.level == d.ERROR, 'the reason')
    before_s, began_s = cpu_seconds(planner.process.pid), time.monotonic()
    time.sleep(2.0)
    share = (cpu_seconds(planner.process.pid) - before_s) / (time.monotonic() - began_s)
    assert share < 0.5  # one that polls takes all of it


def test_missing_torch_is_named_with_the_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, 'wamdiff_ros.runtime.session', None)
    with pytest.raises(MissingPackage, match=r'runtime\.session.*requirements/runtime\.txt'):
        load_session(None)


def test_process_that_was_stopped_goes_on_with_the_next_tick(start):
    bench, planner = start()
    before = bench.next_status(lambda m: m.state == PlannerStatus.NOMINAL, 'planning')
    os.kill(planner.process.pid, signal.SIGSTOP)
    time.sleep(0.5)
    os.kill(planner.process.pid, signal.SIGCONT)
    back_ns = time.time_ns()
    bench.next_status(
        lambda m: m.state == PlannerStatus.NOMINAL and stamp_ns(m) > back_ns, 'planning again'
    )
    ticks = [m for m in bench.heard['status'] if m.tick >= before.tick]
    assert [m.tick for m in ticks] == list(range(ticks[0].tick, ticks[-1].tick + 1))
    missed = sum((stamp_ns(b) - stamp_ns(a)) // PERIOD_NS - 1 for a, b in pairwise(ticks))
    assert missed >= 3
    diagnosis = bench.next_diagnosis(lambda d: True, 'the counters')
    values = {entry.key: entry.value for entry in diagnosis.values}
    assert int(values['late_instants']) >= missed


def test_simulated_time_that_jumps_back_resets_the_stream_and_goes_on(start):
    bench, planner = start('-p', 'use_sim_time:=true', simulated=True)
    before = bench.next_status(lambda m: m.state == PlannerStatus.NOMINAL, 'planning')
    assert before.stream_resets == 0  # the first /clock is no jump
    assert before.header.stamp.sec < 2000
    bench.leap(-5.0)
    after = bench.next_status(lambda m: m.stream_resets == 1, 'the reset')
    assert after.tick > before.tick
    assert 'stream reset: the clock jumped by -' in planner.output()
    again = bench.next_status(
        lambda m: m.state == PlannerStatus.NOMINAL and m.stream_resets == 1, 'planning again'
    )
    assert again.header.stamp.sec < before.header.stamp.sec
    ticks = [m.tick for m in bench.heard['status']]
    assert ticks == list(range(ticks[0], ticks[0] + len(ticks)))

    bench.leap(60.0)
    bench.next_status(lambda m: m.stream_resets == 2, 'the reset after a leap')
    bench.next_status(lambda m: m.state == PlannerStatus.NOMINAL, 'planning after the leap')

    bench.sim_runs = False
    bench.next_diagnosis(lambda d: 'simulated time has stood still' in d.message, 'the pause')
    bench.sim_runs = True
    bench.next_status(lambda m: m.state == PlannerStatus.NOMINAL, 'planning after the pause')
    bench.sim_runs = False  # and the process must end while time stands still


def test_simulated_time_that_begins_at_zero_starts_the_ticks(start):
    bench, _ = start('-p', 'use_sim_time:=true', simulated=True, sim_start_ns=0)
    bench.sim_runs = False  # so that it does not begin with a jump for the planner
    bench.wait(lambda: bench.state() == 'active', 'the planner')
    bench.sim_runs = True
    first = bench.next_status(lambda m: m.state == PlannerStatus.NOMINAL, 'planning')
    assert first.header.stamp.sec < 100
    assert first.stream_resets == 0


def test_what_came_before_the_first_clock_is_forgotten_when_time_begins(start):
    """A sensor driver on the system clock, whose stamps nothing could be compared with yet."""
    bench, _ = start('-p', 'use_sim_time:=true', simulated=True)
    bench.sim_runs = False
    bench.wait(lambda: bench.state() == 'active', 'the planner')

    def taken():
        hour_ns = 3600 * 10**9
        bench.publish_frame(bench.now_ns() + hour_ns)
        bench.publish_odometry(bench.now_ns() + hour_ns)
        if not bench.heard['diagnostics']:
            return False
        values = bench.diagnostic_values(bench.heard['diagnostics'][-1].status[0])
        return int(values['front.received']) and int(values['odometry.received'])

    bench.wait(taken, 'messages before time')
    bench.sim_runs = True
    first = bench.next_status(lambda m: m.state == PlannerStatus.NOMINAL, 'planning')
    assert first.stream_resets == 0
