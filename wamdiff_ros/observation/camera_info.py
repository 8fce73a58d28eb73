"""A camera's geometry out of messages: CameraInfo, and the fixed transforms to where it sits.

Free of ROS: the messages are of rclpy or of rosbags, whose fields have the same names.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
from scipy.spatial.transform import Rotation

from ..pinhole import Pinhole


def pinhole_of(info: Any, transforms: Iterable[Any], base_frame: str = 'base_link') -> Pinhole:
    """Return the camera of a CameraInfo, mounted as TransformStamped messages say.

    Follows the transforms from the optical frame of the header up to `base_frame`, or as far as
    they go; without one for the optical frame the camera looks level ahead. Distortion is not
    known to a Pinhole.
    """
    chain = way_up(info.header.frame_id, transforms, base_frame)
    default = Pinhole.level(info.width, info.height)
    rotation, position = default.rotation_base, default.position_base_m
    if chain:
        rotation, position = np.eye(3), np.zeros(3)
    for stamped in chain:
        q, t = stamped.transform.rotation, stamped.transform.translation
        turn = Rotation.from_quat([q.x, q.y, q.z, q.w]).as_matrix()
        rotation, position = turn @ rotation, turn @ position + np.array([t.x, t.y, t.z])
    fx, _, cx, _, fy, cy = info.k[:6]
    return Pinhole(info.width, info.height, fx, fy, cx, cy, rotation, position)


def way_up(frame: str, transforms: Iterable[Any], base_frame: str) -> list[Any]:
    """Return the transforms that lead from `frame` up to `base_frame`, or as far as they go."""
    parents = {stamped.child_frame_id: stamped for stamped in transforms}
    chain = []
    while frame != base_frame and frame in parents:
        chain.append(parents.pop(frame))  # each once, so that a loop ends
        frame = chain[-1].header.frame_id
    return chain
