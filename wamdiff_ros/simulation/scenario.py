"""What happens on a route: everything that a seed draws, before anything moves.

Events are gentle and keep apart: a comfortable stop is always possible from where they can be
seen.
"""

import math
from dataclasses import dataclass, field, replace

import numpy as np

from ..types import Command
from .ground import SHOULDER_M, parking_lateral_m
from .guide import Guide, Obstacle
from .pacing import distance_for, speed_for
from .route import RUN_OUT_M, Route
from .scene import VESTS, Body, BodyKind, Colour, Light
from .scenery import Features, Roadworks
from .traffic import SIZES_M, Bystander, Crossing, CrossTraffic, Lead, Oncoming, SignalState
from .vehicle import VEHICLE

START_S = 6.0  # of the ego vehicle's rear axle
PAINTS: tuple[Colour, ...] = (
    (178, 34, 34), (30, 70, 140), (225, 225, 220), (40, 42, 46), (150, 152, 155),
    (190, 160, 60), (50, 100, 60), (120, 60, 110),
)  # fmt: skip
CLOTHES: tuple[Colour, ...] = (
    (200, 40, 50), (40, 80, 180), (230, 190, 40), (40, 130, 70), (90, 50, 120), (230, 120, 40),
)  # fmt: skip
Spans = list[tuple[float, float]]  # of s
PARKED_LENGTH_M = 6.6  # of bay per car
ROADWORKS_MPS = 5.5
PASSING_MPS = 8.0  # past a parked car that intrudes
SPACE_M = 16.0  # between events on the lane


@dataclass
class Scenario:
    """Everything that a seed draws. The lists hold what moves, in its first state."""

    features: Features = field(default_factory=Features)
    obstacles: tuple[Obstacle, ...] = ()
    parked: tuple[Body, ...] = ()
    signals: list[SignalState] = field(default_factory=list)
    lead: Lead | None = None
    oncoming: list[Oncoming] = field(default_factory=list)
    crossings: list[Crossing] = field(default_factory=list)
    bystanders: list[Bystander] = field(default_factory=list)
    cross_traffic: list[CrossTraffic] = field(default_factory=list)
    start_speed_mps: float = 0.0


def empty_scenario(route: Route) -> Scenario:
    """Return nothing but road and green lights."""
    stops = [junction.stop_s for junction in route.junctions if junction.signal is not None]
    signals = [SignalState(s, 'green', 0.0, 0.0, Light.GREEN) for s in stops]
    return Scenario(signals=signals, start_speed_mps=Guide(route).limit_at(START_S))


def draw_scenario(route: Route, rng: np.random.Generator) -> Scenario:
    """Return a random scenario; one state of `rng`, one scenario."""
    scenario = empty_scenario(route)
    scenario.start_speed_mps = 0.0
    _draw_signals(scenario, route, rng)
    lead = rng.uniform() < 0.4
    first_s = 95.0 if lead else 58.0
    taken: Spans = []
    count = 0
    if rng.uniform() < 0.35:
        count += _draw_roadworks(scenario, route, rng, taken)
    for chance in (0.75, 0.35):
        if rng.uniform() < chance:
            count += _draw_crossing(scenario, route, rng, taken, first_s)
    intrusions = [0.45, 0.2] if count < 3 else [0.0, 0.0]
    for chance in intrusions:
        _draw_bay(scenario, route, rng, taken, intrudes=bool(rng.uniform() < chance))
    guide = Guide(route, scenario.obstacles)
    if rng.uniform() < 0.7:
        scenario.start_speed_mps = _safe_start_mps(route, guide)
    if lead:
        _draw_lead(scenario, route, guide, rng)
    _draw_oncoming(scenario, route, rng)
    _draw_bystanders(scenario, route, rng)
    return scenario


def _draw_signals(scenario: Scenario, route: Route, rng: np.random.Generator) -> None:
    for junction in route.junctions:
        if junction.signal is None:
            continue
        signal = scenario.signals[junction.signal]
        signal.programme = ('green', 'turns red', 'red first')[rng.choice(3, p=[0.3, 0.4, 0.3])]
        if signal.programme == 'turns red':
            signal.trigger_m, signal.red_s = float(rng.uniform(28, 42)), float(rng.uniform(5, 10))
        elif signal.programme == 'red first':
            signal.trigger_m, signal.red_s = float(rng.uniform(42, 58)), float(rng.uniform(5, 11))
            signal.light = Light.RED
        sides = {Command.LEFT, Command.RIGHT} <= set(junction.arms)
        if junction.command is not Command.STRAIGHT or not sides or signal.programme == 'green':
            continue
        speed = float(rng.uniform(7, 10))
        clear_s = signal.red_end_s - 1.0
        enter_s = clear_s - (2 * junction.half_size_m + 9.0) / speed
        if enter_s > signal.red_end_s - signal.red_s + 0.5 and rng.uniform() < 0.8:
            arm = Command.LEFT if rng.uniform() < 0.5 else Command.RIGHT
            scenario.cross_traffic.append(
                CrossTraffic(_one(rng, PAINTS), junction, signal, arm, speed, 62.0, clear_s)
            )


