"""Triangles with one colour each, and the solids that everything in a scene is made of.

Seen from outside, corners run counter-clockwise. Knows no graphics library.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from .scene import Colour


@dataclass(frozen=True, eq=False)
class Mesh:
    """T flat triangles; those that glow shine by themselves, whatever the light."""

    corners_m: np.ndarray  # float32 [T, 3, 3]: triangle, corner, axis
    colours: np.ndarray  # float32 [T, 3], 0 … 255
    glow: np.ndarray  # bool [T]

    def placed(self, position_m: Sequence[float], heading_rad: float) -> Mesh:
        """Return the mesh turned about z, then moved by `position_m` (x, y)."""
        cos, sin = np.cos(heading_rad), np.sin(heading_rad)
        rotation = np.array([[cos, sin, 0], [-sin, cos, 0], [0, 0, 1]], np.float32)
        offset = np.array([*position_m, 0], np.float32)
        return Mesh(self.corners_m @ rotation + offset, self.colours, self.glow)

    def tilted(self, angle_rad: float, pivot_m: tuple[float, float, float]) -> Mesh:
        """Return the mesh turned about the y axis through `pivot_m`; positive moves x down."""
        cos, sin = np.cos(angle_rad), np.sin(angle_rad)
        rotation = np.array([[cos, 0, -sin], [0, 1, 0], [sin, 0, cos]], np.float32)
        pivot = np.array(pivot_m, np.float32)
        return Mesh((self.corners_m - pivot) @ rotation + pivot, self.colours, self.glow)

    def normals(self) -> np.ndarray:
        """Return the outward unit normals, float32 [T, 3]."""
        a, b, c = np.moveaxis(self.corners_m, 1, 0)
        (ux, uy, uz), (vx, vy, vz) = (b - a).T, (c - a).T
        normals = np.stack([uy * vz - uz * vy, uz * vx - ux * vz, ux * vy - uy * vx], axis=1)
        return normals / np.maximum(np.sqrt((normals**2).sum(axis=1, keepdims=True)), 1e-12)


def merge(meshes: Iterable[Mesh]) -> Mesh:
    """Return one mesh of all triangles, in order."""
    parts = [EMPTY, *meshes]
    return Mesh(
        np.concatenate([part.corners_m for part in parts]),
        np.concatenate([part.colours for part in parts]),
        np.concatenate([part.glow for part in parts]),
    )


def triangles(
    corners_m: np.ndarray, colour: Colour | np.ndarray = (128, 128, 128), glow: bool = False
) -> Mesh:
    """Return a mesh of corners [T, 3, 3] in one colour, or in T colours."""
    corners = np.asarray(corners_m, np.float32).reshape(-1, 3, 3)
    colours = np.empty((len(corners), 3), np.float32)
    colours[:] = colour
    return Mesh(corners, colours, np.full(len(corners), glow))


EMPTY = triangles(np.zeros((0, 3, 3)))


def polygon(corners_m: Sequence[Sequence[float]], colour: Colour, glow: bool = False) -> Mesh:
    """Return a convex polygon, [N, 3]."""
    corners = np.asarray(corners_m, np.float32)
    fan = [(corners[0], corners[i], corners[i + 1]) for i in range(1, len(corners) - 1)]
    return triangles(np.array(fan), colour, glow)


def quads(a: np.ndarray, b: np.ndarray, c: np.ndarray, d: np.ndarray) -> np.ndarray:
    """Return the triangles [2 N, 3, 3] of N quadrilaterals with corners [N, 3] each."""
    halves = np.stack([np.stack([a, b, c], -2), np.stack([a, c, d], -2)], -3)
    return halves.reshape(-1, 3, 3)


def frustum(
    bottom: tuple[float, float, float, float],
    top: tuple[float, float, float, float],
    bottom_m: float,
    top_m: float,
    colour: Colour,
    roof: Colour | None = None,
    glow: bool = False,
) -> Mesh:
    """Return a solid between two rectangles (x from, x to, y from, y to) at two heights."""
    corners = np.array(
        [
            (r[i], r[j], z)
            for r, z in ((bottom, bottom_m), (top, top_m))
            for i, j in ((0, 2), (1, 2), (1, 3), (0, 3))
        ],
        np.float32,
    )
    faces = [(3, 2, 1, 0), (0, 1, 5, 4), (1, 2, 6, 5), (2, 3, 7, 6), (3, 0, 4, 7), (4, 5, 6, 7)]
    a, b, c, d = (corners[[face[i] for face in faces]] for i in range(4))
    colours = np.repeat([colour] * 5 + [roof or colour], 2, axis=0)
    return triangles(quads(a, b, c, d), colours, glow)


def box(
    centre_m: tuple[float, float, float],
    size_m: tuple[float, float, float],
    colour: Colour,
    roof: Colour | None = None,
    glow: bool = False,
) -> Mesh:
    """Return a box along the axes."""
    (x, y, z), (length, width, height) = centre_m, size_m
    outline = (x - length / 2, x + length / 2, y - width / 2, y + width / 2)
    return frustum(outline, outline, z - height / 2, z + height / 2, colour, roof, glow)


def beam(
    start_m: ArrayLike, end_m: ArrayLike, thickness_m: float, colour: Colour, glow: bool = False
) -> Mesh:
    """Return a bar of square section between two points."""
    start, end = np.asarray(start_m, float), np.asarray(end_m, float)
    along = (end - start) / np.linalg.norm(end - start)
    across = np.cross(along, [0, 0, 1.0] if abs(along[2]) < 0.9 else [0, 1.0, 0])
    across *= thickness_m / 2 / np.linalg.norm(across)
    up = np.cross(along, across)
    ring = np.array([across + up, -across + up, -across - up, across - up])
    return tube(np.stack([start + ring, end + ring]), colour, glow=glow)


def tube(rings_m: np.ndarray, colour: Colour, capped: bool = True, glow: bool = False) -> Mesh:
    """Return the hull of rings [R, N, 3], each counter-clockwise seen from the last ring."""
    rings = np.asarray(rings_m, np.float32)
    low, high = rings[:-1], rings[1:]
    sides = quads(low, np.roll(low, -1, axis=1), np.roll(high, -1, axis=1), high)
    parts = [triangles(sides, colour, glow)]
    if capped:
        parts += [polygon(ring, colour, glow) for ring in (rings[0][::-1], rings[-1])]
    return merge(parts)


def upright(
    centre_m: tuple[float, float],
    profile_m: Sequence[tuple[float, float]],
    colour: Colour,
    sides: int = 6,
) -> Mesh:
    """Return a body of revolution about z through (radius, height) pairs, from the bottom up."""
    angles = np.arange(sides) * 2 * np.pi / sides
    circle = np.stack([np.cos(angles), np.sin(angles), np.zeros(sides)], axis=1)
    rings = [
        circle * [radius, radius, 0] + [centre_m[0], centre_m[1], z] for radius, z in profile_m
    ]
    return tube(np.array(rings), colour)


def wheel(
    centre_m: tuple[float, float, float],
    radius_m: float,
    width_m: float,
    colour: Colour,
    sides: int = 10,
) -> Mesh:
    """Return a cylinder about the y axis."""
    angles = np.arange(sides) * 2 * np.pi / sides
    circle = np.stack([np.sin(angles), np.zeros(sides), np.cos(angles)], axis=1) * radius_m
    half = np.array([0, width_m / 2, 0])
    return tube(np.array([circle - half, circle + half]) + np.asarray(centre_m), colour)


def disc(
    centre_m: tuple[float, float, float],
    radius_m: float,
    colour: Colour,
    sides: int = 12,
    glow: bool = False,
) -> Mesh:
    """Return a disc that faces along x."""
    angles = np.arange(sides) * 2 * np.pi / sides
    rim = np.stack([np.zeros(sides), np.cos(angles), np.sin(angles)], axis=1) * radius_m
    return polygon(rim + np.asarray(centre_m), colour, glow)
