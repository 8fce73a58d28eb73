"""Boxes of what a picture shows."""

import numpy as np
import pytest

from wamdiff_ros.simulation.boxes import boxes
from wamdiff_ros.simulation.cameras import CAMERAS
from wamdiff_ros.simulation.scene import (
    Body,
    BodyKind,
    Light,
    Prop,
    PropKind,
    Scene,
    Signal,
    View,
    Weather,
)

FRONT = CAMERAS['front']
HEADING = 0.7  # of the ego vehicle on the map
WEATHER = Weather(1.0, 0.0, 0.0, 0.0, (90, 110, 70), 0)


def on_map(forward, left):
    c, s = np.cos(HEADING), np.sin(HEADING)
    return 5.0 + c * forward - s * left, -3.0 + s * forward + c * left


def car(forward, left, braking=False):
    return Body(BodyKind.CAR, on_map(forward, left), HEADING, (4.6, 1.8, 1.5), (9, 9, 9), braking)


def found(bodies=(), props=(), signals=(), lights=()):
    scene = Scene((), tuple(props), tuple(signals), WEATHER)
    view = View(0, (5.0, -3.0), HEADING, 0.0, 0.0, tuple(bodies), tuple(lights))
    return boxes(scene, view, FRONT)


def test_a_box_is_where_the_pinhole_sees_the_corners():
    (box,) = found([car(20.0, 2.0)])
    corners = np.array([[x, y, z] for x in (17.7, 22.3) for y in (1.1, 2.9) for z in (0.0, 1.5)])
    pixels, _ = FRONT.project(corners)
    low, high = pixels.min(axis=0) + 0.5, pixels.max(axis=0) + 0.5
    size = (FRONT.width, FRONT.height)
    np.testing.assert_allclose((box.left, box.top), low / size, atol=1e-6)
    np.testing.assert_allclose((box.right, box.bottom), high / size, atol=1e-6)


def test_a_braking_vehicle_is_a_kind_of_its_own():
    assert [box.kind for box in found([car(30.0, 0.0), car(15.0, 0.0, braking=True)])] == [
        'vehicle',
        'braking',
    ]


@pytest.mark.parametrize(('forward', 'left'), [(-15.0, 0.0), (10.0, 40.0), (80.0, 0.0)])
def test_what_is_behind_beside_or_far_away_has_no_box(forward, left):
    assert found([car(forward, left)]) == ()


def test_a_vehicle_beside_the_camera_fills_the_picture_to_its_edge():
    (box,) = found([car(2.0, 2.5)])
    assert box.left == 0.0
    assert 0.0 < box.right < 0.5


def test_only_lamps_that_face_the_vehicle_have_a_box_on_the_drivers_side_of_their_mast():
    towards = Signal(on_map(25.0, -4.0), HEADING + np.pi, arm_left_m=4.0)
    away = Signal(on_map(25.0, 4.0), HEADING)
    (box,) = found(signals=[towards, away], lights=[Light.RED, Light.GREEN])
    assert box.kind == 'red'
    assert box.left < 0.5 < box.right  # the arm reaches over the middle of the lane
    assert box.bottom < 0.5


def test_cones_are_roadworks():
    cone = Prop(PropKind.CONE, on_map(12.0, -1.5), 0.0, (0.4, 0.4, 0.8), (255, 120, 0))
    tree = Prop(PropKind.TREE, on_map(12.0, 6.0), 0.0, (3.0, 3.0, 6.0), (20, 90, 20))
    assert [box.kind for box in found(props=[cone, tree])] == ['roadworks']
