import numpy as np
import pytest

from wamdiff_ros.pinhole import NEAR_M, Pinhole


def test_a_ground_point_lands_on_the_analytic_pixel():
    camera = Pinhole.level(640, 360, horizontal_fov_deg=90.0, height_m=1.5, forward_m=1.5)
    assert camera.fx == pytest.approx(320.0)
    # 10 m before the camera, 2 m to the left, on the ground 1.5 m below it.
    [(u, v)], [depth] = camera.project(np.array([[11.5, 2.0, 0.0]]))
    assert (u, v) == pytest.approx((319.5 - 320 * 2 / 10, 179.5 + 320 * 1.5 / 10))
    assert depth == pytest.approx(10.0)


def test_rays_and_projection_are_inverse():
    camera = Pinhole.level(64, 36)
    points = camera.position_base_m + 7.0 * camera.rays_base()
    pixels, depth = camera.project(points.reshape(-1, 3))
    u, v = np.meshgrid(np.arange(64), np.arange(36))
    np.testing.assert_allclose(pixels, np.stack([u.ravel(), v.ravel()], axis=-1), atol=1e-9)
    np.testing.assert_allclose(depth, 7.0)


def test_a_polygon_is_cut_at_the_near_plane():
    camera = Pinhole.level(640, 360)
    lane = np.array([[-5.0, 1.0, 0.0], [-5.0, -1.0, 0.0], [30.0, -1.0, 0.0], [30.0, 1.0, 0.0]])
    pixels = camera.project_polygon(lane)
    assert len(pixels) == 4
    assert pixels[:, 1].max() == pytest.approx(camera.cy + camera.fy * 1.5 / NEAR_M)
    assert np.all(pixels[:, 1] > camera.cy)  # nothing behind is mirrored above the horizon


def test_a_polygon_behind_the_camera_vanishes():
    camera = Pinhole.level(640, 360)
    behind = np.array([[-5.0, 1.0, 0.0], [-5.0, -1.0, 0.0], [-9.0, 0.0, 0.0]])
    assert len(camera.project_polygon(behind)) == 0
