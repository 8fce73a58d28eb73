"""Meshes of road users. Body frame: x forward, z up, from the ground centre of the box."""

from functools import lru_cache

import numpy as np

from .meshes import Mesh, beam, box, frustum, merge, polygon, upright, wheel
from .scene import VESTS, Body, BodyKind, Colour

GLASS, TYRE, HUB = (30, 38, 48), (22, 22, 24), (120, 122, 126)
BRAKE, TAIL, HEAD = (255, 24, 16), (112, 14, 16), (244, 244, 226)
SKIN, TROUSERS, HAIR = (222, 172, 138), (44, 50, 76), (54, 38, 28)
STRIDES = 12  # phases of legs that are told apart


def body(item: Body) -> Mesh:
    """Return a road user where it is."""
    stride = round(item.stride * STRIDES) % STRIDES / STRIDES
    size = tuple(round(float(value), 3) for value in item.size_m)
    mesh = _standing(item.kind, size, item.colour, item.braking, stride)
    return mesh.placed(item.position_map_m, item.heading_rad)


def shadow(item: Body) -> Mesh:
    """Return the dark ground below a road user."""
    mesh = _shadow(float(item.size_m[0]), float(item.size_m[1]))
    return mesh.placed(item.position_map_m, item.heading_rad)


@lru_cache(maxsize=512)
def _shadow(length: float, width: float) -> Mesh:
    x, y = length / 2 + 0.12, width / 2 + 0.12
    corner = min(x, y) * 0.45
    outline = [
        (-x, -y + corner), (-x + corner, -y), (x - corner, -y), (x, -y + corner),
        (x, y - corner), (x - corner, y), (-x + corner, y), (-x, y - corner),
    ]  # fmt: skip
    return polygon([(a, b, 0.0) for a, b in outline], (34, 35, 38))


@lru_cache(maxsize=512)
def _standing(
    kind: BodyKind, size: tuple[float, ...], colour: Colour, braking: bool, stride: float
) -> Mesh:
    length, width, height = size
    match kind:
        case BodyKind.CAR:
            return _car(length, width, height, colour, braking)
        case BodyKind.TRUCK:
            return _truck(length, width, height, colour, braking)
        case BodyKind.PEDESTRIAN:
            return _pedestrian(height, colour, stride)
        case BodyKind.CYCLIST:
            return _cyclist(length, height, colour, stride)


def _wheels(length: float, width: float, radius: float, at: tuple[float, ...]) -> list[Mesh]:
    parts = []
    for x in at:
        for side in (-1, 1):
            y = side * (width / 2 - 0.1)
            parts.append(wheel((x * length, y, radius), radius, 0.24, TYRE))
            parts.append(wheel((x * length, y, radius), radius * 0.55, 0.26, HUB, 6))
    return parts


def _rear_lights(
    rear: float, width: float, z: float, braking: bool, size: tuple[float, float]
) -> list[Mesh]:
    """Tail lights; brake lights are larger as well as brighter, as bright lights look."""
    across, high = size
    if braking:
        across, high = across * 1.35, high * 1.5
    colour = BRAKE if braking else TAIL
    return [
        box((rear, side * (width / 2 - across / 2), z), (0.1, across, high), colour, glow=braking)
        for side in (-1, 1)
    ]


def _front_lights(front: float, width: float, z: float) -> list[Mesh]:
    return [
        box((front, side * (width / 2 - 0.26), z), (0.08, 0.42, 0.17), HEAD, glow=True)
        for side in (-1, 1)
    ]


