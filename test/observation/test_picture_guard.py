import numpy as np
import pytest

from wamdiff_ros.observation.picture_guard import PictureGuard
from wamdiff_ros.types import CameraFrame, EgoState

MS = 1_000_000


def frame(time_ms, grey):
    return CameraFrame('front', time_ms * MS, np.full((2, 2, 3), grey, np.uint8))


def ego(time_ms, x_m):
    return EgoState(
        time_ms * MS, 'odom', 'base_link', (x_m, 0, 0), (0, 0, 0, 1), (0, 0), 0.0, (0, 0)
    )


def complaints(guard, pictures):
    return [guard.check(frame(t, grey), ego(t, x_m)) for t, grey, x_m in pictures]


def test_one_picture_over_a_distance_is_a_frozen_camera():
    found = complaints(PictureGuard(2.0), [(0, 7, 0.0), (100, 7, 1.0), (200, 7, 2.5)])
    assert found[:2] == ['', '']
    assert found[2].startswith('camera front has shown one picture for 0.20 s and 2.5 m')


def test_a_new_picture_ends_it():
    pictures = [(0, 7, 0.0), (100, 7, 5.0), (200, 8, 6.0), (300, 8, 7.0)]
    assert [bool(text) for text in complaints(PictureGuard(2.0), pictures)] == [0, 1, 0, 0]


def test_a_standing_vehicle_may_see_the_same_for_ever():
    assert not any(complaints(PictureGuard(2.0), [(t, 7, 0.0) for t in range(0, 60_000, 100)]))


def test_pictures_that_change_are_never_frozen_however_fast_the_vehicle_is():
    assert not any(complaints(PictureGuard(2.0), [(t, t % 256, t * 1.0) for t in range(50)]))


@pytest.mark.parametrize('change', ['reset', 'size'])
def test_after_a_reset_or_another_size_there_is_nothing_to_compare_with(change):
    guard = PictureGuard(2.0)
    guard.check(frame(0, 7), ego(0, 0.0))
    later = frame(100, 7)
    if change == 'reset':
        guard.reset()
    else:
        later = CameraFrame('front', 100 * MS, np.full((2, 4, 3), 7, np.uint8))
    assert guard.check(later, ego(100, 50.0)) == ''


def test_zero_turns_it_off():
    assert not any(complaints(PictureGuard(0.0), [(0, 7, 0.0), (100, 7, 50.0)]))