def _draw_roadworks(
    scenario: Scenario, route: Route, rng: np.random.Generator, taken: Spans
) -> bool:
    length = float(rng.uniform(14, 22))
    start = _place(route, rng, taken, 45.0, length, before=24.0, after=20.0, tightest_m=40.0)
    if start is None:
        return False
    intrusion = min(float(rng.uniform(0.6, 0.9)), route.lane_width_m - 2.4)
    works = Roadworks(start, start + length, intrusion)
    scenario.features = replace(scenario.features, roadworks=(works,))
    inner = -route.lane_width_m / 2 + intrusion
    scenario.obstacles += (Obstacle(start, start + length, inner, ROADWORKS_MPS, False),)
    return True


def _draw_crossing(
    scenario: Scenario, route: Route, rng: np.random.Generator, taken: Spans, first_s: float
) -> bool:
    place = _place(route, rng, taken, first_s, 1.0, before=10.0, after=20.0, straight_m=18.0)
    if place is None:
        return False
    half = route.lane_width_m / 2
    cyclist = rng.uniform() < 0.4
    crossing = Crossing(
        kind=BodyKind.CYCLIST if cyclist else BodyKind.PEDESTRIAN,
        # Who crosses can be seen from where a vehicle still stops: 256 pixels show little else.
        colour=_one(rng, VESTS),
        s_m=place + 0.5,
        lateral_m=-half - SHOULDER_M - 0.5 - 0.5 * cyclist,
        clear_lateral_m=half + 0.6 + 0.3 * cyclist,
        end_lateral_m=3 * half + SHOULDER_M + 1.6,
        speed_mps=float(rng.uniform(2.4, 3.2) if cyclist else rng.uniform(1.2, 1.6)),
        trigger_m=float(rng.uniform(26, 36)),
        delay_s=float(rng.uniform(0.0, 3.5) + 1.0 * cyclist),
    )
    scenario.crossings.append(crossing)
    if rng.uniform() < 0.5:
        crosswalks_s = (*scenario.features.crosswalks_s, crossing.s_m)
        scenario.features = replace(scenario.features, crosswalks_s=crosswalks_s)
    return True


def _draw_bay(
    scenario: Scenario, route: Route, rng: np.random.Generator, taken: Spans, intrudes: bool
) -> None:
    cars = int(rng.integers(2, 6))
    length = cars * PARKED_LENGTH_M
    start = _place(route, rng, taken, 12.0, length, before=18.0, after=16.0, tightest_m=40.0)
    if start is None:
        return
    parking = (*scenario.features.parking, (start, start + length))
    scenario.features = replace(scenario.features, parking=parking)
    odd = int(rng.integers(cars)) if intrudes else -1
    for index in range(cars):
        if index != odd and rng.uniform() < 0.25:
            continue
        s = start + (index + 0.5) * PARKED_LENGTH_M + float(rng.uniform(-0.3, 0.3))
        size = SIZES_M[BodyKind.CAR]
        lateral = parking_lateral_m(route) + float(rng.uniform(-0.1, 0.1))
        if index == odd:
            inner = -route.lane_width_m / 2 + float(rng.uniform(0.3, 0.7))
            lateral = inner - size[1] / 2
            scenario.obstacles += (
                Obstacle(s - size[0] / 2, s + size[0] / 2, inner, PASSING_MPS, True),
            )
        x, y, heading = route.pose(s, lateral)
        scenario.parked += (Body(BodyKind.CAR, (x, y), heading, size, _one(rng, PAINTS)),)


def _safe_start_mps(route: Route, guide: Guide) -> float:
    """Return the speed to begin with: there may be a red light ahead."""
    front_s = START_S + VEHICLE.front_m
    lines = [j.stop_s - front_s - 5.0 for j in route.junctions if j.signal is not None]
    return min([guide.limit_at(START_S), *(speed_for(line) for line in lines)])


def _draw_lead(scenario: Scenario, route: Route, guide: Guide, rng: np.random.Generator) -> None:
    truck = rng.uniform() < 0.2
    kind = BodyKind.TRUCK if truck else BodyKind.CAR
    cruise = route.speed_limit_mps * float(rng.uniform(0.7, 0.95))
    half = SIZES_M[kind][0] / 2
    start = scenario.start_speed_mps
    gap = float(rng.uniform(4, 14) + distance_for(start) * rng.uniform(1.0, 1.3))
    s = START_S + VEHICLE.front_m + gap + half
    speed = min(cruise, guide.limit_at(s), 2.0 * start)
    stops = []
    for chance in (0.7, 0.3):
        stop_s = float(rng.uniform(70, route.length_m - 40))
        hold_s = float(rng.uniform(3.0, 7.0))
        if (
            rng.uniform() < chance
            and stop_s > s + 35
            and _may_stand(scenario, route, stop_s, half)
        ):
            stops.append((stop_s, hold_s))
    stops.sort()
    if len(stops) == 2 and stops[1][0] - stops[0][0] < 50:
        stops.pop()
    scenario.lead = Lead(kind, _one(rng, PAINTS), s, speed, cruise, tuple(stops))
    if speed == 0.0:
        scenario.lead.acceleration_mps2 = 1.0  # it drives off, too


