import math

import cv2
import numpy as np
import pytest

from wamdiff_ros.evaluation.bag import bag_topics, read_messages
from wamdiff_ros.pinhole import Pinhole
from wamdiff_ros.share import share_path
from wamdiff_ros.simulation.clip import Drive, write_clip
from wamdiff_ros.simulation.painter import Painter
from wamdiff_ros.simulation.road import Road


def test_the_same_seed_gives_the_same_bytes(tmp_path):
    for name in ('one', 'two'):
        write_clip(tmp_path / name / 'clip', duration_s=0.2)
    first = (tmp_path / 'one/clip/clip.mcap').read_bytes()
    assert first == (tmp_path / 'two/clip/clip.mcap').read_bytes()


def test_another_seed_gives_another_scene(tmp_path):
    for seed in (1, 2):
        write_clip(tmp_path / str(seed) / 'clip', seed=seed, duration_s=0.05)
    first = (tmp_path / '1/clip/clip.mcap').read_bytes()
    assert first != (tmp_path / '2/clip/clip.mcap').read_bytes()


def test_the_bundled_clip_is_complete_and_small():
    clip = share_path('demo', 'clip')
    counts = {topic: count for topic, (_, count) in bag_topics(clip).items()}
    assert counts == {
        '/tf_static': 1,
        '/camera/front/camera_info': 1,
        '/navigation_command': 1,
        '/camera/front/image': 240,
        '/odometry': 600,
    }
    assert sum(path.stat().st_size for path in clip.iterdir()) < 4_000_000
    for _, _, stamp_ns, message in read_messages(clip, ['/camera/front/image', '/odometry']):
        stamp = message.header.stamp
        assert stamp.sec * 10**9 + stamp.nanosec == stamp_ns


def test_the_velocity_is_the_derivative_of_the_position():
    drive = Drive()
    for time_s in np.arange(0.5, 11.5, 0.5):
        before, now, after = (drive.ego(time_s + step) for step in (-0.02, 0.0, 0.02))
        moved = np.subtract(after.position_fixed_m, before.position_fixed_m)
        assert np.hypot(moved[0], moved[1]) / 0.04 == pytest.approx(now.speed_mps, rel=0.01)
        heading = 2 * math.atan2(now.orientation_xyzw[2], now.orientation_xyzw[3])
        assert math.atan2(moved[1], moved[0]) == pytest.approx(heading, abs=0.01)


def test_the_lane_markings_are_painted_where_the_camera_projects_them():
    # A straight road, seen from its right lane: the edge line 3.55 m right of the road's middle.
    camera = Pinhole.level(640, 360)
    image = Painter(Road([(-60, 0), (500, 0)]), camera, seed=1).paint(0.0, -1.8, 0.0, [])
    for ahead_m in (8.0, 12.0, 20.0):
        [(u, v)], _ = camera.project(np.array([[ahead_m, -3.55 + 1.8, 0.0]]))
        row = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)[round(v)].astype(float)
        near = row[round(u) - 15 : round(u) + 16]
        paint = np.flatnonzero(near > 160)
        assert abs(paint.mean() - 15) <= 1.0
