"""Meshes of what never moves: ground, buildings, trees, roadworks, traffic lights."""

from typing import Any

import numpy as np

from .meshes import (
    EMPTY,
    Mesh,
    beam,
    box,
    disc,
    merge,
    polygon,
    quads,
    triangles,
    upright,
)
from .scene import Colour, Light, Prop, PropKind, Scene, Signal, Strip, Surface

SURFACE_COLOURS: dict[Surface, Colour] = {
    Surface.SIDEWALK: (146, 141, 134),
    Surface.ASPHALT: (74, 76, 80),
    Surface.EDGE_LINE: (226, 226, 222),
    Surface.CENTRE_LINE: (232, 182, 44),
    Surface.STOP_LINE: (232, 232, 228),
    Surface.CROSSWALK: (232, 232, 228),
    Surface.ROADWORKS: (128, 98, 64),
}
ROUGH = {Surface.SIDEWALK: 0.035, Surface.ASPHALT: 0.03, Surface.ROADWORKS: 0.12}

LAND_RADIUS_M = 700.0
FOG_STEP_M = 8.0  # fog is exact at corners, and between them a guess
TUFTS_PER_M = 0.5  # of road
WHITE, BLACK, STEEL = (236, 236, 232), (18, 18, 20), (96, 100, 104)
ORANGE, RED, GLASS = (255, 106, 20), (206, 28, 30), (58, 72, 92)

LAMP_DIAMETER_M = 0.85  # thrice the real thing: a pixel or two more of a small picture
LAMP_PITCH_M = LAMP_DIAMETER_M + 0.12
LAMPS_SIZE_M = (LAMP_DIAMETER_M + 0.2, 3 * LAMP_PITCH_M + 0.1)  # width, height of the housing
LIT: dict[Light, Colour] = {
    Light.RED: (255, 36, 28),
    Light.AMBER: (255, 186, 0),
    Light.GREEN: (30, 255, 110),
}
UNLIT: dict[Light, Colour] = {
    Light.RED: (44, 14, 14),
    Light.AMBER: (42, 34, 10),
    Light.GREEN: (10, 40, 22),
}


def land(colour: Colour) -> Mesh:
    """Return the ground around the eye: rings, ever wider, on which fog may thicken smoothly."""
    radii = np.array([0.0, *np.geomspace(2, LAND_RADIUS_M, 14)])
    angles = np.linspace(0, 2 * np.pi, 25)
    rim = np.stack([np.cos(angles), np.sin(angles), np.zeros(angles.shape)], axis=-1)
    grid = radii[:, None, None] * rim
    return triangles(quads(grid[:-1, :-1], grid[1:, :-1], grid[1:, 1:], grid[:-1, 1:]), colour)


def tufts(scene: Scene) -> Mesh:
    """Return darker and lighter patches beside the roads, by which one sees one's speed."""
    colour = np.array(scene.weather.ground, np.float32)
    random = np.random.default_rng(scene.weather.noise_seed)
    roads = [strip for strip in scene.strips if strip.surface is Surface.ASPHALT]
    return merge(_tufts(strip, colour, random) for strip in roads)


def _tufts(strip: Strip, colour: np.ndarray, random: np.random.Generator) -> Mesh:
    left, right = _edges(strip)
    steps = np.linalg.norm(np.diff(left, axis=0), axis=1)
    count = int(steps.sum() * TUFTS_PER_M)
    if count == 0:
        return EMPTY
    at = random.integers(len(left), size=count)
    outward = (left - right)[at]
    width = np.maximum(np.linalg.norm(outward, axis=1, keepdims=True), 0.1)
    side = random.random((count, 1)) < 0.5
    beside_m = 1 + 26 * random.random((count, 1)) ** 1.5
    centre = np.where(side, left[at], right[at]) + outward / width * beside_m * np.where(
        side, 1, -1
    )
    sides = 6
    angles = np.arange(sides) * 2 * np.pi / sides
    radius = (0.5 + 1.6 * random.random((count, 1))) * (0.6 + 0.6 * random.random((count, sides)))
    rim = np.zeros((count, sides, 3))
    rim[..., 0] = centre[:, :1] + radius * np.cos(angles)
    rim[..., 1] = centre[:, 1:] + radius * np.sin(angles)
    fans = np.stack(
        [np.stack([rim[:, 0], rim[:, i], rim[:, i + 1]], axis=1) for i in range(1, sides - 1)],
        axis=1,
    )
    shade = 1 + 0.22 * (random.random((count, 1)) * 2 - 1)
    return triangles(fans, np.repeat(np.clip(colour * shade, 0, 255), sides - 2, axis=0))