def _may_stand(scenario: Scenario, route: Route, front_s: float, half_m: float) -> bool:
    rear_s = front_s - 2 * half_m
    junctions = any(j.stop_s - 20 < front_s and rear_s < j.end_s + 12 for j in route.junctions)
    crossings = any(c.s_m - 12 < front_s and rear_s < c.s_m + 12 for c in scenario.crossings)
    return not (junctions or crossings)


def _draw_oncoming(scenario: Scenario, route: Route, rng: np.random.Generator) -> None:
    lateral = route.lane_width_m + 0.15
    s = 50.0 + float(rng.uniform(0, 80))
    delay = 0.0
    for _ in range(int(rng.integers(0, 5))):
        cruise = route.speed_limit_mps * float(rng.uniform(0.7, 0.95))
        end_s = route.length_m + RUN_OUT_M - 8.0
        if s > end_s:
            s, delay = end_s, delay + float(rng.uniform(4, 9))
        scenario.oncoming.append(
            Oncoming(_one(rng, PAINTS), s, lateral, delay, cruise, min(cruise, 6.0))
        )
        s += float(rng.uniform(30, 120))
    # None starts in a junction, where it would have to turn at once.
    for vehicle in scenario.oncoming:
        for junction in route.junctions:
            if junction.start_s - 6 < vehicle.s_m < junction.end_s + 22:
                vehicle.s_m = junction.end_s + 26.0
    for ahead, behind in zip(scenario.oncoming, scenario.oncoming[1:], strict=False):
        behind.s_m = max(behind.s_m, ahead.s_m + 14.0)


def _draw_bystanders(scenario: Scenario, route: Route, rng: np.random.Generator) -> None:
    for _ in range(int(rng.integers(0, 7))):
        s = float(rng.uniform(20, route.length_m))
        side = 1 if rng.uniform() < 0.5 else -1
        back = SHOULDER_M + float(rng.uniform(2.0, 2.8))
        stays = rng.uniform() < 0.4
        speed = 0.0 if stays else float(rng.uniform(1.0, 1.5)) * (1 if rng.uniform() < 0.5 else -1)
        facing = float(rng.choice([0.0, math.pi, -side * math.pi / 2 * -1.0]))
        colour = _one(rng, CLOTHES)
        # Where cars park the sidewalk steps back; nobody walks across a junction.
        low, high = (s - 3, s + 3) if stays else (s - 60, s + 60)
        if any(low < b and a < high for a, b in scenario.features.parking) and side < 0:
            continue
        if any(low < j.end_s + 4 and j.start_s - 4 < high for j in route.junctions):
            if not stays:
                speed = 0.0
            if any(s - 3 < j.end_s + 4 and j.start_s - 4 < s + 3 for j in route.junctions):
                continue
        if any(abs(s - c.s_m) < 6 for c in scenario.crossings):
            continue
        lateral = side * (route.lane_width_m / 2 + back) + (side > 0) * route.lane_width_m
        scenario.bystanders.append(Bystander(colour, s, lateral, speed, facing))


def _place(
    route: Route,
    rng: np.random.Generator,
    taken: Spans,
    first_s: float,
    length_m: float,
    before: float,
    after: float,
    tightest_m: float = math.inf,
    straight_m: float = 0.0,
) -> float | None:
    """Return a random free start of an event, or None; the place is taken then.

    It keeps `before` from the next junction's line and `after` from the last one's box, and
    lies on curves of at least `tightest_m` radius, as does the way of `straight_m` before it.
    """
    options = []
    for start in np.arange(first_s, route.length_m - 22.0 - length_m, 1.0).tolist():
        end = start + length_m
        if any(start - SPACE_M < high and low < end + SPACE_M for low, high in taken):
            continue
        if any(start < j.end_s + after and j.stop_s - before < end for j in route.junctions):
            continue
        samples = np.arange(start - straight_m, end + 1.0, 2.0).tolist()
        if all(abs(route.at(s)[3]) <= 1 / tightest_m + 1e-9 for s in samples):
            options.append(start)
    if not options:
        return None
    start = float(options[rng.integers(len(options))])
    taken.append((start, start + length_m))
    return start


def _one(rng: np.random.Generator, colours: tuple[Colour, ...]) -> Colour:
    return colours[rng.integers(len(colours))]
