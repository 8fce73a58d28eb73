"""Parameters from the command line and from YAML, several cameras, simulated time."""

import pytest
from planner_bench import Bench, PlannerProcess
from wamdiff_ros.msg import PlannerStatus

pytestmark = pytest.mark.ros


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
    trajectory_frame: base
    point_interval_s: 0.5
"""
    )
    bench, _ = start('--params-file', str(path))
    bench.next_status(lambda m: m.state == PlannerStatus.NOMINAL, 'planning')
    trajectory = bench.heard['trajectory'][-1]
    assert trajectory.header.frame_id == 'base_link'
    assert (trajectory.points[0].pose.position.x, trajectory.points[0].pose.position.y) == (0, 0)
    assert len(trajectory.points) == 9


def test_unknown_name_in_the_parameters_is_refused(start):
    bench, _ = start('-p', 'rate_hertz:=10.0')
    bench.next_diagnosis(
        lambda d: d.level == d.ERROR and d.message == 'rate_hertz: no such parameter', 'the reason'
    )
    assert bench.state() == 'unconfigured'


def test_simulated_time_that_jumps_back_resets_the_stream_and_goes_on(start):
    bench, planner = start('-p', 'use_sim_time:=true', simulated=True)
    before = bench.next_status(lambda m: m.state == PlannerStatus.NOMINAL, 'planning')
    assert before.stream_resets == 0  # the first /clock is no jump
    assert before.header.stamp.sec < 2000
    bench.sim_time_ns -= 5_000_000_000
    after = bench.next_status(lambda m: m.stream_resets == 1, 'the reset')
    assert after.tick > before.tick
    assert 'stream reset: the clock jumped by -' in planner.output()
    again = bench.next_status(
        lambda m: m.state == PlannerStatus.NOMINAL and m.stream_resets == 1, 'planning again'
    )
    assert again.header.stamp.sec < before.header.stamp.sec
    ticks = [m.tick for m in bench.heard['status']]
    assert ticks == list(range(ticks[0], ticks[0] + len(ticks)))

    bench.sim_runs = False
    bench.next_diagnosis(lambda d: 'simulated time has stood still' in d.message, 'the pause')
    bench.sim_runs = True
    bench.next_status(lambda m: m.state == PlannerStatus.NOMINAL, 'planning after the pause')
    bench.sim_runs = False  # and the process must end while time stands still
