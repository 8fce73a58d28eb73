"""A planned trajectory as RViz markers: a ribbon coloured by speed, horizon marks, a text.

The markers have fixed ids and a lifetime, so that each tick replaces the one before and a node
that died leaves nothing behind. Everything is taken from the published message itself.
"""

import colorsys
import itertools
import math

from builtin_interfaces.msg import Duration
from geometry_msgs.msg import Point, Vector3
from std_msgs.msg import ColorRGBA, Header
from visualization_msgs.msg import Marker, MarkerArray

from wamdiff_ros.msg import PlannedTrajectory

from ..message_time import nanoseconds

RIBBON_WIDTH_M = 1.8  # about a car's width
FULL_SPEED_MPS = 20.0  # this speed and more is green, standstill is red
HORIZONS_S = (1, 2, 3, 4)
LIFETIME = Duration(sec=1)
_LIFT_M = 0.05  # above the ground, or the grid shines through
_STATUS_NAMES = {
    PlannedTrajectory.NOMINAL: 'NOMINAL',
    PlannedTrajectory.HELD: 'HELD',
    PlannedTrajectory.FALLBACK_STOP: 'FALLBACK STOP',
}
_WHITE = ColorRGBA(r=1.0, g=1.0, b=1.0, a=1.0)


def trajectory_markers(trajectory: PlannedTrajectory, reason: str) -> MarkerArray:
    """Return the ribbon, the marks at whole seconds and the status text of `trajectory`."""
    return MarkerArray(
        markers=[_ribbon(trajectory), _horizon_marks(trajectory), _text(trajectory, reason)]
    )


def clear_markers(header: Header) -> MarkerArray:
    """Return the message that takes all of the node's markers off the screen."""
    return MarkerArray(markers=[Marker(header=header, ns='planner', action=Marker.DELETEALL)])


def speed_colour(speed_mps: float) -> ColorRGBA:
    """Return red at standstill, over yellow, to green at FULL_SPEED_MPS."""
    share = min(abs(speed_mps) / FULL_SPEED_MPS, 1.0)
    red, green, blue = colorsys.hsv_to_rgb(share / 3.0, 1.0, 0.9)
    return ColorRGBA(r=red, g=green, b=blue, a=0.7)


def _marker(trajectory: PlannedTrajectory, number: int, kind: int) -> Marker:
    marker = Marker(header=trajectory.header, ns='planner', id=number, type=kind)
    marker.action = Marker.ADD
    marker.pose.orientation.w = 1.0
    marker.lifetime = LIFETIME
    marker.color = _WHITE
    return marker


def _ribbon(trajectory: PlannedTrajectory) -> Marker:
    marker = _marker(trajectory, 0, Marker.TRIANGLE_LIST)
    marker.scale = Vector3(x=1.0, y=1.0, z=1.0)
    edges = []
    for point in trajectory.points:
        position, q = point.pose.position, point.pose.orientation
        yaw = math.atan2(2 * (q.w * q.z + q.x * q.y), 1 - 2 * (q.y * q.y + q.z * q.z))
        dx, dy = -math.sin(yaw) * RIBBON_WIDTH_M / 2, math.cos(yaw) * RIBBON_WIDTH_M / 2
        left = Point(x=position.x + dx, y=position.y + dy, z=position.z + _LIFT_M)
        right = Point(x=position.x - dx, y=position.y - dy, z=position.z + _LIFT_M)
        edges.append((left, right, speed_colour(point.speed_mps)))
    points, colours = [], []
    for (left0, right0, colour0), (left1, right1, colour1) in itertools.pairwise(edges):
        points += [left0, right0, left1, left1, right0, right1]
        colours += [colour0, colour0, colour1, colour1, colour0, colour1]
    marker.points, marker.colors = points, colours
    return marker


def _horizon_marks(trajectory: PlannedTrajectory) -> Marker:
    marker = _marker(trajectory, 1, Marker.SPHERE_LIST)
    marker.scale = Vector3(x=0.4, y=0.4, z=0.4)
    times_s = [nanoseconds(point.time_from_start) / 1e9 for point in trajectory.points]
    for horizon_s in HORIZONS_S:
        if times_s and horizon_s <= times_s[-1]:
            nearest = min(range(len(times_s)), key=lambda i: abs(times_s[i] - horizon_s))
            marker.points.append(trajectory.points[nearest].pose.position)
    return marker


def _text(trajectory: PlannedTrajectory, reason: str) -> Marker:
    marker = _marker(trajectory, 2, Marker.TEXT_VIEW_FACING)
    marker.scale.z = 0.6
    age_s = nanoseconds(trajectory.age) / 1e9
    text = f'{_STATUS_NAMES[trajectory.status]}  {age_s:.2f} s old'
    if trajectory.points:
        start = trajectory.points[0]
        text += f'  {start.speed_mps:.1f} m/s'
        marker.pose.position = Point(
            x=start.pose.position.x, y=start.pose.position.y, z=start.pose.position.z + 2.5
        )
    marker.text = f'{text}\n{reason}' if reason else text
    return marker
