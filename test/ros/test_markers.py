"""Markers hold exactly the shapes of planning/figure.py, as RViz wants them."""

import numpy as np
import pytest
from drawn_plans import EGO, plan, publication
from std_msgs.msg import Header
from visualization_msgs.msg import Marker

from wamdiff_ros.planning.figure import COMPACT_CAR, Kind, drawn_plan, plan_figure
from wamdiff_ros.ros.markers import clear_markers, marker_array
from wamdiff_ros.types import PlanStatus

pytestmark = pytest.mark.ros

HEADER = Header(frame_id='odom')
LIFETIME_NS = 1_500_000_000


def shapes_of(status=PlanStatus.NOMINAL):
    others = [np.pad(plan(k).trajectory.xy_base_m, ((0, 0), (0, 1))) for k in (0.03, 0.01)]
    drawn = drawn_plan(publication(status), EGO)
    return plan_figure(drawn, COMPACT_CAR, others, 'why', 'a road')


def xyz(points):
    return np.array([(point.x, point.y, point.z) for point in points])


def rgb(colours):
    return np.array([(colour.r, colour.g, colour.b) for colour in colours]) * 255


@pytest.mark.parametrize('status', (PlanStatus.NOMINAL, PlanStatus.HELD, PlanStatus.FALLBACK_STOP))
def test_points_colours_and_words_are_those_of_the_shapes(status):
    shapes = shapes_of(status)
    markers = marker_array(shapes, HEADER, LIFETIME_NS).markers
    for shape, marker in zip(shapes, markers, strict=True):
        if not len(shape.points_m):
            assert marker.action == Marker.DELETE
            continue
        if shape.kind is Kind.TEXT:
            assert marker.text == shape.text
            np.testing.assert_allclose(xyz([marker.pose.position]), shape.points_m)
            continue
        np.testing.assert_allclose(xyz(marker.points), shape.points_m)
        colours = list(marker.colors) or [marker.color] * len(marker.points)
        np.testing.assert_allclose(rgb(colours), shape.rgb, atol=1e-4)
        assert {round(colour.a, 3) for colour in colours} == {shape.alpha}


def test_lists_have_the_lengths_that_rviz_takes():
    for marker in marker_array(shapes_of(), HEADER, LIFETIME_NS).markers:
        assert len(marker.colors) in (0, len(marker.points))
        if marker.type == Marker.TRIANGLE_LIST:
            assert len(marker.points) % 3 == 0
            assert (marker.scale.x, marker.scale.y, marker.scale.z) == (1.0, 1.0, 1.0)
        elif marker.type == Marker.LINE_LIST:
            assert len(marker.points) % 2 == 0


def test_every_marker_has_a_fixed_id_a_pose_and_a_lifetime():
    ids = [
        [(m.ns, m.id) for m in marker_array(shapes_of(status), HEADER, LIFETIME_NS).markers]
        for status in (PlanStatus.NOMINAL, PlanStatus.FALLBACK_STOP)
    ]
    assert ids[0] == ids[1]
    assert len(set(ids[0])) == len(ids[0])
    for marker in marker_array(shapes_of(), HEADER, LIFETIME_NS).markers:
        assert marker.header.frame_id == 'odom'
        if marker.action == Marker.ADD:
            assert marker.pose.orientation.w == 1.0
            assert (marker.lifetime.sec, marker.lifetime.nanosec) == (1, 500_000_000)
            assert marker.color.a > 0


def test_clearing_names_no_namespace_so_that_every_one_is_cleared():
    [marker] = clear_markers(HEADER).markers
    assert (marker.action, marker.ns) == (Marker.DELETEALL, '')