def surface(scene: Scene, kind: Surface) -> Mesh:
    """Return all strips of one kind; rough kinds vary a little in brightness along the way."""
    random = np.random.default_rng((scene.weather.noise_seed, list(Surface).index(kind)))
    parts = []
    for strip in scene.strips:
        if strip.surface is not kind or len(strip.left_map_m) < 2:
            continue
        left, right = (np.pad(edge, ((0, 0), (0, 1))) for edge in _edges(strip))
        corners = quads(right[:-1], right[1:], left[1:], left[:-1])
        shade = 1 + ROUGH.get(kind, 0.0) * (random.random((len(left) - 1, 1)) * 2 - 1)
        colours = np.array(SURFACE_COLOURS[kind], np.float32) * shade
        mesh = triangles(corners, np.repeat(colours, 2, axis=0))
        below = mesh.normals()[:, 2] < 0  # whichever edge is called left, one looks from above
        mesh.corners_m[below] = mesh.corners_m[below, ::-1]
        parts.append(mesh)
    return merge(parts)


def _edges(strip: Strip) -> tuple[np.ndarray, np.ndarray]:
    """Return left and right edge [M, 2] with points close enough for fog to thicken smoothly."""
    edges = np.stack([strip.left_map_m, strip.right_map_m], axis=1).astype(float)
    step_m = np.linalg.norm(np.diff(edges, axis=0), axis=2).max(axis=1)
    pieces = np.maximum(np.ceil(step_m / FOG_STEP_M), 1).astype(int)
    at = np.repeat(np.arange(len(pieces)), pieces)
    within = (np.arange(len(at)) - np.repeat(np.cumsum(pieces) - pieces, pieces)) / pieces[at]
    within = within[:, None, None]
    points = np.concatenate([edges[at] * (1 - within) + edges[at + 1] * within, edges[-1:]])
    return points[:, 0], points[:, 1]


def prop(item: Prop, daylight: float) -> Mesh:
    """Return a prop where it stands."""
    x, y = item.position_map_m
    random = np.random.default_rng([round(abs(x) * 100), round(abs(y) * 100)])
    length, width, height = (max(float(size), 0.05) for size in item.size_m)
    match item.kind:
        case PropKind.BUILDING:
            mesh = _building(length, width, height, item.colour, daylight, random)
        case PropKind.TREE:
            mesh = _tree(max(length, width), height, item.colour, random)
        case PropKind.CONE:
            mesh = _cone(max(length, width), height)
        case PropKind.BARRIER:
            mesh = _barrier(length, height)
        case PropKind.SIGN:
            mesh = _sign(max(length, width), height)
        case PropKind.LAMP_POST:
            mesh = _lamp_post(height, daylight)
    return mesh.placed(item.position_map_m, item.heading_rad)


def _darker(colour: Colour, factor: float) -> Colour:
    red, green, blue = (min(255, round(value * factor)) for value in colour)
    return red, green, blue


def _building(
    length: float,
    width: float,
    height: float,
    colour: Colour,
    daylight: float,
    random: np.random.Generator,
) -> Mesh:
    """Walls with a grid of windows: bands of glass with pillars over them."""
    walls = box((0, 0, height / 2), (length, width, height), colour, _darker(colour, 0.6))
    parts = [walls]
    storeys = max(1, int(height / 3.2))
    storey_m = height / storeys
    for turn, across, depth in ((0, width, length / 2), (1, length, width / 2)):
        y = across / 2
        pillars = max(2, int(across / 2.6))
        edges = -y + np.arange(1, pillars) * across / pillars
        for side in (0, 2):
            panes = [
                _pane(depth + 0.06, 0.6 - y, y - 0.6, i * storey_m + 1.0, 1.5)
                for i in range(storeys)
            ]
            bands = [
                _pane(depth + 0.12, edge - 0.45, edge + 0.45, 0.2, height - 0.6) for edge in edges
            ]
            flat = [triangles(np.array(panes), GLASS), triangles(np.array(bands), colour)]
            if daylight < 0.4:
                floors = random.integers(storeys, size=len(edges)) * storey_m + 1.0
                lit = [
                    _pane(depth + 0.18, edge + 0.5, edge + 1.6, floor, 1.4)
                    for edge, floor in zip(edges, floors, strict=True)
                ]
                flat.append(triangles(np.array(lit), (255, 214, 140), glow=True))
            parts.append(merge(flat).placed((0.0, 0.0), (turn + side) * np.pi / 2))
    return merge(parts)


def _pane(x: float, right: float, left: float, bottom: float, height: float) -> list[Any]:
    """Return the two triangles of an upright rectangle that faces along x."""
    top = bottom + height
    a, b, c, d = (x, right, bottom), (x, left, bottom), (x, left, top), (x, right, top)
    return [(a, b, c), (a, c, d)]


def _tree(crown_m: float, height: float, colour: Colour, random: np.random.Generator) -> Mesh:
    radius = max(crown_m, 0.8) / 2
    trunk = upright((0, 0), [(0.2, 0), (0.14, 0.5 * height)], (92, 68, 46), 5)
    if random.random() < 0.35:  # a conifer
        profile = [(radius, 0.22 * height), (0.55 * radius, 0.6 * height), (0.02, height)]
        crown = upright((0, 0), profile, _darker(colour, 0.8), 7)
    else:
        profile = [(0.45, 0.3), (0.95, 0.48), (1.0, 0.66), (0.65, 0.9), (0.1, 1.0)]
        crown = upright((0, 0), [(r * radius, z * height) for r, z in profile], colour, 7)
    shade = 1 + 0.1 * (random.random((len(crown.colours), 1)) * 2 - 1)
    crown = Mesh(crown.corners_m, crown.colours * shade, crown.glow)
    return merge([trunk, crown]).placed((0.0, 0.0), 2 * np.pi * random.random())


