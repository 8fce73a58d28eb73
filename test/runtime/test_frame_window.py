import numpy as np
import pytest

from wamdiff_ros.runtime.engine import ImageFeatures
from wamdiff_ros.runtime.frame_window import FrameWindow
from wamdiff_ros.runtime.stage_clock import StageClock
from wamdiff_ros.types import CameraFrame

MS = 1_000_000


class Shown:
    """A window whose features are named after the pictures that they were made from."""

    def __init__(self, frames=3):
        self.encoded = []
        self._window = FrameWindow(frames, 0.1, self._encode)
        self.reset = self._window.reset

    def _encode(self, rgb, clock):
        self.encoded.append(int(rgb[0, 0, 0]))
        return ImageFeatures(self.encoded[-1], (1, 2, 2), None, ())

    def __call__(self, stamp_ms, *values, cameras=('front', 'left')):
        frames = [
            CameraFrame(camera, stamp_ms * MS, np.full((20, 30, 3), value, np.uint8))
            for camera, value in zip(cameras, values, strict=False)
        ]
        features, encoded = self._window.show(frames, StageClock())
        assert encoded <= len(frames)
        return [one.key for one in features]


def test_the_newest_frames_are_shown_oldest_first():
    shown = Shown()
    assert [shown(100 * tick, tick) for tick in range(5)] == [
        [0], [0, 1], [0, 1, 2], [1, 2, 3], [2, 3, 4],
    ]  # fmt: skip
    assert shown.encoded == [0, 1, 2, 3, 4], 'each is encoded once'


def test_cameras_are_shown_one_after_the_other():
    shown = Shown()
    shown(0, 10, 20)
    assert shown(100, 11, 21) == [10, 11, 20, 21]


def test_the_same_moment_again_changes_nothing():
    shown = Shown()
    shown(0, 10)
    assert shown(100, 11) == shown(100, 11) == [10, 11]
    assert shown.encoded == [10, 11]


def test_an_equal_picture_is_not_encoded_again_but_takes_its_place():
    shown = Shown()
    shown(0, 10)
    assert shown(100, 10) == [10, 10]
    assert shown.encoded == [10]


@pytest.mark.parametrize('step_ms', [-100, 30, 180, 5000])
def test_frames_that_do_not_follow_at_the_trained_interval_begin_anew(step_ms):
    shown = Shown()
    shown(10_000, 10)
    shown(10_100, 11)
    assert shown(10_100 + step_ms, 12) == [12]
    assert shown(10_200 + step_ms, 13) == [12, 13]


@pytest.mark.parametrize('step_ms', [60, 100, 140])
def test_jitter_of_a_camera_is_no_break(step_ms):
    shown = Shown()
    shown(0, 10)
    assert shown(step_ms, 11) == [10, 11]


def test_a_window_of_one_shows_whatever_is_newest():
    shown = Shown(frames=1)
    assert [shown(7 * tick, tick) for tick in range(3)] == [[0], [1], [2]]


def test_a_reset_and_a_lost_camera_forget():
    shown = Shown()
    shown(0, 10, 20)
    assert shown(100, 11) == [10, 11]
    assert shown(200, 12, 22) == [10, 11, 12, 22]
    shown.reset()
    assert shown(300, 13) == [13]
