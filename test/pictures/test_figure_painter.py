from dataclasses import replace

import cv2
import numpy as np
import pytest
from drawn_plans import EGO, plan, publication

from wamdiff_ros.pictures.figure_painter import above_camera, ground, paint, paint_views
from wamdiff_ros.pictures.overlay_painter import Instant, OverlayPainter
from wamdiff_ros.pinhole import Pinhole
from wamdiff_ros.planning.figure import COMPACT_CAR, EDGE_RGB, drawn_plan, in_base, plan_figure
from wamdiff_ros.types import PlanStatus

CAMERA = Pinhole.level(640, 360)
TOLERANCE_PX = 2


def drawn(status=PlanStatus.NOMINAL):
    return in_base(drawn_plan(publication(status), EGO), EGO)


def near(picture, rgb, tolerance=40):
    return np.abs(picture.astype(int) - rgb).max(axis=2) < tolerance


def changed(picture, blank):
    return (np.abs(picture.astype(int) - blank).max(axis=2) > 12).astype(np.uint8)


@pytest.mark.parametrize('status', (PlanStatus.NOMINAL, PlanStatus.FALLBACK_STOP))
def test_the_shapes_seen_through_the_camera_are_where_the_overlay_has_them(status):
    grey = np.full((360, 640, 3), 90, np.uint8)
    bare = Instant(grey, None, None, np.zeros((0, 3)), '')
    overlay = OverlayPainter(CAMERA, '').paint(replace(bare, plan=drawn(status)))[:360]
    without = OverlayPainter(CAMERA, '').paint(bare)[:360]
    shapes = [s for s in plan_figure(drawn(status), COMPACT_CAR) if s.layer == 'ribbon']
    seen = changed(paint(grey, shapes, CAMERA), grey)
    # From 5 m on, where the ribbon's height above the ground is no matter. The overlay has a map
    # at the right and words at the top and beside the marks.
    region = np.zeros((360, 640), bool)
    region[190:340, :380] = True
    wanted = changed(overlay, without)
    around = np.ones((2 * TOLERANCE_PX + 1,) * 2, np.uint8)
    assert (seen * region).sum() > 3000
    assert not (seen * region * (1 - cv2.dilate(wanted, around))).any()
    tinted = (overlay.max(axis=2).astype(int) - overlay.min(axis=2) > 25).astype(np.uint8)
    assert not (cv2.erode(tinted, around) * region * (1 - seen)).any()


def test_the_view_from_above_has_the_vehicle_at_its_foot_and_the_plan_ahead_and_to_the_left():
    camera = above_camera()
    shapes = plan_figure(drawn(), COMPACT_CAR)
    picture = paint(ground(camera), [s for s in shapes if s.layer == 'ribbon'], camera)
    rows, columns = np.nonzero(changed(picture, ground(camera)))
    end, _ = camera.project(drawn().positions_m[-1:])
    start, _ = camera.project(drawn().positions_m[:1])
    assert rows.max() == pytest.approx(start[0, 1], abs=2)
    assert rows.min() == pytest.approx(end[0, 1], abs=8)
    assert columns[rows < rows.min() + 10].mean() < start[0, 0] - 50


def test_each_status_is_told_by_colour_and_stripes():
    camera = above_camera()
    ribbons, edges = {}, {}
    for status in (PlanStatus.NOMINAL, PlanStatus.HELD, PlanStatus.FALLBACK_STOP):
        shapes = [s for s in plan_figure(drawn(status), COMPACT_CAR) if s.layer != 'words']
        picture = paint(ground(camera), shapes, camera)
        edges[status] = near(picture, EDGE_RGB[status]).sum()
        ribbon = paint(ground(camera), [s for s in shapes if s.layer == 'ribbon'], camera)
        ribbons[status] = changed(ribbon, ground(camera)).sum()
    assert ribbons[PlanStatus.HELD] < 0.7 * ribbons[PlanStatus.NOMINAL]
    assert min(edges.values()) > 50


def test_candidates_are_seen_beside_the_plan():
    camera = above_camera()
    others = [np.pad(plan(k).trajectory.xy_base_m, ((0, 0), (0, 1))) for k in (0.04, 0.005)]
    pictures = [
        paint(ground(camera), plan_figure(drawn(), COMPACT_CAR, candidates), camera)
        for candidates in ((), others)
    ]
    assert changed(pictures[1], pictures[0]).sum() > 200


def test_words_are_moved_into_the_picture():
    shapes = plan_figure(drawn(), COMPACT_CAR, description='a long description ' * 20)
    words = [shape for shape in shapes if shape.layer == 'words']
    camera = Pinhole.level(640, 360)  # looks away from them
    assert not changed(paint(ground(camera), words, camera), ground(camera)).any()
    views = paint_views(words)
    assert near(views, (255, 255, 255)).sum() > 500
    assert not near(views[:2], (255, 255, 255)).any()
    assert not near(views[-2:], (255, 255, 255)).any()