def _cone(base_m: float, height: float) -> Mesh:
    radius = max(base_m, 0.3) * 0.42

    def part(low: float, high: float, colour: Colour) -> Mesh:
        rings = [(radius * (1 - 0.85 * at), height * at) for at in (low, high)]
        return upright((0, 0), rings, colour, 8)

    foot = box((0, 0, 0.025), (base_m, base_m, 0.05), BLACK)
    return merge([foot, part(0.04, 0.4, ORANGE), part(0.4, 0.68, WHITE), part(0.68, 1.0, ORANGE)])


def _barrier(length: float, height: float) -> Mesh:
    """Two red and white planks on feet, along x."""
    fields = max(2, round(length / 0.5))
    step = length / fields
    parts = []
    for i in range(fields):
        x = -length / 2 + (i + 0.5) * step
        colours = (RED, WHITE) if i % 2 == 0 else (WHITE, RED)
        for colour, z in zip(colours, (0.84, 0.45), strict=True):
            parts.append(box((x, 0, z * height), (step, 0.08, 0.3 * height), colour))
    for x in (-0.42 * length, 0.42 * length):
        parts.append(box((x, 0, 0.35 * height), (0.08, 0.06, 0.7 * height), STEEL))
        parts.append(box((x, 0, 0.05), (0.14, 0.6, 0.1), BLACK))
    return merge(parts)


def _sign(board_m: float, height: float) -> Mesh:
    """An orange diamond with a black figure, seen from both sides."""
    half = min(max(board_m, 0.8) * 0.7, height / 2)
    z = height - half
    faces = []
    for size, colour, x in ((1.0, BLACK, 0.05), (0.9, ORANGE, 0.07)):
        reach = half * size
        faces.append(
            polygon([(x, -reach, z), (x, 0, z - reach), (x, reach, z), (x, 0, z + reach)], colour)
        )
    figure = [
        _pane(0.09, -0.1 * half, 0.1 * half, z - 0.1 * half, 0.5 * half),
        _pane(0.09, -0.1 * half, 0.1 * half, z - 0.4 * half, 0.18 * half),
    ]
    faces.append(triangles(np.array(figure), BLACK))
    front = merge(faces)
    pole = box((0, 0, z / 2), (0.07, 0.07, z), STEEL)
    return merge([pole, front, front.placed((0.0, 0.0), np.pi)])


def _lamp_post(height: float, daylight: float) -> Mesh:
    """A pole whose arm reaches along x."""
    parts = [
        upright((0, 0), [(0.09, 0), (0.06, height)], STEEL, 5),
        beam((0, 0, height - 0.05), (1.6, 0, height), 0.09, STEEL),
        box((1.6, 0, height), (0.7, 0.26, 0.12), (70, 72, 76)),
    ]
    lit = daylight < 0.5
    parts.append(box((1.6, 0, height - 0.08), (0.6, 0.22, 0.06), (255, 236, 190), glow=lit))
    return merge(parts)


def _lamp_centre(signal: Signal) -> tuple[float, float, float]:
    """Centre of the housing's front; x is where the signal faces, so drivers' left is -y."""
    return 0.28, -signal.arm_left_m, signal.lamp_height_m


def signal_post(signal: Signal) -> Mesh:
    """Return mast, arm and housing of a traffic light where it stands, without its lamps."""
    x, y, z = _lamp_centre(signal)
    width, height = LAMPS_SIZE_M
    top = z + height / 2 + 0.15
    parts = [
        upright((0, 0), [(0.13, 0), (0.09, top + 0.2)], STEEL, 6),
        box((x - 0.16, y, z), (0.28, width, height), (22, 23, 25)),
        box((x - 0.18, y, z), (0.04, width + 0.55, height + 0.45), WHITE),
        box((x - 0.16, y, z), (0.05, width + 0.4, height + 0.3), BLACK),
    ]
    if signal.arm_left_m:
        parts.append(beam((0, 0, top), (0, y, top), 0.14, STEEL))
        parts.append(beam((0, y, top), (0, y, z), 0.1, STEEL))
    return merge(parts).placed(signal.position_map_m, signal.heading_rad)


def signal_lamps(signal: Signal, state: Light) -> Mesh:
    """Return the three lamps, red on top, of which one is lit."""
    x, y, z = _lamp_centre(signal)
    parts = []
    for place, lamp in zip((1, 0, -1), Light, strict=True):
        lit = lamp is state
        colour = LIT[lamp] if lit else UNLIT[lamp]
        centre = (x + 0.02, y, z + place * LAMP_PITCH_M)
        parts.append(disc(centre, LAMP_DIAMETER_M / 2, colour, 14, glow=lit))
    return merge(parts).placed(signal.position_map_m, signal.heading_rad)
