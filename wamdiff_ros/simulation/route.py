"""The way that the ego vehicle follows through its world: a lane of a road, and its junctions.

The road has one lane per direction and right-hand traffic, so its centre lies half a lane to the
left of the route. Nothing in here knows who else is on the road, or what it looks like.
"""

import math
from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

import numpy as np

from ..types import Command

STEP_M = 0.5  # between samples
ANNOUNCE_M = 40.0  # a junction's command holds from here before its box
LEAD_IN_M = 80.0  # road before the start; it goes on straight
RUN_OUT_M = 110.0  # road after the end
ARM_LENGTH_M = 70.0  # of a side road, from the centre of its junction
CLEARANCE_M = 24.0  # between the centres of different parts of the road
LENGTH_M = (200.0, 320.0)

TURN_RAD = {Command.LEFT: math.pi / 2, Command.STRAIGHT: 0.0, Command.RIGHT: -math.pi / 2}


@dataclass(frozen=True)
class Piece:
    """A straight, an arc or a junction, by where it lies on the route."""

    kind: str  # 'straight', 'arc' or 'junction'
    start_s: float
    end_s: float
    curvature_1pm: float  # the largest one, positive to the left


@dataclass(frozen=True)
class Junction:
    """A square box where roads meet at right angles, and how the route crosses it.

    `arms` are the roads that leave it, named by the command that takes one there; the road on
    which the route enters exists always. `signal` is the index of its traffic light; without one
    the ego vehicle has the right of way.
    """

    start_s: float  # edges of the box on the route
    end_s: float
    stop_s: float
    command: Command
    signal: int | None
    crosswalk_s: float | None  # middle of the crosswalk between stop line and box
    arms: tuple[Command, ...]
    centre_map_m: tuple[float, float]
    heading_rad: float  # of the route where it enters
    half_size_m: float

    def arm_heading_rad(self, arm: Command) -> float:
        """Return the heading of traffic that leaves the junction by an arm."""
        return self.heading_rad + TURN_RAD[arm]

    def side_arms(self) -> tuple[Command, ...]:
        """Return the arms that the route does not take."""
        return tuple(arm for arm in self.arms if arm is not self.command)


@dataclass(frozen=True)
class LaneState:
    """A pose relative to the route: positive to the left, as headings are."""

    s_m: float
    lateral_m: float
    heading_error_rad: float  # -pi … pi


