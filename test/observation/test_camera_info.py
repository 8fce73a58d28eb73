from types import SimpleNamespace as Message

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from wamdiff_ros.observation.camera_info import pinhole_of, way_up
from wamdiff_ros.pinhole import OPTICAL_AXES_BASE

OPTICAL = Rotation.from_matrix(OPTICAL_AXES_BASE)


def info(frame_id='camera_optical'):
    k = [100.0, 0.0, 31.5, 0.0, 110.0, 23.5, 0.0, 0.0, 1.0]
    return Message(header=Message(frame_id=frame_id), width=64, height=48, k=k)


def transform(parent, child, rotation=None, translation=(0.0, 0.0, 0.0)):
    x, y, z, w = (rotation or Rotation.identity()).as_quat()
    return Message(
        header=Message(frame_id=parent),
        child_frame_id=child,
        transform=Message(
            rotation=Message(x=x, y=y, z=z, w=w),
            translation=Message(**dict(zip('xyz', translation, strict=True))),
        ),
    )


def test_a_chain_of_transforms_is_followed_up_to_the_base():
    turn = Rotation.from_euler('z', 90, degrees=True)
    camera = pinhole_of(
        info(),
        [
            transform('camera_link', 'camera_optical', OPTICAL, (0.1, 0.0, 0.0)),
            transform('base_link', 'camera_link', turn, (1.5, 0.2, 1.6)),
            transform('base_footprint', 'base_link', turn, (9.0, 9.0, 9.0)),
        ],
    )
    # It looks to the left; what the link has ahead of it is to the left in base.
    np.testing.assert_allclose(camera.rotation_base[:, 2], [0.0, 1.0, 0.0], atol=1e-12)
    np.testing.assert_allclose(camera.position_base_m, [1.5, 0.3, 1.6])
    assert (camera.fx, camera.fy, camera.cx, camera.cy) == (100.0, 110.0, 31.5, 23.5)
    pixels, depth = camera.project(np.array([[1.5, 10.3, 1.6]]))
    assert pixels[0].tolist() == pytest.approx([31.5, 23.5])
    assert depth[0] == pytest.approx(10.0)


def test_a_camera_that_nobody_placed_looks_level_ahead():
    camera = pinhole_of(info(), [transform('base_link', 'another_camera')])
    np.testing.assert_allclose(camera.rotation_base, OPTICAL_AXES_BASE)
    assert camera.position_base_m[2] > 0


def test_the_way_up_ends_at_the_base_or_where_nobody_knows_more():
    chain = [transform('camera_link', 'camera_optical'), transform('base_link', 'camera_link')]
    assert way_up('camera_optical', chain, 'base_link') == chain
    assert way_up('camera_optical', chain[:1], 'base_link') == chain[:1]
    assert way_up('camera_optical', chain[1:], 'base_link') == []


def test_transforms_that_turn_in_a_circle_end():
    circle = [transform('a', 'camera_optical'), transform('camera_optical', 'a')]
    assert pinhole_of(info(), circle).width == 64