def _car(length: float, width: float, height: float, colour: Colour, braking: bool) -> Mesh:
    x, y = length / 2, width / 2
    sill, waist = 0.14 * height, 0.6 * height
    dark = (colour[0] // 2, colour[1] // 2, colour[2] // 2)
    hood, bumper = 0.52 * length / 2, (28, 28, 30)
    parts = [
        frustum((-x, x, -y, y), (-x, x, -y, y), sill, 0.38 * height, colour),
        frustum((-x, x, -y, y), (-0.96 * x, 0.94 * x, -0.95 * y, 0.95 * y), 0.38 * height, waist,
                colour),
        frustum((-0.86 * x, hood, -0.93 * y, 0.93 * y), (-0.55 * x, 0.12 * x, -0.78 * y, 0.78 * y),
                waist, 0.95 * height, GLASS),
        box((-0.215 * x, 0, 0.972 * height), (0.69 * x, 1.58 * y, 0.056 * height), colour),
        box((-x, 0, 0.24 * height), (0.12, 1.9 * y, 0.12 * height), bumper),
        box((x, 0, 0.24 * height), (0.12, 1.9 * y, 0.12 * height), bumper),
        box((x - 0.01, 0, 0.36 * height), (0.08, 0.9 * y, 0.1 * height), dark),
        box((-x + 0.0, 0, 0.4 * height), (0.06, 0.52, 0.11), (214, 214, 206)),
    ]  # fmt: skip
    for side in (-1, 1):  # the pillar between the doors, and a mirror
        parts.append(
            beam((-0.12 * x, side * 0.94 * y, waist), (-0.16 * x, side * 0.79 * y, 0.95 * height),
                 0.09, colour)
        )  # fmt: skip
        parts.append(box((0.4 * x, side * (y + 0.05), waist), (0.14, 0.2, 0.14), colour))
    parts += _wheels(length, width, 0.225 * height, (-0.3, 0.31))
    parts += _rear_lights(-x, width, 0.5 * height, braking, (0.38, 0.2))
    parts += _front_lights(x - 0.02, width, 0.47 * height)
    if braking:
        parts.append(box((-0.83 * x, 0, 0.68 * height), (0.2, 0.9, 0.12), BRAKE, glow=True))
    return merge(parts)


def _truck(length: float, width: float, height: float, colour: Colour, braking: bool) -> Mesh:
    x, y = length / 2, width / 2
    cab = min(2.1, 0.32 * length)
    bed = 0.32 * height
    parts = [
        box((0, 0, 0.22 * height), (length * 0.98, 0.8 * width, 0.16 * height), (48, 50, 54)),
        frustum((x - cab, x, -y, y), (x - cab, x - 0.25, -y, y), 0.16 * height, 0.78 * height,
                colour),
        box((x - cab / 2 - 0.1, 0, 0.62 * height), (cab * 0.7, width + 0.04, 0.18 * height),
            GLASS),
        polygon(
            [(x - 0.06, -0.9 * y, 0.5 * height), (x - 0.06, 0.9 * y, 0.5 * height),
             (x - 0.2, 0.9 * y, 0.74 * height), (x - 0.2, -0.9 * y, 0.74 * height)], GLASS),
        box((-cab / 2 - 0.1, 0, (bed + height) / 2), (length - cab - 0.2, width, height - bed),
            (222, 222, 216)),
        box((-x, 0, (bed + height) / 2), (0.06, 0.06, height - bed - 0.2), (120, 120, 120)),
        box((-x, 0, 0.2 * height), (0.1, width, 0.3), (40, 40, 44)),
    ]  # fmt: skip
    stripe_m = length - cab - 0.2
    parts.append(
        box((-cab / 2 - 0.1, 0, bed + 0.35), (stripe_m + 0.04, width + 0.04, 0.4), colour)
    )
    parts += _wheels(length, width, min(0.5, 0.16 * height), (-0.36, -0.22, 0.36))
    parts += _rear_lights(-x - 0.06, width, 0.26 * height, braking, (0.5, 0.26))
    parts += _front_lights(x - 0.02, width, 0.25 * height)
    return merge(parts)


def _pedestrian(height: float, colour: Colour, stride: float) -> Mesh:
    hip, shoulder = 0.48 * height, 0.82 * height
    swing = np.sin(2 * np.pi * stride) * 0.45
    thick = 0.1 * height
    vest = colour in VESTS
    deep = 1.6 if vest else 1.0
    parts = [
        frustum((-0.07 * deep * height, 0.07 * deep * height, -0.11 * height, 0.11 * height),
                (-0.08 * deep * height, 0.08 * deep * height, -0.14 * height, 0.14 * height),
                hip - 0.04, shoulder, colour, glow=vest),
        upright((0.01, 0), [(0.04 * height, shoulder - 0.01), (0.07 * height, 0.87 * height),
                            (0.07 * height, 0.95 * height)], SKIN),
        upright((0, 0), [(0.075 * height, 0.94 * height), (0.05 * height, height)], HAIR),
    ]  # fmt: skip
    for side in (-1, 1):
        leg = box((0, side * 0.06 * height, hip / 2), (1.1 * thick, thick, hip), TROUSERS)
        shoe = box((0.05, side * 0.06 * height, 0.04), (0.26, thick, 0.08), TYRE)
        parts.append(merge([leg, shoe]).tilted(side * swing, (0, 0, hip)))
        size = (0.07 * height, 0.06 * height, 0.34 * height)
        arm = box((0, side * 0.17 * height, 0.64 * height), size, colour, glow=vest)
        parts.append(arm.tilted(-side * swing, (0, 0, shoulder)))
    return merge(parts)


def _cyclist(length: float, height: float, colour: Colour, stride: float) -> Mesh:
    radius = min(0.34, 0.2 * length)
    front, rear = length / 2 - radius, -length / 2 + radius
    saddle = np.array([rear + 0.28, 0, 0.56 * height])
    crank = np.array([0.5 * (front + rear) - 0.08, 0, radius])
    bars = np.array([front - 0.16, 0, 0.6 * height])
    hip = saddle + np.array([0.02, 0, 0.08])
    shoulder = np.array([0.5 * (saddle[0] + bars[0]) + 0.02, 0, 0.84 * height])
    metal = (150, 30, 34)
    vest = colour in VESTS
    parts = [
        wheel((front, 0, radius), radius, 0.05, TYRE, 12),
        wheel((rear, 0, radius), radius, 0.05, TYRE, 12),
        wheel((front, 0, radius), radius * 0.8, 0.06, (150, 152, 156), 12),
        wheel((rear, 0, radius), radius * 0.8, 0.06, (150, 152, 156), 12),
        beam((rear, 0, radius), crank, 0.06, metal),
        beam(crank, saddle, 0.06, metal),
        beam(crank, bars, 0.07, metal),
        beam((front, 0, radius), bars, 0.06, metal),
        beam((bars[0], -0.26, bars[2]), (bars[0], 0.26, bars[2]), 0.05, TYRE),
        beam(hip, shoulder, 0.44 if vest else 0.34, colour, glow=vest),
        upright((shoulder[0] + 0.1, 0), [(0.07, 0.85 * height), (0.11, 0.94 * height)], SKIN),
        upright((shoulder[0] + 0.1, 0), [(0.14, 0.925 * height), (0.08, height)], (240, 220, 60)),
        box((rear - 0.12, 0, 0.45 * height), (0.04, 0.12, 0.1), (220, 20, 20), glow=True),
    ]
    for side in (-1, 1):
        angle = 2 * np.pi * stride + (np.pi if side > 0 else 0)
        pedal = crank + np.array([0.17 * np.cos(angle), side * 0.12, 0.17 * np.sin(angle)])
        knee = (hip + pedal) / 2 + np.array([0.2, side * 0.06, 0.08])
        parts.append(beam(hip + np.array([0, side * 0.09, 0]), knee, 0.15, TROUSERS))
        parts.append(beam(knee, pedal, 0.12, TROUSERS))
        arm = shoulder + np.array([0, side * 0.19, -0.05])
        parts.append(beam(arm, (bars[0], side * 0.24, bars[2]), 0.09, colour, glow=vest))
    return merge(parts)