@dataclass(frozen=True, eq=False)
class Route:
    """The centre line of the ego vehicle's lane, one sample every `STEP_M`, all float64.

    Headings are continuous along the route, so they may leave -pi … pi.
    """

    xy_map_m: np.ndarray  # [N, 2]
    heading_rad: np.ndarray  # [N]
    curvature_1pm: np.ndarray  # [N], positive to the left
    lane_width_m: float
    speed_limit_mps: float
    junctions: tuple[Junction, ...]
    pieces: tuple[Piece, ...]
    # Plain floats: many times faster than arrays, one at a time.
    _rows: list[tuple[float, float, float, float]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        table = np.column_stack([self.xy_map_m, self.heading_rad, self.curvature_1pm])
        object.__setattr__(self, '_rows', [tuple(row) for row in table.tolist()])

    @property
    def s_m(self) -> np.ndarray:
        """Distance of every sample from the start [N]."""
        return np.arange(len(self.xy_map_m)) * STEP_M

    @property
    def length_m(self) -> float:
        """Distance from the first to the last sample."""
        return (len(self.xy_map_m) - 1) * STEP_M

    def at(self, s_m: float) -> tuple[float, float, float, float]:
        """Return (x, y, heading, curvature); the route goes on straight beyond its ends."""
        if s_m <= 0 or s_m >= self.length_m:
            x, y, heading, _ = self._rows[0 if s_m <= 0 else -1]
            beyond = s_m if s_m <= 0 else s_m - self.length_m
            return x + beyond * math.cos(heading), y + beyond * math.sin(heading), heading, 0.0
        index = int(s_m / STEP_M)
        part = s_m / STEP_M - index
        x0, y0, h0, c0 = self._rows[index]
        x1, y1, h1, c1 = self._rows[min(index + 1, len(self._rows) - 1)]
        return (
            x0 + (x1 - x0) * part, y0 + (y1 - y0) * part,
            h0 + (h1 - h0) * part, c0 + (c1 - c0) * part,
        )  # fmt: skip

    def pose(self, s_m: float, lateral_m: float = 0.0) -> tuple[float, float, float]:
        """Return (x, y, heading) of the point `lateral_m` left of the route."""
        x, y, heading, _ = self.at(s_m)
        return x - lateral_m * math.sin(heading), y + lateral_m * math.cos(heading), heading

    def project(self, x_m: float, y_m: float, near_s: float | None = None) -> tuple[float, float]:
        """Return (s, lateral) of a point; `near_s` is roughly where, else all is searched."""
        s_m = self._nearest(x_m, y_m, near_s) * STEP_M
        # Newton's iteration: moving along by ds turns the normal, so the foot comes closer by
        # (1 - curvature * across) ds.
        for _ in range(2):
            along, across, curvature = self._relative(x_m, y_m, s_m)
            s_m += along / max(1 - curvature * across, 0.3)
        return s_m, self._relative(x_m, y_m, s_m)[1]

    def lane_state(
        self, x_m: float, y_m: float, heading_rad: float, near_s: float | None = None
    ) -> LaneState:
        """Return where a pose lies relative to the route."""
        s_m, lateral_m = self.project(x_m, y_m, near_s)
        error = heading_rad - self.at(s_m)[2]
        return LaneState(s_m, lateral_m, math.atan2(math.sin(error), math.cos(error)))

    def command_at(self, s_m: float) -> Command:
        """Return what to do next: a junction's command near and in it, else straight on."""
        for junction in self.junctions:
            if s_m <= junction.end_s:
                ahead = s_m >= junction.start_s - ANNOUNCE_M
                return junction.command if ahead else Command.STRAIGHT
        return Command.STRAIGHT

    def piece_at(self, s_m: float) -> Piece:
        """Return the piece that `s_m` lies on; the first or last one beyond the ends."""
        index = bisect_right([piece.start_s for piece in self.pieces], s_m) - 1
        return self.pieces[max(index, 0)]

    def arm_pose(
        self, junction: Junction, arm: Command, distance_m: float, incoming: bool
    ) -> tuple[float, float, float]:
        """Return (x, y, heading) in the middle of an arm's lane, `distance_m` from the centre.

        A negative distance lies across the junction: a vehicle that comes in by an arm and drives
        straight on has falling distances.
        """
        outwards = junction.arm_heading_rad(arm)
        cos, sin = math.cos(outwards), math.sin(outwards)
        # Right-hand traffic: who leaves keeps right of the arm's middle, who comes in left of it.
        left = self.lane_width_m / 2 * (1 if incoming else -1)
        x, y = junction.centre_map_m
        return (
            x + distance_m * cos - left * sin,
            y + distance_m * sin + left * cos,
            outwards + (math.pi if incoming else 0.0),
        )

    def _relative(self, x_m: float, y_m: float, s_m: float) -> tuple[float, float, float]:
        x, y, heading, curvature = self.at(s_m)
        cos, sin, dx, dy = math.cos(heading), math.sin(heading), x_m - x, y_m - y
        return dx * cos + dy * sin, dy * cos - dx * sin, curvature

    def _nearest(self, x_m: float, y_m: float, near_s: float | None) -> int:
        if near_s is None:
            return int(np.argmin(np.hypot(*(self.xy_map_m - (x_m, y_m)).T)))
        rows, last = self._rows, len(self._rows) - 1
        best = min(max(round(near_s / STEP_M), 0), last)
        distance = (rows[best][0] - x_m) ** 2 + (rows[best][1] - y_m) ** 2
        # Walk downhill, first one way, then the other.
        for step in (1, -1):
            while 0 <= best + step <= last:
                x, y, _, _ = rows[best + step]
                nearer = (x - x_m) ** 2 + (y - y_m) ** 2
                if nearer >= distance:
                    break
                best, distance = best + step, nearer
        return best


def make_route(rng: np.random.Generator) -> Route:
    """Return a random route that keeps clear of itself; one state of `rng`, one route."""
    lane_width_m = float(rng.uniform(3.2, 3.8))
    speed_limit_mps = float(rng.uniform(8.0, 13.0))
    heading_rad = float(rng.uniform(-math.pi, math.pi))
    junctions = int(rng.choice([1, 2, 3], p=[0.3, 0.45, 0.25]))
    while True:
        plan = _draw_pieces(rng, junctions, lane_width_m)
        length_m = sum(drawn.length_m for drawn in plan)
        if LENGTH_M[0] <= length_m <= LENGTH_M[1]:
            route = _lay(plan, heading_rad, lane_width_m, speed_limit_mps)
            if _keeps_clear(route):
                return route


@dataclass(frozen=True)
class _Drawn:
    """A piece before it has a place. Curvature is a trapezium: up in a ramp, down in another."""

    kind: str
    length_m: float
    ramp_m: float = 0.0
    curvature_1pm: float = 0.0
    crossing: '_Crossing | None' = None  # of a junction


@dataclass(frozen=True)
class _Crossing:
    """What a junction is before it has a place."""

    command: Command
    arms: tuple[Command, ...]
    half_size_m: float
    has_signal: bool
    has_crosswalk: bool
    stop_gap_m: float  # from stop line to box


def _draw_pieces(rng: np.random.Generator, junctions: int, lane_width_m: float) -> list[_Drawn]:
    # Straights surround junctions, so that whoever stops can be seen and can see.
    plan = [_straight(rng, 30, 80)]
    for _ in range(junctions):
        plan += _filler(rng)
        plan += [_junction(rng, lane_width_m), _straight(rng, 25, 60)]
    plan += _filler(rng)
    # Samples end where the route ends.
    length_m = sum(drawn.length_m for drawn in plan)
    plan.append(_Drawn('straight', 10.0 + -length_m % STEP_M))
    return plan


def _filler(rng: np.random.Generator) -> list[_Drawn]:
    if rng.uniform() < 0.3:
        return []
    return [_arc(rng), _straight(rng, 25, 60)]


def _straight(rng: np.random.Generator, low_m: float, high_m: float) -> _Drawn:
    return _Drawn('straight', float(rng.uniform(low_m, high_m)))


def _arc(rng: np.random.Generator) -> _Drawn:
    radius_m = 25.0 * 6.0 ** float(rng.uniform())
    ramp_m = float(rng.uniform(5.0, 8.0))
    side = float(rng.choice([-1.0, 1.0]))
    # 20 … 70 m of road, and at most 100 degrees.
    length_m = float(rng.uniform(20.0, min(70.0, radius_m * math.radians(100))))
    return _Drawn('arc', length_m + ramp_m, ramp_m, side / radius_m)


def _junction(rng: np.random.Generator, lane_width_m: float) -> _Drawn:
    half_size_m = float(rng.uniform(8.5, 10.0))
    command = list(Command)[rng.integers(3)]
    others = [arm for arm in Command if arm is not command]
    if rng.uniform() < 0.4:  # a T
        others = [others[rng.integers(2)]]
    has_crosswalk = bool(rng.uniform() < 0.4)
    crossing = _Crossing(
        command,
        tuple(arm for arm in Command if arm is command or arm in others),
        half_size_m,
        has_signal=bool(rng.uniform() < 0.7),
        has_crosswalk=has_crosswalk,
        stop_gap_m=3.6 if has_crosswalk else float(rng.uniform(1.5, 2.5)),
    )
    if command is Command.STRAIGHT:
        return _Drawn('junction', 2 * half_size_m, crossing=crossing)
    # The ego lane enters and leaves half a lane from the middle: that fixes the turn's size.
    side = 1 if command is Command.LEFT else -1
    reach_m = half_size_m + side * lane_width_m / 2
    length_m = reach_m / _turn_reach()
    ramp_m = RAMP_SHARE * length_m
    curvature_1pm = side * math.pi / 2 / (length_m - ramp_m)
    return _Drawn('junction', length_m, ramp_m, curvature_1pm, crossing)


RAMP_SHARE = 0.25  # of a turn's length, at either end


def _turn_reach() -> float:
    """Return how far ahead, and as far aside, a quarter turn of length 1 leads."""
    s = np.linspace(0, 1, 2001)
    knots = [0, RAMP_SHARE, 1 - RAMP_SHARE, 1]
    curvature = np.interp(s, knots, [0, 1, 1, 0]) * math.pi / 2 / (1 - RAMP_SHARE)
    heading = np.concatenate([[0], np.cumsum((curvature[1:] + curvature[:-1]) / 2)]) / 2000
    return float(np.mean(np.cos((heading[1:] + heading[:-1]) / 2)))


def _lay(
    plan: list[_Drawn], heading_rad: float, lane_width_m: float, speed_limit_mps: float
) -> Route:
    """Put drawn pieces one after the other, from the origin of the map."""
    starts = [0.0, *accumulate(drawn.length_m for drawn in plan)]
    pieces = tuple(
        Piece(drawn.kind, start, end, drawn.curvature_1pm)
        for drawn, (start, end) in zip(plan, pairwise(starts), strict=True)
    )
    count = round(starts[-1] / STEP_M) + 1
    # Simpson's rule needs the headings in the middle of every step, too.
    fine = np.arange(2 * count - 1) * (STEP_M / 2)
    curvature, heading = _curvature_and_heading(plan, starts, fine)
    heading += heading_rad
    xy = np.zeros((count, 2))
    for axis, function in enumerate((np.cos, np.sin)):
        value = function(heading)
        steps = (value[:-2:2] + 4 * value[1::2] + value[2::2]) * (STEP_M / 6)
        xy[1:, axis] = np.cumsum(steps)
    route = Route(
        xy, heading[::2].copy(), curvature[::2].copy(), lane_width_m, speed_limit_mps, (), pieces
    )
    return Route(
        route.xy_map_m, route.heading_rad, route.curvature_1pm,
        lane_width_m, speed_limit_mps, tuple(_junctions(plan, route)), pieces,
    )  # fmt: skip


def _curvature_and_heading(
    plan: list[_Drawn], starts: list[float], s_m: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return both at `s_m`; curvature is linear between knots, so the heading is exact."""
    corners: list[tuple[float, float]] = []
    for drawn, start in zip(plan, starts, strict=False):
        end = start + drawn.length_m
        top, ramp = drawn.curvature_1pm, drawn.ramp_m
        corners += [(start, 0.0), (start + ramp, top), (end - ramp, top), (end, 0.0)]
    knots, values = np.array(corners).T
    turns = np.concatenate([[0.0], np.cumsum((values[1:] + values[:-1]) / 2 * np.diff(knots))])
    curvature = np.interp(s_m, knots, values)
    index = np.clip(np.searchsorted(knots, s_m, 'right') - 1, 0, len(knots) - 1)
    heading = turns[index] + (values[index] + curvature) / 2 * (s_m - knots[index])
    return curvature, heading


def _junctions(plan: list[_Drawn], route: Route) -> list[Junction]:
    junctions, signals = [], 0
    for drawn, piece in zip(plan, route.pieces, strict=True):
        crossing = drawn.crossing
        if crossing is None:
            continue
        x, y, heading = route.pose(piece.start_s, route.lane_width_m / 2)
        size = crossing.half_size_m
        junctions.append(
            Junction(
                start_s=piece.start_s,
                end_s=piece.end_s,
                stop_s=piece.start_s - crossing.stop_gap_m,
                command=crossing.command,
                signal=signals if crossing.has_signal else None,
                crosswalk_s=piece.start_s - 1.7 if crossing.has_crosswalk else None,
                arms=crossing.arms,
                centre_map_m=(x + size * math.cos(heading), y + size * math.sin(heading)),
                heading_rad=heading,
                half_size_m=size,
            )
        )
        signals += crossing.has_signal
    return junctions


def _keeps_clear(route: Route) -> bool:
    """Whether parts of the road that are far from each other by road are so on the map, too."""
    # x, y, then where on the route it branches off, how far down the arm, and which branch.
    points = [
        (*route.pose(s)[:2], s, 0.0, 0)
        for s in np.arange(-LEAD_IN_M, route.length_m + RUN_OUT_M, 4.0).tolist()
    ]
    branch = 0
    for junction in route.junctions:
        middle_s = (junction.start_s + junction.end_s) / 2
        for arm in junction.side_arms():
            branch += 1
            cos, sin = (f(junction.arm_heading_rad(arm)) for f in (math.cos, math.sin))
            x, y = junction.centre_map_m
            points += [
                (x + a * cos, y + a * sin, middle_s, a, branch)
                for a in np.arange(4.0, ARM_LENGTH_M + 1, 4.0).tolist()
            ]
    x, y, s, down, branch_of = np.array(points).T
    apart = np.hypot(x[:, None] - x, y[:, None] - y)
    by_road = abs(s[:, None] - s) + down[:, None] + down
    same_arm = (branch_of[:, None] == branch_of) & (branch_of > 0)
    return not np.any((apart < CLEARANCE_M) & (by_road > 2.2 * CLEARANCE_M) & ~same_arm)
