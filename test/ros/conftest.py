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
    from wamdiff_ros.msg import PlannerStatus

    planner.steer()
    bench.camera_on = bench.odometry_on = True
    bench.frame_size, bench.encoding = (64, 48), 'rgb8'
    bench.next_status(lambda m: m.state == PlannerStatus.NOMINAL, 'planning')
    return bench, planner
