"""The overlay without DDS: a node that keeps what is subscribed to and published."""

import array
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from drawn_plans import EGO, T0_NS, publication
from geometry_msgs.msg import TransformStamped
from rclpy.qos import DurabilityPolicy, ReliabilityPolicy
from sensor_msgs.msg import CameraInfo
from std_msgs.msg import Header

from wamdiff_ros.observation.frame_buffer import EncodedFrame
from wamdiff_ros.observation.synchronizer import Synchronizer
from wamdiff_ros.parameters import Parameters
from wamdiff_ros.ros.camera_overlay import CameraOverlay, image_message, info_topic

pytestmark = pytest.mark.ros

GREY = np.full((96, 160, 3), 90, np.uint8)
OPTICAL = (-0.5, 0.5, -0.5, 0.5)  # x, y, z, w of a camera that looks level ahead


class KeepingNode:
    """`publishers` are what the graph has on any topic; `heard` the callbacks by topic."""

    def __init__(self, publishers=()):
        self.publishers, self.heard, self.qos, self.sent = publishers, {}, {}, []
        self.destroyed = 0

    def create_publisher(self, kind, topic, qos):
        return SimpleNamespace(publish=self.sent.append, get_subscription_count=lambda: 0)

    def create_subscription(self, kind, topic, callback, qos):
        self.heard[topic], self.qos[topic] = callback, qos
        return topic

    def destroy_publisher(self, publisher):
        self.destroyed += 1

    destroy_subscription = destroy_publisher

    def resolve_topic_name(self, name):
        return f'/{name}'

    def get_publishers_info_by_topic(self, topic):
        return list(self.publishers)

    def get_clock(self):
        return SimpleNamespace(now=lambda: SimpleNamespace(nanoseconds=T0_NS + 10**8))


@pytest.fixture
def tf2(monkeypatch):
    module = ModuleType('tf2_msgs.msg')
    module.TFMessage = SimpleNamespace
    monkeypatch.setitem(sys.modules, 'tf2_msgs', ModuleType('tf2_msgs'))
    monkeypatch.setitem(sys.modules, 'tf2_msgs.msg', module)


@pytest.fixture
def overlay():
    """Return a function that makes an overlay on a node, of one frame and a plan at T0."""
    made = []

    def make(node):
        parameters = Parameters.from_mapping({'overlay_rate_hz': 0.001})  # paints when asked
        synchronizer = Synchronizer(parameters)
        synchronizer.frames['front'].add(EncodedFrame(T0_NS, 'front', lambda: GREY))
        synchronizer.ego.add(EGO)
        outputs = SimpleNamespace(newest=SimpleNamespace(publication=publication()), said='words')
        made.append(CameraOverlay(node, parameters, synchronizer, outputs))
        return made[-1]

    yield make
    for overlay in made:
        overlay.destroy()


def info():
    message = CameraInfo(width=160, height=96, header=Header(frame_id='camera_optical'))
    message.k = [80.0, 0.0, 79.5, 0.0, 80.0, 47.5, 0.0, 0.0, 1.0]
    return message


def mounted(height_m):
    stamped = TransformStamped(child_frame_id='camera_optical')
    stamped.header.frame_id = 'base_link'
    q, t = stamped.transform.rotation, stamped.transform.translation
    q.x, q.y, q.z, q.w = OPTICAL
    t.x, t.z = 1.5, height_m
    return SimpleNamespace(transforms=[stamped])


def tinted_rows(node):
    """Return the first and last row of the newest picture that the ribbon has, of the frame's."""
    message = node.sent[-1]
    rgb = np.array(message.data, np.uint8).reshape(message.height, message.width, 3)[:384, :500]
    rows = np.flatnonzero(np.ptp(rgb[160:].astype(int), axis=2).max(axis=1) > 25) + 160
    return rows.min(), rows.max()


def offered(durability):
    return SimpleNamespace(qos_profile=SimpleNamespace(durability=durability))


