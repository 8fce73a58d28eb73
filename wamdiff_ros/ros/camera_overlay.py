"""The plan in force, painted into the first camera's newest picture, as an image topic for RViz.

Off by default, for painting takes time from the planner's cores. A thread of its own paints, at a
low rate and only while somebody listens; nothing waits for it.
"""

import array
import threading
import traceback

import cv2
import numpy as np
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rclpy.subscription import Subscription
from sensor_msgs.msg import CameraInfo, Image
from std_msgs.msg import Header

from ..observation.camera_info import pinhole_of, way_up
from ..observation.image_decoding import ImageError
from ..observation.not_ready import NotReady
from ..observation.synchronizer import Synchronizer
from ..parameters import Parameters
from ..pictures.overlay_painter import (
    NO_CAMERA_INFO,
    VIDEO_WIDTH,
    Instant,
    OverlayPainter,
    video_camera,
)
from ..planning.figure import Footprint, drawn_plan, in_base
from ..types import EgoState
from .conversion import time_message
from .outputs import Outputs
from .qos import LATCHED

TOPIC = '~/overlay'
WIDTH = 640  # half the size in which the words are set
_BEST_EFFORT = QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)
# A vehicle's tree of fixed transforms may come from several publishers.
_STATIC_TRANSFORMS = QoSProfile(depth=100, durability=DurabilityPolicy.TRANSIENT_LOCAL)


