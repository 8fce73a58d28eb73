"""One planner process and one bench for the tests that only steer them."""

import pytest

pytest.importorskip('rclpy', reason='needs ROS 2 (rclpy), see scripts/test')
pytest.importorskip('wamdiff_ros.msg', reason='needs the built messages, see scripts/test')


@pytest.fixture(scope='module')
def bench():
    from planner_bench import Bench

    bench = Bench()
    yield bench
    bench.close()


@pytest.fixture(scope='module')
def planner(bench, tmp_path_factory):
    """A node that started itself and has planned."""
    from planner_bench import PlannerProcess

    planner = PlannerProcess(tmp_path_factory.mktemp('planner'), '-p', 'autostart:=true')
    yield planner
    before = len(planner.output())
    assert planner.end() == 0, planner.output()
    assert 'Traceback' not in planner.output()[before:]


@pytest.fixture
def planning(bench, planner):
    """Both, in the state that every test begins with: all inputs there, planning NOMINAL."""
    from planner_bench import time_ns
    from wamdiff_ros.msg import PlannerStatus

    planner.steer()
    bench.restore()
    restored_ns = bench.now_ns()
    bench.enable(True)
    # From a frame of now, so that whatever the test before has stirred up is over.
    bench.next_status(
        lambda m: m.state == PlannerStatus.NOMINAL and time_ns(m.t0) > restored_ns, 'planning'
    )
    return bench, planner
