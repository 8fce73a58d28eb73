"""Write a bag of a vehicle's sensors on the planner's topics, without ROS."""

import json
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from scipy.spatial.transform import Rotation

from ..pinhole import Pinhole
from ..types import Command, EgoState
from .bag import BagWriter
from .plain_messages import header, message, pose
from .timeline import TRUTH_TOPIC
from .topics import ACCELERATION, COMMAND, ODOMETRY

IMAGE, CAMERA_INFO = '/camera/front/image', '/camera/front/camera_info'
CAMERA_FRAME = 'camera_front_optical'
JPEG_QUALITY = 90
COMMANDS = {Command.STRAIGHT: 0, Command.LEFT: 1, Command.RIGHT: 2}


class SensorBag:
    """A new mcap bag, to be used as a context manager; what is stamped is sent at its stamp."""

    def __init__(self, path: Path) -> None:
        self._writer = BagWriter(path)

    def __enter__(self) -> 'SensorBag':
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()

    def picture(self, stamp_ns: int, rgb: np.ndarray) -> None:
        """Add a picture of the front camera, uint8 [height, width, 3]."""
        quality = [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY]
        _, data = cv2.imencode('.jpg', rgb[..., ::-1], quality)
        self.encoded_picture(stamp_ns, data.tobytes(), 'jpeg')

    def encoded_picture(self, stamp_ns: int, data: bytes, kind: str) -> None:
        """Add a picture as it is, `kind` jpeg or png."""
        picture = message(
            'sensor_msgs/msg/CompressedImage',
            header=header(stamp_ns, CAMERA_FRAME),
            format=kind,
            data=np.frombuffer(data, np.uint8),
        )
        self._writer.write_message(IMAGE, stamp_ns, picture)

    def motion(self, state: EgoState, with_acceleration: bool = False) -> None:
        """Add odometry, and the measured acceleration."""
        turning = (0.0, 0.0, state.yaw_rate_radps)
        odometry = message(
            'nav_msgs/msg/Odometry',
            header=header(state.stamp_ns, state.fixed_frame),
            child_frame_id=state.base_frame,
            pose=message(
                'geometry_msgs/msg/PoseWithCovariance',
                pose=pose(state.position_fixed_m, state.orientation_xyzw),
                covariance=np.zeros(36),
            ),
            twist=message(
                'geometry_msgs/msg/TwistWithCovariance',
                twist=message(
                    'geometry_msgs/msg/Twist',
                    linear=_vector(*state.velocity_base_mps, 0.0),
                    angular=_vector(*turning),
                ),
                covariance=np.zeros(36),
            ),
        )
        self._writer.write_message(ODOMETRY, state.stamp_ns, odometry)
        if with_acceleration:
            linear = _vector(*state.acceleration_base_mps2, 0.0)
            accel = message(
                'geometry_msgs/msg/Accel', linear=linear, angular=_vector(0.0, 0.0, 0.0)
            )
            stamped = message(
                'geometry_msgs/msg/AccelWithCovarianceStamped',
                header=header(state.stamp_ns, state.base_frame),
                accel=message(
                    'geometry_msgs/msg/AccelWithCovariance', accel=accel, covariance=np.zeros(36)
                ),
            )
            self._writer.write_message(ACCELERATION, state.stamp_ns, stamped)

    def command(self, stamp_ns: int, command: Command) -> None:
        """Add the command that holds from here on."""
        value = message(
            'wamdiff_ros/msg/NavigationCommand',
            header=header(stamp_ns, ''),
            command=COMMANDS[command],
        )
        self._writer.write_message(COMMAND, stamp_ns, value)

    def truth(self, stamp_ns: int, truth: dict[str, Any]) -> None:
        """Add a simulator's ground truth."""
        data = json.dumps({'stamp_ns': stamp_ns, **truth})
        self._writer.write_message(
            TRUTH_TOPIC, stamp_ns, message('std_msgs/msg/String', data=data)
        )

    def camera(self, stamp_ns: int, camera: Pinhole) -> None:
        """Add the front camera's intrinsics, and where it sits."""
        k = [camera.fx, 0.0, camera.cx, 0.0, camera.fy, camera.cy, 0.0, 0.0, 1.0]
        p = [value for row in range(3) for value in (*k[3 * row : 3 * row + 3], 0.0)]
        region = message(
            'sensor_msgs/msg/RegionOfInterest',
            x_offset=0, y_offset=0, height=0, width=0, do_rectify=False,
        )  # fmt: skip
        info = message(
            'sensor_msgs/msg/CameraInfo',
            header=header(stamp_ns, CAMERA_FRAME), height=camera.height, width=camera.width,
            distortion_model='plumb_bob', d=np.zeros(5), k=np.array(k, float),
            r=np.eye(3).ravel(), p=np.array(p, float), binning_x=0, binning_y=0, roi=region,
        )  # fmt: skip
        self._writer.write_message(CAMERA_INFO, stamp_ns, info)
        quaternion = Rotation.from_matrix(camera.rotation_base).as_quat().tolist()
        mounted = pose(camera.position_base_m.tolist(), quaternion)
        place = message(
            'geometry_msgs/msg/TransformStamped',
            header=header(stamp_ns, 'base_link'),
            child_frame_id=CAMERA_FRAME,
            transform=message(
                'geometry_msgs/msg/Transform',
                translation=_vector(*camera.position_base_m.tolist()),
                rotation=mounted.orientation,
            ),
        )
        transforms = message('tf2_msgs/msg/TFMessage', transforms=[place])
        self._writer.write_message('/tf_static', stamp_ns, transforms)


def _vector(x: float, y: float, z: float) -> Any:
    return message('geometry_msgs/msg/Vector3', x=float(x), y=float(y), z=float(z))
