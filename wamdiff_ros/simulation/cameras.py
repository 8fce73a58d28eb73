"""The cameras on the simulated vehicle: intrinsics, where they sit, and their `CameraInfo`.

Base frame: x forward, y left, z up, from the centre of the rear axle on the ground.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from scipy.spatial.transform import Rotation

from ..pinhole import OPTICAL_AXES_BASE, Pinhole

WIDTH, HEIGHT = 512, 256
HORIZONTAL_FOV_DEG = 90.0
POSITION_BASE_M = (1.6, 0.0, 1.5)  # behind the windscreen
PITCH_DEG = -3.0  # looks down a little
SIDE_YAW_DEG = 55.0


def mounted(
    yaw_deg: float,
    pitch_deg: float = PITCH_DEG,
    position_base_m: tuple[float, float, float] = POSITION_BASE_M,
) -> Pinhole:
    """Return a camera turned left by the yaw, then up by the pitch."""
    turn = Rotation.from_euler('ZY', [yaw_deg, -pitch_deg], degrees=True).as_matrix()
    level = Pinhole.level(WIDTH, HEIGHT, HORIZONTAL_FOV_DEG)
    return Pinhole(
        WIDTH, HEIGHT, level.fx, level.fy, level.cx, level.cy,
        turn @ OPTICAL_AXES_BASE, np.array(position_base_m),
    )  # fmt: skip


CAMERAS: Mapping[str, Pinhole] = MappingProxyType(
    {
        'front': mounted(0.0),
        'left': mounted(SIDE_YAW_DEG),
        'right': mounted(-SIDE_YAW_DEG),
    }
)


def optical_frame(name: str) -> str:
    """Return the name of a camera's optical frame, for `header.frame_id` and /tf."""
    return f'camera_{name}_optical'


def camera_info(camera: Pinhole) -> dict[str, Any]:
    """Return the fields of a sensor_msgs/CameraInfo, header apart; matrices in row order."""
    k = [camera.fx, 0.0, camera.cx, 0.0, camera.fy, camera.cy, 0.0, 0.0, 1.0]
    return {
        'width': camera.width,
        'height': camera.height,
        'distortion_model': 'plumb_bob',
        'd': [0.0] * 5,
        'k': [float(value) for value in k],
        'r': [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0],
        'p': [float(v) for row in range(3) for v in (*k[3 * row : 3 * row + 3], 0.0)],
    }


def extrinsics(camera: Pinhole) -> dict[str, list[float]]:
    """Return the optical frame's pose in the base frame: translation [m], quaternion x y z w."""
    rotation = Rotation.from_matrix(camera.rotation_base)
    return {
        'translation_base_m': [float(v) for v in camera.position_base_m],
        'rotation_xyzw': [float(v) for v in rotation.as_quat()],
    }
