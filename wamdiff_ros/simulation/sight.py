"""What the driver cannot see because a vehicle stands before it."""

import math
from typing import TYPE_CHECKING

from .cameras import POSITION_BASE_M
from .scene import Body, BodyKind

if TYPE_CHECKING:
    from .world import World

VEHICLES = (BodyKind.CAR, BodyKind.TRUCK)


def is_hidden(world: 'World', x_m: float, y_m: float, z_m: float) -> bool:
    """Whether a vehicle covers a point of the map for the front camera.

    A point on a vehicle is not hidden by that vehicle's near side. Buildings and trees are not
    looked at.
    """
    ego = world.ego
    forward_m, _, height_m = POSITION_BASE_M
    eye = (
        ego.x_m + forward_m * math.cos(ego.heading_rad),
        ego.y_m + forward_m * math.sin(ego.heading_rad),
        height_m,
    )
    return any(
        _covers(body, eye, (x_m, y_m, z_m))
        for body in (*world.parked, *world.moving_bodies())
        if body.kind in VEHICLES
    )


def _covers(body: Body, eye: tuple[float, ...], point: tuple[float, ...]) -> bool:
    """Whether the way from eye to point goes through the body's box and comes out again."""
    x, y = body.position_map_m
    length, width, height = body.size_m
    cos, sin = math.cos(body.heading_rad), math.sin(body.heading_rad)
    enters, leaves = 0.0, 1.0  # shares of the way
    for along_x, along_y, half in ((cos, sin, length / 2), (-sin, cos, width / 2)):
        start = (eye[0] - x) * along_x + (eye[1] - y) * along_y
        way = (point[0] - eye[0]) * along_x + (point[1] - eye[1]) * along_y
        if abs(way) < 1e-9:
            if abs(start) > half:
                return False
            continue
        sides = ((-half - start) / way, (half - start) / way)
        enters, leaves = max(enters, min(sides)), min(leaves, max(sides))
    if not enters < leaves < 1.0:
        return False
    rise = point[2] - eye[2]
    return min(eye[2] + enters * rise, eye[2] + leaves * rise) < height
