"""What a simulated vehicle publishes: pictures, motion, the route's command, and the truth."""

import array
import json
from typing import Any

import cv2
import numpy as np
from geometry_msgs.msg import AccelWithCovarianceStamped
from nav_msgs.msg import Odometry
from rclpy.node import Node
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import CameraInfo, CompressedImage, Image
from std_msgs.msg import Header, String

from wamdiff_ros.msg import NavigationCommand

from ..pinhole import Pinhole
from ..simulation.cameras import camera_info, extrinsics, optical_frame
from ..types import Command, EgoState
from .conversion import command_message, time_message
from .qos import LATCHED, SENSOR_OUT
from .sources import odometry

BASE_FRAME = 'base_link'
JPEG_QUALITY = 95


class SimulatedSensors:
    """Publishers of one camera and the vehicle's motion, under names relative to `node`'s.

    With `clock`, /clock too. Transforms are published where tf2_msgs is installed.
    """

    def __init__(
        self, node: Node, camera: str, pinhole: Pinhole, compressed: bool, clock: bool
    ) -> None:
        self._node = node
        self._frame_id = optical_frame(camera)
        self._compressed = compressed
        self._command: Command | None = None
        kind = CompressedImage if compressed else Image
        self._image = node.create_publisher(kind, f'camera/{camera}/image', SENSOR_OUT)
        self._odometry = node.create_publisher(Odometry, 'odometry', SENSOR_OUT)
        self._acceleration = node.create_publisher(
            AccelWithCovarianceStamped, 'acceleration', SENSOR_OUT
        )
        self._commands = node.create_publisher(NavigationCommand, 'navigation_command', LATCHED)
        self._truth = node.create_publisher(String, '~/truth', 10)
        self._clock = node.create_publisher(Clock, '/clock', SENSOR_OUT) if clock else None
        info = node.create_publisher(CameraInfo, f'camera/{camera}/camera_info', LATCHED)
        info.publish(CameraInfo(header=Header(frame_id=self._frame_id), **camera_info(pinhole)))
        self._tf = _Transforms.create(node, self._frame_id, pinhole)

    def publish_picture(self, rgb: np.ndarray, stamp_ns: int) -> None:
        """Publish uint8 RGB [height, width, 3] as exposed at `stamp_ns`."""
        header = Header(stamp=time_message(stamp_ns), frame_id=self._frame_id)
        height, width, _ = rgb.shape
        # An array is taken over as it is; bytes would be checked and copied one by one.
        if self._compressed:
            bgr = cv2.cvtColor(rgb, cv2.COLOR_RGB2BGR)
            _, jpeg = cv2.imencode('.jpg', bgr, [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])
            message = CompressedImage(header=header, format='jpeg')
            message.data = array.array('B', jpeg.tobytes())
        else:
            message = Image(
                header=header, height=height, width=width, encoding='rgb8', step=3 * width
            )
            message.data = array.array('B', rgb.tobytes())
        self._image.publish(message)

    def publish_motion(self, ego: EgoState) -> None:
        """Publish odometry and acceleration, and the vehicle's place in its fixed frame."""
        message = odometry(ego)
        self._odometry.publish(message)
        measured = AccelWithCovarianceStamped()
        measured.header.stamp = message.header.stamp
        measured.header.frame_id = ego.base_frame
        linear = measured.accel.accel.linear
        linear.x, linear.y = ego.acceleration_base_mps2
        self._acceleration.publish(measured)
        if self._tf is not None:
            self._tf.publish(message)

    def publish_command(self, command: Command, stamp_ns: int) -> None:
        """Publish what the route asks for, if that is new."""
        if command is not self._command:
            self._command = command
            self._commands.publish(command_message(command, stamp_ns))

    def publish_truth(self, truth: dict[str, Any]) -> None:
        """Publish what is known of the world as one JSON object."""
        self._truth.publish(String(data=json.dumps(truth)))

    def publish_clock(self, now_ns: int) -> None:
        """Publish simulated time."""
        self._clock.publish(Clock(clock=time_message(now_ns)))


class _Transforms:
    """base_link in odom on /tf, the camera in base_link on /tf_static."""

    @classmethod
    def create(cls, node: Node, frame_id: str, pinhole: Pinhole) -> '_Transforms | None':
        """Return the publisher, or None where the messages are not installed (pip wheels)."""
        try:
            from tf2_msgs.msg import TFMessage
        except ImportError:
            node.get_logger().info('tf2_msgs is not installed: no /tf, no /tf_static')
            return None
        return cls(node, TFMessage, frame_id, pinhole)

    def __init__(self, node: Node, message_type: type, frame_id: str, pinhole: Pinhole) -> None:
        from geometry_msgs.msg import TransformStamped

        self._message, self._stamped = message_type, TransformStamped
        self._moving = node.create_publisher(message_type, '/tf', SENSOR_OUT)
        self._fixed = node.create_publisher(message_type, '/tf_static', LATCHED)
        mounted = TransformStamped(child_frame_id=frame_id)
        mounted.header.frame_id = BASE_FRAME
        where, place = extrinsics(pinhole), mounted.transform
        t, q = place.translation, place.rotation
        t.x, t.y, t.z = where['translation_base_m']
        q.x, q.y, q.z, q.w = where['rotation_xyzw']
        self._fixed.publish(message_type(transforms=[mounted]))

    def publish(self, message: Odometry) -> None:
        stamped = self._stamped(header=message.header, child_frame_id=message.child_frame_id)
        position, translation = message.pose.pose.position, stamped.transform.translation
        translation.x, translation.y, translation.z = position.x, position.y, position.z
        stamped.transform.rotation = message.pose.pose.orientation
        self._moving.publish(self._message(transforms=[stamped]))
