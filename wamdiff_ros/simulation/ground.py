"""Everything flat of a world: asphalt, sidewalks and what is painted on them."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ..types import Command
from .route import ARM_LENGTH_M, LEAD_IN_M, RUN_OUT_M, Junction, Route
from .scene import Strip, Surface

SHOULDER_M = 0.5  # asphalt beyond the lane
SIDEWALK_M = 2.2
BAY_M = 2.3  # width of the parking bay, beyond the shoulder
CROSSWALK_M = 2.6  # length of its bars, along the road
LINE_M = 0.15
DASH_M, DASH_GAP_M = 3.0, 5.0
SOLID_M = 20.0  # of centre line before a junction
STOP_LINE_M = 0.4

Span = tuple[float, float]


@dataclass(frozen=True)
class Road:
    """A stretch of road without junctions, in coordinates of its own middle.

    `pose(s, d)` returns (x, y, heading) of the point `d` left of the middle at `s`. `bays` are
    parking bays on the right side, `town` is where sidewalks are.
    """

    pose: Callable[[float, float], tuple[float, float, float]]
    start_s: float
    end_s: float
    half_width_m: float  # of the asphalt
    town: tuple[Span, ...] = ()
    bays: tuple[Span, ...] = ()
    meets_junction: tuple[bool, bool] = (False, False)  # at its start, at its end

    def middle_map_m(self, step_m: float = 2.0) -> np.ndarray:
        """Return points of the middle, [N, 2]."""
        count = max(2, round((self.end_s - self.start_s) / step_m) + 1)
        s = np.linspace(self.start_s, self.end_s, count)
        return np.array([self.pose(value, 0.0)[:2] for value in s.tolist()])

    def strip(self, surface: Surface, span: Span, right_d: float, left_d: float) -> Strip:
        """Return the ground between two offsets from the middle (positive to the left)."""
        count = max(2, math.ceil((span[1] - span[0]) / 2.0) + 1)
        s = np.linspace(*span, count).tolist()
        left, right = (
            np.array([self.pose(value, d)[:2] for value in s]) for d in (left_d, right_d)
        )
        return Strip(surface, left, right)


def half_width_m(route: Route) -> float:
    """Return half the width of the asphalt of a road."""
    return route.lane_width_m + SHOULDER_M


def parking_lateral_m(route: Route) -> float:
    """Return how far left of the route (so below 0) the middle of a parking bay lies."""
    return -(route.lane_width_m / 2 + SHOULDER_M + BAY_M / 2)


def sidewalk_lateral_m(route: Route, side: int, beside_bay: bool = False) -> float:
    """Return how far left of the route the middle of the left (1) or right (-1) sidewalk lies."""
    from_middle = half_width_m(route) + SIDEWALK_M / 2 + (BAY_M if beside_bay else 0)
    return route.lane_width_m / 2 + side * from_middle


def roads(route: Route, town: tuple[Span, ...], bays: tuple[Span, ...]) -> list[Road]:
    """Return the route's own road in the parts between junctions, then the side roads."""
    found, half = [], half_width_m(route)
    edges = [-LEAD_IN_M, *(s for j in route.junctions for s in (j.start_s, j.end_s))]
    edges.append(route.length_m + RUN_OUT_M)
    parts = list(zip(edges[::2], edges[1::2], strict=True))
    for index, (start, end) in enumerate(parts):
        meets = (index > 0, index < len(parts) - 1)
        clip = _clipper(start, end)
        found.append(
            Road(
                lambda s, d: route.pose(s, route.lane_width_m / 2 + d),
                start, end, half, clip(town), clip(bays), meets,
            )
        )  # fmt: skip
    for junction in route.junctions:
        in_town = any(low <= junction.start_s <= high for low, high in town)
        for arm in junction.side_arms():
            span = (junction.half_size_m, ARM_LENGTH_M)
            found.append(
                Road(_arm_pose(junction, arm), *span, half, (span,) * in_town, (), (True, False))
            )
    return found


def strips(
    route: Route, parts: Iterable[Road], town: tuple[Span, ...], crosswalks_s: Iterable[float]
) -> Iterator[Strip]:
    """Yield the ground of all roads, junctions and crosswalks."""
    for road in parts:
        yield from _road_strips(road, route.lane_width_m)
    for junction in route.junctions:
        in_town = any(low <= junction.start_s <= high for low, high in town)
        yield from _junction_strips(junction, half_width_m(route), in_town)
        yield from _stop_lines(junction, route)
    own = [j.crosswalk_s for j in route.junctions if j.crosswalk_s is not None]
    for s in [*own, *crosswalks_s]:
        yield from _crosswalk_strips(route, s)


def _clipper(start: float, end: float) -> Callable[[tuple[Span, ...]], tuple[Span, ...]]:
    def clip(spans: tuple[Span, ...]) -> tuple[Span, ...]:
        clipped = ((max(low, start), min(high, end)) for low, high in spans)
        return tuple((low, high) for low, high in clipped if high - low > 1.0)

    return clip


def _arm_pose(
    junction: Junction, arm: Command
) -> Callable[[float, float], tuple[float, float, float]]:
    heading = junction.arm_heading_rad(arm)
    (x, y), cos, sin = junction.centre_map_m, math.cos(heading), math.sin(heading)
    return lambda s, d: (x + s * cos - d * sin, y + s * sin + d * cos, heading)


