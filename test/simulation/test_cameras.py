import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from wamdiff_ros.pinhole import Pinhole
from wamdiff_ros.simulation.cameras import (
    CAMERAS,
    HORIZONTAL_FOV_DEG,
    camera_info,
    extrinsics,
    optical_frame,
)


def test_cameras_are_front_left_and_right_of_one_size():
    assert list(CAMERAS) == ['front', 'left', 'right']
    assert {(c.width, c.height) for c in CAMERAS.values()} == {(512, 256)}


@pytest.mark.parametrize('name', list(CAMERAS))
def test_edges_of_the_picture_span_the_field_of_view(name):
    camera = CAMERAS[name]
    left, right = ((u - camera.cx) / camera.fx for u in (-0.5, camera.width - 0.5))
    span = np.degrees(np.arctan(right) - np.arctan(left))
    assert span == pytest.approx(HORIZONTAL_FOV_DEG)


def test_front_camera_looks_down_so_that_the_horizon_lies_above_the_middle():
    camera = CAMERAS['front']
    pixels, depth = camera.project(np.array([[1e6, 0.0, 1.5]]))
    assert depth[0] > 0
    assert pixels[0, 0] == pytest.approx(camera.cx)
    assert pixels[0, 1] == pytest.approx(camera.cy - camera.fy * np.tan(np.radians(3.0)), abs=0.01)


@pytest.mark.parametrize(('name', 'yaw_deg'), [('front', 0), ('left', 55), ('right', -55)])
def test_a_camera_sees_in_its_middle_column_what_lies_in_its_yaw(name, yaw_deg):
    camera = CAMERAS[name]
    yaw = np.radians(yaw_deg)
    ahead = camera.position_base_m + 20 * np.array([np.cos(yaw), np.sin(yaw), 0.0])
    pixels, depth = camera.project(ahead[None])
    assert depth[0] > 0
    assert pixels[0, 0] == pytest.approx(camera.cx, abs=1e-6)


@pytest.mark.parametrize('name', list(CAMERAS))
def test_camera_info_and_extrinsics_project_like_the_camera(name):
    camera = CAMERAS[name]
    info, pose = camera_info(camera), extrinsics(camera)
    rotation = Rotation.from_quat(pose['rotation_xyzw'])
    points = camera.position_base_m + np.array([[5.0, 3.0, -1.0], [9.0, -4.0, 1.0]])
    optical = rotation.inv().apply(points - np.array(pose['translation_base_m']))
    projected = np.c_[optical, np.ones(2)] @ np.array(info['p']).reshape(3, 4).T
    expected, depth = camera.project(points)
    np.testing.assert_allclose(projected[:, :2] / projected[:, 2:], expected, atol=1e-9)
    np.testing.assert_allclose(optical[:, 2], depth)


def test_camera_info_is_of_an_undistorted_camera():
    info = camera_info(CAMERAS['front'])
    assert (info['width'], info['height']) == (512, 256)
    assert info['distortion_model'] == 'plumb_bob'
    assert info['d'] == [0.0] * 5
    assert info['r'] == np.eye(3).ravel().tolist()
    np.testing.assert_allclose(info['k'], [256, 0, 255.5, 0, 256, 127.5, 0, 0, 1])


def test_camera_info_keeps_unequal_focal_lengths_apart():
    camera = Pinhole(64, 32, 40.0, 50.0, 30.0, 15.0, np.eye(3), np.zeros(3))
    assert camera_info(camera)['p'] == [40, 0, 30, 0, 0, 50, 15, 0, 0, 0, 1, 0]


def test_optical_frame_names_its_camera():
    assert optical_frame('left') == 'camera_left_optical'
