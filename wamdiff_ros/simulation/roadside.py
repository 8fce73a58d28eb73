"""What stands beside the roads: buildings, trees and lamp posts, clear of every road."""

import math
from collections.abc import Iterable, Iterator

import numpy as np

from .ground import Road
from .route import ARM_LENGTH_M, LEAD_IN_M, RUN_OUT_M, Route
from .scene import Colour, Prop, PropKind

CLEAR_M = 8.0  # from the middle of any road to anything that stands
BUILDING_FROM_M = 9.5  # from the middle of its road to a building's front
APART_M = 1.5  # between buildings, and between them and trees

WALLS: tuple[Colour, ...] = (
    (196, 178, 152), (170, 120, 98), (208, 202, 190), (150, 152, 158), (214, 190, 140),
    (132, 104, 88), (182, 196, 204), (228, 222, 210), (118, 128, 140),
)  # fmt: skip
LEAVES: tuple[Colour, ...] = ((74, 110, 52), (92, 124, 58), (58, 92, 50), (110, 128, 62))
STEEL: Colour = (110, 114, 118)


class Site:
    """Ground that is taken: the middles of all roads, and what stands already."""

    def __init__(self, route: Route) -> None:
        s = np.arange(-LEAD_IN_M, route.length_m + RUN_OUT_M + 1, 2.0).tolist()
        points = [route.pose(value, route.lane_width_m / 2)[:2] for value in s]
        for junction in route.junctions:
            x, y = junction.centre_map_m
            for arm in junction.side_arms():
                heading = junction.arm_heading_rad(arm)
                points += [
                    (x + a * math.cos(heading), y + a * math.sin(heading))
                    for a in np.arange(0.0, ARM_LENGTH_M + 1, 2.0).tolist()
                ]
        self._roads = np.array(points)
        self._taken = np.zeros((0, 2))

    def take(
        self, xy: tuple[float, float], heading_rad: float, length_m: float, width_m: float
    ) -> bool:
        """Take a rectangle if it is free; return whether it was."""
        cos, sin = math.cos(heading_rad), math.sin(heading_rad)
        turn = np.array([[cos, -sin], [sin, cos]])
        half = np.array([length_m, width_m]) / 2
        for points, margin in ((self._roads, CLEAR_M), (self._taken, APART_M)):
            outside = np.maximum(np.abs((points - xy) @ turn) - half, 0)
            if np.any(np.hypot(*outside.T) < margin):
                return False
        grid = (np.linspace(-side, side, 2 + int(side)) for side in half)
        self._taken = np.concatenate(
            [self._taken, xy + np.stack(np.meshgrid(*grid), -1).reshape(-1, 2) @ turn.T]
        )
        return True


def props(route: Route, roads: Iterable[Road], rng: np.random.Generator) -> list[Prop]:
    """Return everything that stands beside the roads, in a random but plausible order."""
    site, roads = Site(route), list(roads)
    found: list[Prop] = []
    # Buildings first, since trees find room between them.
    for grow in (_buildings, _lamp_posts, _trees, _end_of_road):
        for road in roads:
            found += grow(road, site, rng)
    return found


def _in_town(road: Road, s: float) -> bool:
    return any(low <= s <= high for low, high in road.town)


def _buildings(road: Road, site: Site, rng: np.random.Generator) -> Iterator[Prop]:
    for side in (-1, 1):
        s = road.start_s + rng.uniform(0, 8)
        while s < road.end_s:
            length, depth = float(rng.uniform(9, 20)), float(rng.uniform(8, 12))
            height = float(rng.choice([4.5, 6.5, 9.0, 12.0, 15.0]) + rng.uniform(-0.5, 0.5))
            back = float(rng.exponential(2.5))
            colour = WALLS[rng.integers(len(WALLS))]
            wanted = rng.uniform() < (0.85 if _in_town(road, s + length / 2) else 0.07)
            # In a bend the front steps back until the whole building clears the road.
            for farther in (0, 2, 5, 9) if wanted else ():
                d = side * (BUILDING_FROM_M + back + farther + depth / 2)
                x, y, heading = road.pose(s + length / 2, d)
                if site.take((x, y), heading, length, depth):
                    size = (length, depth, height)
                    yield Prop(PropKind.BUILDING, (x, y), heading, size, colour)
                    break
            s += length + float(rng.uniform(1.5, 9))


def _lamp_posts(road: Road, site: Site, rng: np.random.Generator) -> Iterator[Prop]:
    """Lamp posts head towards the road that they light."""
    s, side = road.start_s + float(rng.uniform(6, 20)), 1
    while s < road.end_s - 3:
        if _in_town(road, s):
            x, y, heading = road.pose(s, side * (CLEAR_M + 0.4))
            if site.take((x, y), heading, 0.3, 0.3):
                towards = heading - side * math.pi / 2
                yield Prop(PropKind.LAMP_POST, (x, y), towards, (0.2, 0.2, 6.5), STEEL)
            side = -side
        s += 22.0


def _trees(road: Road, site: Site, rng: np.random.Generator) -> Iterator[Prop]:
    for side in (-1, 1):
        s = road.start_s + float(rng.uniform(0, 10))
        while s < road.end_s:
            town = _in_town(road, s)
            d = CLEAR_M + 0.8 + float(rng.uniform(0, 2) if town else rng.exponential(7))
            yield from _tree(road.pose(s, side * d)[:2], site, rng)
            s += float(rng.uniform(8, 22) if town else rng.uniform(4, 14))


def _end_of_road(road: Road, site: Site, rng: np.random.Generator) -> Iterator[Prop]:
    """A wood hides where a road ends."""
    for end, outwards, open_end in zip(
        (road.start_s, road.end_s), (-1, 1), (not m for m in road.meets_junction), strict=True
    ):
        for d in range(-16, 17, 4) if open_end else ():
            away = outwards * float(CLEAR_M + 1 + rng.uniform(0, 8))
            x, y, heading = road.pose(end, d)
            xy = (x + away * math.cos(heading), y + away * math.sin(heading))
            yield from _tree(xy, site, rng)


def _tree(xy: tuple[float, float], site: Site, rng: np.random.Generator) -> Iterator[Prop]:
    crown, height = float(rng.uniform(2.6, 5.0)), float(rng.uniform(4.5, 10.0))
    colour, heading = LEAVES[rng.integers(len(LEAVES))], float(rng.uniform(-math.pi, math.pi))
    if site.take(xy, 0.0, 0.6, 0.6):
        yield Prop(PropKind.TREE, xy, heading, (crown, crown, height), colour)