def _road_strips(road: Road, lane_width_m: float) -> Iterator[Strip]:
    half, whole = road.half_width_m, (road.start_s, road.end_s)
    yield road.strip(Surface.ASPHALT, whole, -half, half)
    for side in (-1, 1):
        edge = side * (lane_width_m + LINE_M / 2)
        yield road.strip(Surface.EDGE_LINE, whole, edge - LINE_M / 2, edge + LINE_M / 2)
    for span in _centre_line(road):
        yield road.strip(Surface.CENTRE_LINE, span, -LINE_M / 2, LINE_M / 2)
    for bay in road.bays:
        yield road.strip(Surface.ASPHALT, bay, -half - BAY_M, -half)
    for low, high in road.town:
        yield road.strip(Surface.SIDEWALK, (low, high), half, half + SIDEWALK_M)
        # On the right, the sidewalk steps back where cars park.
        edges = sorted({low, high, *(s for bay in road.bays for s in bay if low < s < high)})
        for span in pairwise(edges):
            middle = sum(span) / 2
            back = BAY_M * any(a <= middle <= b for a, b in road.bays)
            yield road.strip(Surface.SIDEWALK, span, -half - back - SIDEWALK_M, -half - back)


def _centre_line(road: Road) -> Iterator[Span]:
    start, end = road.start_s, road.end_s
    for s, direction, meets in (
        (start, 1, road.meets_junction[0]),
        (end, -1, road.meets_junction[1]),
    ):
        if meets:
            length = min(SOLID_M, (road.end_s - road.start_s) / 2)
            inner = s + direction * length
            yield (s, inner) if direction > 0 else (inner, s)
            start, end = (inner, end) if direction > 0 else (start, inner)
    s = start + DASH_GAP_M
    while s + DASH_M < end:
        yield (s, s + DASH_M)
        s += DASH_M + DASH_GAP_M


def _junction_strips(junction: Junction, half: float, in_town: bool) -> Iterator[Strip]:
    """The box is as wide as its arms, with round corners between neighbouring ones."""
    size = junction.half_size_m
    radius = size - half
    end = size if Command.STRAIGHT in junction.arms else half
    corner = size - radius * np.cos(np.linspace(0, math.pi / 2, 8))  # from half to size
    forward = np.concatenate([-corner[::-1], corner])
    forward = forward[forward <= end + 1e-9]
    # Height of the rounded edge over the axis of the road.
    past = np.clip((np.abs(forward) - half) / radius, 0, 1)
    rounded = size - radius * np.sqrt(np.clip(1 - (1 - past) ** 2, 0, 1))
    edges = {
        side: side * (rounded if arm in junction.arms else np.full(len(forward), half))
        for arm, side in ((Command.LEFT, 1), (Command.RIGHT, -1))
    }
    left, right = (_to_map(junction, forward, edges[side]) for side in (1, -1))
    yield Strip(Surface.ASPHALT, left, right)
    if not in_town:
        return
    for arm, side in ((Command.LEFT, 1), (Command.RIGHT, -1)):
        for x in (-size, size):
            neighbour = x < 0 or Command.STRAIGHT in junction.arms
            if arm in junction.arms and neighbour:
                yield _corner_sidewalk(junction, x, side * size, radius)
        if arm not in junction.arms:
            along = np.array([-size, end])
            inner, outer = (np.full(2, side * (half + back)) for back in (0, SIDEWALK_M))
            yield _between(junction, (along, inner), (along, outer))
    if Command.STRAIGHT not in junction.arms:
        across = np.array([-size, size])
        inner, outer = (np.full(2, half + back) for back in (0, SIDEWALK_M))
        yield _between(junction, (inner, across), (outer, across))


def _corner_sidewalk(junction: Junction, x: float, y: float, radius: float) -> Strip:
    angle = np.linspace(0, math.pi / 2, 8)
    cos, sin = -math.copysign(1, x) * np.cos(angle), -math.copysign(1, y) * np.sin(angle)
    outer, inner = radius, max(radius - SIDEWALK_M, 0.1)
    return _between(
        junction,
        (x + outer * cos, y + outer * sin),
        (x + inner * cos, y + inner * sin),
    )


def _between(junction: Junction, first: tuple, second: tuple) -> Strip:
    return Strip(Surface.SIDEWALK, _to_map(junction, *first), _to_map(junction, *second))


def _to_map(junction: Junction, forward: np.ndarray, left: np.ndarray) -> np.ndarray:
    cos, sin = math.cos(junction.heading_rad), math.sin(junction.heading_rad)
    offset = np.column_stack([forward * cos - left * sin, forward * sin + left * cos])
    return np.array(junction.centre_map_m) + offset


def _stop_lines(junction: Junction, route: Route) -> Iterator[Strip]:
    """Where one waits: on every arm at a traffic light, else on those that give way."""
    lane = route.lane_width_m
    if junction.signal is not None:
        near, far = junction.stop_s, junction.stop_s + STOP_LINE_M
        corners = [[route.pose(s, d)[:2] for s in (near, far)] for d in (lane / 2, -lane / 2)]
        yield Strip(Surface.STOP_LINE, *np.array(corners))
    for arm in junction.arms:
        if junction.signal is None and arm is junction.command:
            continue
        pose, at = _arm_pose(junction, arm), junction.half_size_m + 1.5
        corners = [[pose(s, d)[:2] for s in (at, at + STOP_LINE_M)] for d in (lane, 0.0)]
        yield Strip(Surface.STOP_LINE, *np.array(corners))


def _crosswalk_strips(route: Route, middle_s: float) -> Iterator[Strip]:
    width, period = 0.5, 1.0
    lane = route.lane_width_m
    count = int((2 * lane - width) / period) + 1
    first = lane / 2 - (count - 1) * period / 2
    s = [middle_s - CROSSWALK_M / 2, middle_s + CROSSWALK_M / 2]
    for index in range(count):
        middle = first + index * period
        edges = [[route.pose(v, middle + d)[:2] for v in s] for d in (width / 2, -width / 2)]
        yield Strip(Surface.CROSSWALK, *np.array(edges))
