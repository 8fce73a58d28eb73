"""The node with every output on: its camera overlay, and its interfaces against the policy."""

import importlib.util
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
from planner_bench import Bench, PlannerProcess, stamp_ns, time_ns
from sensor_msgs.msg import CameraInfo, Image
from wamdiff_ros.msg import PlannerStatus

pytestmark = pytest.mark.ros

POLICY = Path(__file__).parents[2] / 'config' / 'security_policy.xml'
WIDTH, HEIGHT = 160, 96


def is_there(module):
    return importlib.util.find_spec(module) is not None


@pytest.fixture(scope='module')
def bench():
    bench = Bench(simulated=True)
    bench.heard['overlay'] = []
    bench.node.create_subscription(Image, 'planner/overlay', bench.heard['overlay'].append, 5)
    bench.frame_size = (WIDTH, HEIGHT)
    yield bench
    bench.close()


@pytest.fixture(scope='module')
def planner(bench, tmp_path_factory):
    planner = PlannerProcess(
        tmp_path_factory.mktemp('planner'), '-p', 'autostart:=true', '-p', 'use_sim_time:=true',
        '-p', 'overlay_rate_hz:=5.0',
    )  # fmt: skip
    bench.next_status(lambda m: m.state == PlannerStatus.NOMINAL, 'planning')
    yield planner
    assert planner.end() == 0, planner.output()
    assert 'Traceback' not in planner.output()


def next_overlay(bench, condition=lambda message: True):
    start = len(bench.heard['overlay'])
    return bench.wait(
        lambda: next((m for m in bench.heard['overlay'][start:] if condition(m)), None),
        'an overlay',
    )


def pixels_of(message):
    return np.array(message.data, np.uint8).reshape(message.height, message.width, 3)


def spread_of(message):
    """How far the picture is from grey, as those of the camera are."""
    rgb = pixels_of(message)
    return rgb.max(axis=2).astype(int) - rgb.min(axis=2)


def test_the_overlay_shows_the_plan_in_a_frame_of_the_camera(bench, planner):
    def has_ribbon(message):
        return (spread_of(message)[300:384, 280:360] > 25).mean() > 0.8  # right ahead

    message = next_overlay(bench, has_ribbon)
    assert stamp_ns(message) in bench.frame_stamps_ns
    assert (message.width, message.encoding, message.step) == (640, 'rgb8', 3 * 640)
    assert message.height == round((640 * HEIGHT / WIDTH * 2 + 104) / 2)
    assert (spread_of(message)[200:384, :60] < 8).mean() > 0.9


def test_the_overlay_and_diagnostics_say_what_is_assumed_of_the_camera(bench, planner):
    def note(message):
        """How much of the place of the note has its brown."""
        rgb = pixels_of(message)
        return (np.abs(rgb[29:46, 8:200].astype(int) - (120, 72, 12)).max(axis=2) < 10).mean()

    def told(words):
        return bench.next_diagnosis(
            lambda d: words in bench.diagnostic_values(d).get('overlay_mount', ''), words
        )

    assert note(next_overlay(bench)) > 0.3
    told('assumed; no CameraInfo')
    info = bench.node.create_publisher(CameraInfo, 'camera/front/camera_info', 5)
    message = CameraInfo(width=WIDTH, height=HEIGHT)
    message.header.frame_id = 'camera_front_optical'
    message.k = [80.0, 0.0, 79.5, 0.0, 80.0, 47.5, 0.0, 0.0, 1.0]

    def with_info():
        info.publish(message)
        newest = bench.heard['overlay'][-1]
        return newest if newest.header.frame_id == 'camera_front_optical' else None

    described = bench.wait(with_info, 'an overlay with the camera described')
    assert note(described) > 0.3  # for nobody says where it sits
    told('assumed; /tf_static does' if is_there('tf2_msgs') else 'assumed; tf2_msgs is not')


def test_the_overlay_ends_with_the_planning_and_starts_again(bench, planner):
    assert bench.transition('deactivate')
    bench.wait(lambda: bench.node.count_publishers('planner/overlay') == 0, 'no publisher')
    assert bench.transition('activate')
    active_ns = bench.now_ns()
    next_overlay(bench, lambda message: time_ns(message.header.stamp) > active_ns)


def test_the_security_policy_lists_exactly_the_interfaces_of_the_node(bench, planner):
    policy, node = allowed(), bench.node
    wanted_subscription = '/camera/front/camera_info'
    bench.wait(lambda: node.count_subscribers(wanted_subscription), 'the last subscription')
    real = {
        'publish': node.get_publisher_names_and_types_by_node('planner', '/'),
        'subscribe': node.get_subscriber_names_and_types_by_node('planner', '/'),
        'reply': node.get_service_names_and_types_by_node('planner', '/'),
    }
    absent = {'publish': set(), 'subscribe': set(), 'reply': set()}
    if not is_there('autoware_planning_msgs'):
        absent['publish'].add('/planner/autoware_trajectory')
    if not is_there('tf2_msgs'):
        absent['subscribe'].add('/tf_static')
    if not is_there('rclpy.type_description_service'):  # Humble
        absent['reply'].add('/planner/get_type_description')
    for direction, interfaces in real.items():
        names = {name for name, _ in interfaces}
        assert policy[direction] - absent[direction] == names, direction
    clients = node.get_client_names_and_types_by_node('planner', '/')
    assert not clients, 'the policy lets the node call nobody'


def allowed():
    """Return direction -> full names that the policy allows."""
    [profile] = ElementTree.parse(POLICY).getroot().iter('profile')
    found = {'publish': set(), 'subscribe': set(), 'reply': set()}
    for group in profile:
        assert set(group.attrib.values()) == {'ALLOW'}
        for direction in group.attrib:
            names = [element.text for element in group]
            assert len(names) == len(set(names))
            found[direction] |= {full_name(name, profile) for name in names}
    return found


def full_name(name, profile):
    if name.startswith('/'):
        return name
    namespace = profile.get('ns').rstrip('/')
    return f'{namespace}/{name.replace("~", profile.get("node"))}'