def test_the_camera_sits_where_the_fixed_transforms_say(overlay, tf2):
    node = KeepingNode([offered(DurabilityPolicy.VOLATILE)])
    overlay = overlay(node)
    tops = []
    for height_m in (1.5, 6.0):
        node.heard['/camera/front/camera_info'](info())
        node.heard['/tf_static'](mounted(height_m))
        overlay._painted_stamp_ns = 0
        overlay._paint()
        tops.append(tinted_rows(node)[0])
    assert node.sent[-1].header.frame_id == 'camera_optical'
    # 6 m up, the plan's end 31 m ahead is 4.5 / 31 of the focal length lower in the picture.
    assert tops[1] - tops[0] == pytest.approx(4.5 / 30 * 320, abs=25)


def test_what_is_assumed_of_the_camera_is_told_until_it_is_known(overlay, tf2):
    node = KeepingNode([offered(DurabilityPolicy.VOLATILE)])
    overlay = overlay(node)

    def told():
        """Return the same from diagnostics and from the picture."""
        overlay._painted_stamp_ns, overlay._painter = 0, None
        overlay._paint()
        mount = overlay.describe()['overlay_mount']
        assert mount == (f'assumed; {overlay._painter._note}' if overlay._painter._note else 'tf')
        return mount

    assert told() == 'assumed; no CameraInfo: a level camera is assumed'
    node.heard['/camera/front/camera_info'](info())
    assert told() == (
        'assumed; /tf_static does not place camera_optical: a camera mounted level is assumed'
    )
    on_a_mast = mounted(1.5)
    on_a_mast.transforms[0].header.frame_id = 'mast'
    node.heard['/tf_static'](on_a_mast)
    assert told() == (
        'assumed; /tf_static leads to mast, not to base_link: the two are assumed to be one'
    )
    node.heard['/tf_static'](mounted(1.5))
    assert told() == 'tf'


def test_without_tf2_msgs_the_mount_is_assumed_and_told(overlay, monkeypatch):
    monkeypatch.setitem(sys.modules, 'tf2_msgs.msg', None)
    node = KeepingNode([offered(DurabilityPolicy.VOLATILE)])
    overlay = overlay(node)
    node.heard['/camera/front/camera_info'](info())
    assert overlay.describe() == {
        'overlay_mount': 'assumed; tf2_msgs is not installed: a camera mounted level is assumed'
    }


@pytest.mark.parametrize(
    ('durability', 'reliability'),
    [
        (DurabilityPolicy.VOLATILE, ReliabilityPolicy.BEST_EFFORT),
        (DurabilityPolicy.TRANSIENT_LOCAL, ReliabilityPolicy.RELIABLE),
    ],
)
def test_camera_info_is_taken_as_it_is_offered(overlay, durability, reliability):
    node = KeepingNode()
    overlay = overlay(node)
    assert '/camera/front/camera_info' not in node.heard
    node.publishers = [offered(durability)]
    overlay.poll()
    qos = node.qos['/camera/front/camera_info']
    assert (qos.durability, qos.reliability) == (durability, reliability)


def test_a_frame_is_painted_once(overlay):
    node = KeepingNode()
    overlay = overlay(node)
    overlay._paint()
    overlay._paint()
    assert len(node.sent) == 1


@pytest.mark.parametrize(
    ('image', 'wanted'),
    [
        ('camera/front/image', 'camera/front/camera_info'),
        ('/front/image_raw/compressed', '/front/camera_info'),
        ('image', 'camera_info'),
    ],
)
def test_camera_info_is_looked_for_beside_the_image(image, wanted):
    assert info_topic(image) == wanted


def test_pixels_travel_as_an_array_of_bytes():
    rgb = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)
    message = image_message(Header(), rgb)
    assert isinstance(message.data, array.array) and message.data.typecode == 'B'
    assert (message.height, message.width, message.step) == (2, 3, 9)
    assert message.data.tobytes() == rgb.tobytes()