class CameraOverlay:
    """Publishes `~/overlay` from construction until `destroy`; `poll` is called once a second.

    Shows the newest report of `outputs`. The camera is that of the CameraInfo beside the image
    topic, mounted as /tf_static says where tf2_msgs is installed. What is assumed in place of
    either is told in the picture and by `describe`.
    """

    def __init__(
        self, node: Node, parameters: Parameters, synchronizer: Synchronizer, outputs: Outputs
    ) -> None:
        camera = parameters.camera_settings[0]
        self._node, self._outputs = node, outputs
        self._frames, self._ego = synchronizer.frames[camera.name], synchronizer.ego
        self._footprint = Footprint.of(parameters)
        self._info: CameraInfo | None = None
        self._transforms: dict[str, object] = {}  # by child frame
        self._painter: OverlayPainter | None = None
        self._painted_stamp_ns = 0
        self._publisher = node.create_publisher(Image, TOPIC, 2)
        self._info_topic = node.resolve_topic_name(info_topic(camera.topic))
        self._info_subscription: Subscription | None = None
        self._transform_subscription = self._listen_to_transforms()
        self.poll()
        self._ending = threading.Event()
        self._period_s = 1 / parameters.overlay_rate_hz
        self._thread = threading.Thread(target=self._run, name='camera_overlay', daemon=True)
        self._thread.start()

    def destroy(self) -> None:
        """Stop painting, and take back publisher and subscriptions."""
        self._ending.set()
        self._thread.join()
        for subscription in (self._info_subscription, self._transform_subscription):
            if subscription is not None:
                self._node.destroy_subscription(subscription)
        self._node.destroy_publisher(self._publisher)

    def poll(self) -> None:
        """Subscribe to the CameraInfo once there is one, in the way that it is offered."""
        if self._info_subscription is not None:
            return
        for info in self._node.get_publishers_info_by_topic(self._info_topic)[:1]:
            # Simulators and bags latch it; drivers send it with every picture.
            latched = info.qos_profile.durability == DurabilityPolicy.TRANSIENT_LOCAL
            self._info_subscription = self._node.create_subscription(
                CameraInfo, self._info_topic, self._on_info, LATCHED if latched else _BEST_EFFORT
            )

    def describe(self) -> dict[str, str]:
        """Return for diagnostics where it is known from how the camera sits: tf, or assumed."""
        ego = self._ego.newest()
        note = self._note('base_link' if ego is None else ego.base_frame)
        return {'overlay_mount': f'assumed; {note}' if note else 'tf'}

    def _note(self, base_frame: str) -> str:
        """Say what is assumed of the camera, or ''."""
        if self._info is None:
            return NO_CAMERA_INFO
        frame = self._info.header.frame_id
        chain = way_up(frame, self._transforms.values(), base_frame)
        end = chain[-1].header.frame_id if chain else frame
        if end == base_frame:
            return ''
        if self._transform_subscription is None:
            return 'tf2_msgs is not installed: a camera mounted level is assumed'
        if not chain:
            return f'/tf_static does not place {frame}: a camera mounted level is assumed'
        return f'/tf_static leads to {end}, not to {base_frame}: the two are assumed to be one'

    def _listen_to_transforms(self) -> Subscription | None:
        try:
            from tf2_msgs.msg import TFMessage
        except ImportError:
            return None
        return self._node.create_subscription(
            TFMessage, '/tf_static', self._on_transforms, _STATIC_TRANSFORMS
        )

    def _on_info(self, message: CameraInfo) -> None:
        if self._info is None or message.k.tolist() != self._info.k.tolist():
            self._info, self._painter = message, None

    def _on_transforms(self, message) -> None:
        for stamped in message.transforms:
            self._transforms = {**self._transforms, stamped.child_frame_id: stamped}
        self._painter = None

    # -- in the thread ------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._ending.wait(self._period_s):
            try:
                if self._publisher.get_subscription_count():
                    self._paint()
            except (NotReady, ImageError):
                continue  # the planner says why there is nothing to see
            except Exception:  # a picture less, said aloud; the planner has no part in it
                if not self._node.context.ok():
                    return  # the process ends
                self._node.get_logger().error(traceback.format_exc(), throttle_duration_sec=5.0)

    def _paint(self) -> None:
        frame = self._frames.newest_before(self._node.get_clock().now().nanoseconds)
        if frame is None or frame.stamp_ns == self._painted_stamp_ns:
            return
        self._painted_stamp_ns = frame.stamp_ns
        ego = self._ego.at(frame.stamp_ns)
        rgb = frame.decode()
        painter = self._painter or self._new_painter(rgb.shape[:2], ego)
        report, plan = self._outputs.newest, None
        if report is not None and report.publication.plan is not None:
            published = report.publication.plan
            plan = in_base(drawn_plan(report.publication, published.ego), ego)
        instant = Instant(rgb, ego.speed_mps, plan, np.zeros((0, 3)), self._outputs.said)
        picture = painter.paint(instant)
        height = round(picture.shape[0] * WIDTH / VIDEO_WIDTH)
        picture = cv2.resize(picture, (WIDTH, height), interpolation=cv2.INTER_AREA)
        header = Header(
            stamp=time_message(frame.stamp_ns),
            frame_id='' if self._info is None else self._info.header.frame_id,
        )
        self._publisher.publish(image_message(header, picture))

    def _new_painter(self, shape: tuple[int, int], ego: EgoState) -> OverlayPainter:
        height, width = shape
        info, camera = self._info, None
        if info is not None:
            camera = pinhole_of(info, self._transforms.values(), ego.base_frame)
        camera = video_camera(camera, width, height)
        self._painter = OverlayPainter(camera, self._note(ego.base_frame), self._footprint)
        return self._painter


def info_topic(image_topic: str) -> str:
    """Return the name of the CameraInfo that goes with an image topic, as image_transport does."""
    base = image_topic.removesuffix('/compressed')
    folder, slash, _ = base.rpartition('/')
    return f'{folder}{slash}camera_info'


def image_message(header: Header, rgb: np.ndarray) -> Image:
    """Return a uint8 picture [height, width, 3] as rgb8.

    An array is taken over as it is; Humble checks the bytes of anything else one by one.
    """
    height, width, _ = rgb.shape
    message = Image(header=header, height=height, width=width, encoding='rgb8', step=3 * width)
    message.data = array.array('B', rgb.tobytes())
    return message
