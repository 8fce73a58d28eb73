import pytest

pytest.importorskip('rclpy', reason='needs ROS 2')
pytest.importorskip('launch_ros', reason='launch_ros is part of a ROS installation, not a wheel')

from rcl_interfaces.srv import GetParameters

pytestmark = pytest.mark.ros


def test_arguments_reach_both_nodes(launch, ask, tmp_path):
    launch(
        'drive.launch.py',
        'seed:=7',
        'routes:=3',
        'rate:=0.5',
        f'out:={tmp_path}/123',
        'namespace:=car',
        'model_dir:=/no/checkpoint',
    )
    names = ['seed', 'routes', 'rate', 'out', 'publish_clock']
    answer = ask(
        GetParameters, '/car/simulator/get_parameters', GetParameters.Request(names=names)
    )
    seed, routes, rate, out, publish_clock = answer.values
    assert (seed.integer_value, routes.integer_value, rate.double_value) == (7, 3, 0.5)
    assert out.string_value == f'{tmp_path}/123'
    assert publish_clock.bool_value is True
    names = ['use_sim_time', 'model_dir']
    answer = ask(GetParameters, '/car/planner/get_parameters', GetParameters.Request(names=names))
    assert answer.values[0].bool_value is True
    assert answer.values[1].string_value == '/no/checkpoint'
