"""Where road users, cones and traffic lights are in a picture: boxes for training the eye.

Projected from the world, so what stands behind a building has a box too; far things have none.
"""

import math
from dataclasses import dataclass

import numpy as np

from ..pinhole import NEAR_M, Pinhole
from .props import LAMPS_SIZE_M
from .scene import BodyKind, PropKind, Scene, View

# What a box can hold; a braking vehicle is a kind of its own because it must be seen.
KINDS = ('vehicle', 'braking', 'pedestrian', 'cyclist', 'roadworks', 'red', 'amber', 'green')
FARTHEST_M = 60.0
_CORNERS = np.array([[x, y, z] for x in (-0.5, 0.5) for y in (-0.5, 0.5) for z in (0.0, 1.0)])


@dataclass(frozen=True)
class Box:
    """A thing in a picture; edges in fractions of the picture's width and height, 0 … 1."""

    kind: str  # one of KINDS
    left: float
    top: float
    right: float
    bottom: float


def boxes(scene: Scene, view: View, camera: Pinhole) -> tuple[Box, ...]:
    """Return the boxes of all things within 60 m that reach into the picture, nearest last."""
    found = []

    def add(kind, position, heading_rad, size, bottom_m=0.0):
        distance = math.dist(position, view.position_map_m)
        if distance <= FARTHEST_M:
            box = _project(kind, position, heading_rad, size, bottom_m, view, camera)
            if box:
                found.append((distance, box))

    for body in view.bodies:
        kind = body.kind.value
        if body.kind in (BodyKind.CAR, BodyKind.TRUCK):
            kind = 'braking' if body.braking else 'vehicle'
        add(kind, body.position_map_m, body.heading_rad, body.size_m)
    for prop in scene.props:
        if prop.kind in (PropKind.CONE, PropKind.BARRIER, PropKind.SIGN):
            add('roadworks', prop.position_map_m, prop.heading_rad, prop.size_m)
    for signal, light in zip(scene.signals, view.lights, strict=True):
        # Lamps that face elsewhere are for others.
        if math.cos(signal.heading_rad - view.heading_rad) > -0.5:
            continue
        left = signal.heading_rad - math.pi / 2  # of a driver who looks at the lamps
        lamps = (
            signal.position_map_m[0] + signal.arm_left_m * math.cos(left),
            signal.position_map_m[1] + signal.arm_left_m * math.sin(left),
        )
        width, height = LAMPS_SIZE_M
        bottom = signal.lamp_height_m - height / 2
        add(light.value, lamps, signal.heading_rad, (0.3, width, height), bottom)
    return tuple(box for _, box in sorted(found, key=lambda entry: -entry[0]))


def _project(kind, position, heading_rad, size, bottom_m, view: View, camera: Pinhole):
    """Return the box of a cuboid that stands on `position`, or None where it is not seen."""
    length, width, height = size
    corners = _CORNERS * (length, width, height) + (0.0, 0.0, bottom_m)
    turn = heading_rad - view.heading_rad
    c, s = math.cos(turn), math.sin(turn)
    dx, dy = position[0] - view.position_map_m[0], position[1] - view.position_map_m[1]
    ch, sh = math.cos(view.heading_rad), math.sin(view.heading_rad)
    base = np.empty_like(corners)
    base[:, 0] = c * corners[:, 0] - s * corners[:, 1] + (ch * dx + sh * dy)
    base[:, 1] = s * corners[:, 0] + c * corners[:, 1] + (-sh * dx + ch * dy)
    base[:, 2] = corners[:, 2]
    optical = camera.to_optical(base)
    if optical[:, 2].max() <= NEAR_M:
        return None
    # What reaches behind the camera fills that side of the picture to its edge.
    depth = np.maximum(optical[:, 2], NEAR_M)
    u = camera.cx + camera.fx * optical[:, 0] / depth
    v = camera.cy + camera.fy * optical[:, 1] / depth
    low, high = (u.min(), v.min()), (u.max(), v.max())
    left, right = (np.clip((v + 0.5) / camera.width, 0, 1) for v in (low[0], high[0]))
    top, bottom = (np.clip((v + 0.5) / camera.height, 0, 1) for v in (low[1], high[1]))
    if right - left < 1e-3 or bottom - top < 1e-3:
        return None
    return Box(kind, float(left), float(top), float(right), float(bottom))
