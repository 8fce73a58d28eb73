import time

import pytest

pytest.importorskip('rclpy', reason='needs ROS 2')
pytest.importorskip('launch_ros', reason='launch_ros is part of a ROS installation, not a wheel')

from rcl_interfaces.srv import GetParameters
from recording import sensor_bag

pytestmark = pytest.mark.ros

TIMEOUT_S = 60


def test_the_bag_is_played_on_its_own_clock_into_the_planner(launch, ask, node):
    from rosgraph_msgs.msg import Clock

    clocks = []
    node.create_subscription(Clock, '/clock', clocks.append, 10)
    launch(
        'replay.launch.py',
        f'bag:={sensor_bag()}',
        'namespace:=car',
        'model_dir:=/no/checkpoint',
        'image_topic:=/camera/front/image',
        'odometry_topic:=/odometry',
    )
    names = ['use_sim_time', 'model_dir']
    answer = ask(GetParameters, '/car/planner/get_parameters', GetParameters.Request(names=names))
    assert answer.values[0].bool_value is True
    assert answer.values[1].string_value == '/no/checkpoint'
    # The player waits for the planner, which has no checkpoint to activate with.
    deadline = time.monotonic() + TIMEOUT_S
    missing = ['/car/camera/front/image', '/car/odometry', '/clock']
    while time.monotonic() < deadline and missing:
        missing = [topic for topic in missing if not node.get_publishers_info_by_topic(topic)]
        time.sleep(0.1)
    assert not missing, 'the player has not started'
    assert not clocks
