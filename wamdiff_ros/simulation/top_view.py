"""The world from above, as polygons around the ego vehicle for the inset of a video."""

import math
from collections.abc import Iterable, Iterator

import numpy as np

from .scene import Body, BodyKind, Light, PropKind, Scene, Surface

SHOWN_M = 70.0  # around the vehicle
SIGNAL_SIZE_M = (1.6, 1.6)
SURFACE_RGB = {
    Surface.SIDEWALK: (62, 64, 68),
    Surface.ASPHALT: (44, 47, 53),
    Surface.EDGE_LINE: (150, 150, 150),
    Surface.CENTRE_LINE: (170, 150, 60),
    Surface.STOP_LINE: (200, 200, 200),
    Surface.CROSSWALK: (120, 120, 120),
    Surface.ROADWORKS: (110, 84, 50),
}
PROP_RGB = {PropKind.CONE: (235, 120, 40), PropKind.BARRIER: (235, 120, 40)}
LIGHT_RGB = {Light.RED: (235, 60, 60), Light.AMBER: (240, 180, 40), Light.GREEN: (60, 200, 90)}
VEHICLE_RGB, PERSON_RGB, BRAKING_RGB = (120, 170, 250), (250, 220, 90), (235, 60, 60)

Shape = tuple[np.ndarray, tuple[int, int, int]]  # polygon [K, 2], colour


class TopView:
    """One scene, to be seen from above."""

    def __init__(self, scene: Scene) -> None:
        order = list(Surface)
        strips = sorted(scene.strips, key=lambda strip: order.index(strip.surface))
        self._fixed: list[Shape] = [
            (
                np.concatenate([strip.left_map_m, strip.right_map_m[::-1]]),
                SURFACE_RGB[strip.surface],
            )
            for strip in strips
        ]
        self._fixed += [
            (_box(prop.position_map_m, prop.heading_rad, prop.size_m), PROP_RGB[prop.kind])
            for prop in scene.props
            if prop.kind in PROP_RGB
        ]
        self._signals = [_box(s.position_map_m, 0.0, SIGNAL_SIZE_M) for s in scene.signals]

    def shapes(
        self,
        bodies: Iterable[Body],
        lights: Iterable[Light],
        position_map_m: tuple[float, float],
        heading_rad: float,
    ) -> tuple[Shape, ...]:
        """Return what lies around a pose, in its base frame, from the ground upwards."""
        lamps = [LIGHT_RGB[light] for light in lights]
        shapes = [*self._fixed, *zip(self._signals, lamps, strict=True), *_moving(bodies)]
        cos, sin = math.cos(heading_rad), math.sin(heading_rad)
        to_base = np.array([[cos, -sin], [sin, cos]])
        return tuple(
            ((polygon - position_map_m) @ to_base, rgb)
            for polygon, rgb in shapes
            if np.hypot(*(polygon - position_map_m).T).min() < SHOWN_M
        )


def _moving(bodies: Iterable[Body]) -> Iterator[Shape]:
    for body in bodies:
        is_vehicle = body.kind in (BodyKind.CAR, BodyKind.TRUCK)
        rgb = BRAKING_RGB if body.braking else VEHICLE_RGB if is_vehicle else PERSON_RGB
        yield _box(body.position_map_m, body.heading_rad, body.size_m), rgb


def _box(position_map_m, heading_rad: float, size_m) -> np.ndarray:
    cos, sin = math.cos(heading_rad), math.sin(heading_rad)
    corners = np.array([[1, 1], [1, -1], [-1, -1], [-1, 1]]) * size_m[:2] / 2
    return corners @ np.array([[cos, sin], [-sin, cos]]) + position_map_m
