"""The scene along a route: the ground, what stands on it, traffic lights, roadworks, weather."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..types import Command
from . import ground, roadside
from .ground import Span, half_width_m
from .route import LEAD_IN_M, RUN_OUT_M, Junction, Route
from .scene import Colour, Prop, PropKind, Scene, Signal, Strip, Surface, Weather

MAST_M = 0.6  # from the asphalt to the mast of a traffic light
CONE_EVERY_M = 3.0
TAPER_M = 6.0  # over which roadworks grow to their full width
SIGN_BEFORE_M = 25.0  # roadworks
FIELDS: tuple[Colour, ...] = ((98, 122, 70), (112, 126, 78), (86, 112, 66), (128, 124, 88))
ORANGE: Colour = (236, 104, 32)


@dataclass(frozen=True)
class Roadworks:
    """A closed part of the ego vehicle's lane, from the lane's right edge to the left."""

    start_s: float
    end_s: float
    intrusion_m: float

    def width_m(self, s_m: float) -> float:
        """Return how much of the lane is closed at `s_m`; it grows and falls in a taper."""
        inside = min(s_m - self.start_s, self.end_s - s_m)
        return self.intrusion_m * min(max(inside / TAPER_M, 0.0), 1.0)


@dataclass(frozen=True)
class Features:
    """What the world puts on a route that can be seen; the junctions have their own crosswalks."""

    crosswalks_s: tuple[float, ...] = ()
    parking: tuple[Span, ...] = ()  # bays on the right side, from s to s
    roadworks: tuple[Roadworks, ...] = ()


def make_scene(route: Route, rng: np.random.Generator, features: Features) -> Scene:
    """Return the scene of a route; one state of `rng`, one scene."""
    town = _town(route, rng, features)
    roads = ground.roads(route, town, features.parking)
    strips = [*ground.strips(route, roads, town, features.crosswalks_s)]
    strips += [_broken_ground(route, works) for works in features.roadworks]
    props = roadside.props(route, roads, rng)
    for works in features.roadworks:
        props += _closure(route, works, features.parking)
    signals = [_signal(route, j) for j in route.junctions if j.signal is not None]
    order = list(Surface)
    strips.sort(key=lambda strip: order.index(strip.surface))
    return Scene(tuple(strips), tuple(props), tuple(signals), _weather(rng))


def _town(route: Route, rng: np.random.Generator, features: Features) -> tuple[Span, ...]:
    """Return where houses and sidewalks are: all along, on one part, or only where needed."""
    start, end = -LEAD_IN_M, route.length_m + RUN_OUT_M
    edge = float(rng.uniform(0.2, 0.8)) * route.length_m
    kind = rng.choice(['town', 'edge', 'country'], p=[0.5, 0.3, 0.2])
    spans = {'town': [(start, end)], 'country': []}.get(
        kind, [(start, edge)] if rng.uniform() < 0.5 else [(edge, end)]
    )
    crosswalks = [*features.crosswalks_s, *(j.crosswalk_s for j in route.junctions)]
    spans += [(s - 18.0, s + 18.0) for s in crosswalks if s is not None]
    spans += [(low - 10.0, high + 10.0) for low, high in features.parking]
    merged: list[Span] = []
    for low, high in sorted(spans):
        if merged and low <= merged[-1][1]:
            low, high = merged[-1][0], max(high, merged.pop()[1])
        merged.append((max(low, start), min(high, end)))
    return tuple(merged)


def _signal(route: Route, junction: Junction) -> Signal:
    """A traffic light beyond the junction, so that whoever waits at the stop line sees it."""
    size, half = junction.half_size_m, half_width_m(route)
    # On the corner, as far forward as its round edge allows.
    forward = size - 2.0 if Command.STRAIGHT in junction.arms else half + MAST_M
    right = half + MAST_M
    if Command.RIGHT in junction.arms and Command.STRAIGHT in junction.arms:
        right = size - math.sqrt((size - half - MAST_M) ** 2 - (size - forward) ** 2)
    cos, sin = math.cos(junction.heading_rad), math.sin(junction.heading_rad)
    x, y = junction.centre_map_m
    return Signal(
        position_map_m=(x + forward * cos + right * sin, y + forward * sin - right * cos),
        heading_rad=junction.heading_rad + math.pi,
        arm_left_m=right - route.lane_width_m / 2,
    )


def _broken_ground(route: Route, works: Roadworks) -> Strip:
    s = np.linspace(works.start_s, works.end_s, 2 + int(works.end_s - works.start_s)).tolist()
    edge = -route.lane_width_m / 2
    left = [route.pose(v, edge + works.width_m(v))[:2] for v in s]
    right = [route.pose(v, edge - ground.SHOULDER_M)[:2] for v in s]
    return Strip(Surface.ROADWORKS, np.array(left), np.array(right))


def _closure(route: Route, works: Roadworks, bays: tuple[Span, ...]) -> Iterator[Prop]:
    """Cones along the closed part, a barrier across either end of it, a sign ahead of it."""
    edge = -route.lane_width_m / 2
    count = max(2, round((works.end_s - works.start_s) / CONE_EVERY_M) + 1)
    for s in np.linspace(works.start_s, works.end_s, count).tolist():
        # Cones stand inside what is closed.
        x, y, heading = route.pose(s, edge + works.width_m(s) - 0.2)
        yield Prop(PropKind.CONE, (x, y), heading, (0.4, 0.4, 0.75), ORANGE)
    for s in (works.start_s + TAPER_M, works.end_s - TAPER_M):
        width = works.width_m(s) - 0.5
        if width > 0.6:
            x, y, heading = route.pose(s, edge + width / 2)
            # A barrier is long across the lane.
            across = heading + math.pi / 2
            yield Prop(PropKind.BARRIER, (x, y), across, (width, 0.3, 1.0), ORANGE)
    # The sign stands off the asphalt: not in a junction, not in a parking bay.
    ends = [j.end_s + 1.0 for j in route.junctions if j.end_s < works.start_s]
    sign_s = max([works.start_s - SIGN_BEFORE_M, *ends])
    bay = ground.BAY_M * any(low <= sign_s <= high for low, high in bays)
    x, y, heading = route.pose(sign_s, edge - ground.SHOULDER_M - bay - 0.8)
    # It faces whoever comes.
    yield Prop(PropKind.SIGN, (x, y), heading + math.pi, (0.1, 0.9, 2.4), ORANGE)


def _weather(rng: np.random.Generator) -> Weather:
    """Mostly a bright, clear day."""
    bright, clear, dry = (bool(rng.uniform() < p) for p in (0.8, 0.7, 0.75))
    daylight = rng.uniform(0.7, 1.0) if bright else rng.uniform(0.1, 0.6)
    fog = rng.uniform(0.0, 0.002) if clear else rng.uniform(0.003, 0.015)
    rain = 0.0 if dry else rng.uniform(0.2, 1.0)
    ground_colour = FIELDS[rng.integers(len(FIELDS))]
    return Weather(
        daylight=float(daylight),
        sun_azimuth_rad=float(rng.uniform(-math.pi, math.pi)),
        fog_per_m=float(fog),
        rain=float(rain),
        ground=ground_colour,
        noise_seed=int(rng.integers(2**31)),
    )
