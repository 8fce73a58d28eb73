"""The shapes of a plan as RViz markers; what they look like is decided in planning/figure.py.

Every marker has a fixed namespace and id and a lifetime, so that each tick replaces the one
before and a node that died leaves nothing behind.
"""

from collections.abc import Sequence

import numpy as np
from geometry_msgs.msg import Point
from std_msgs.msg import ColorRGBA, Header
from visualization_msgs.msg import Marker, MarkerArray

from ..planning.figure import Kind, Shape
from .conversion import duration_message

_TYPES = {
    Kind.TRIANGLES: Marker.TRIANGLE_LIST,
    Kind.LINES: Marker.LINE_LIST,
    Kind.TEXT: Marker.TEXT_VIEW_FACING,
}


def marker_array(shapes: Sequence[Shape], header: Header, lifetime_ns: int) -> MarkerArray:
    """Return one marker per shape, in the header's frame; an empty shape takes its marker away."""
    return MarkerArray(markers=[_marker(shape, header, lifetime_ns) for shape in shapes])


def clear_markers(header: Header) -> MarkerArray:
    """Return the message that takes all of the node's markers off the screen.

    The namespace stays empty: Foxglove, and RViz from Humble on, would keep all others.
    """
    return MarkerArray(markers=[Marker(header=header, action=Marker.DELETEALL)])


def _marker(shape: Shape, header: Header, lifetime_ns: int) -> Marker:
    marker = Marker(header=header, ns=shape.layer, id=shape.number, type=_TYPES[shape.kind])
    if not len(shape.points_m):  # RViz complains about an empty list
        marker.action = Marker.DELETE
        return marker
    marker.action = Marker.ADD
    marker.pose.orientation.w = 1.0
    marker.lifetime = duration_message(lifetime_ns)
    points = [Point(x=x, y=y, z=z) for x, y, z in shape.points_m.tolist()]
    colours = _colours(shape)
    marker.color = colours[0]
    if shape.kind is Kind.TEXT:
        marker.scale.z = shape.size_m
        marker.pose.position = points[0]
        marker.text = shape.text
        return marker
    marker.scale.x = shape.size_m
    if shape.kind is Kind.TRIANGLES:
        marker.scale.y = marker.scale.z = shape.size_m  # a factor here, 1
    marker.points = points
    if (shape.rgb != shape.rgb[0]).any():
        marker.colors = colours
    return marker


def _colours(shape: Shape) -> list[ColorRGBA]:
    """Return one message per colour, shared by all points that have it."""
    unique, which = np.unique(shape.rgb, axis=0, return_inverse=True)
    made = [ColorRGBA(r=r, g=g, b=b, a=shape.alpha) for r, g, b in (unique / 255).tolist()]
    return [made[i] for i in which.ravel()]
