"""Who else is on the road, and the traffic lights: small state machines over the route's distance.

Every actor has `step` and `body`; what it decides by is drawn beforehand, so that copies of a
world go on alike. Pedestrians and cyclists cross from the right only, and whoever stands at the
right kerb is going to: one picture tells who has to be given way.
"""

import math
from dataclasses import dataclass

from ..types import Command
from .guide import Guide
from .pacing import HARDEST_MPS2, cruising, distance_for, following, stopping
from .route import Junction, Route
from .scene import Body, BodyKind, Colour, Light

SIZES_M = {
    BodyKind.CAR: (4.4, 1.8, 1.5),
    BodyKind.TRUCK: (7.5, 2.4, 3.0),
    BodyKind.PEDESTRIAN: (0.5, 0.6, 1.75),
    BodyKind.CYCLIST: (1.75, 0.6, 1.75),
}
AMBER_S = 3.0
AMBER_BRAKING_MPS2 = 3.0  # who would have to brake harder drives on
LEAD_AMBER_BRAKING_MPS2 = 1.9  # lights look at the ego vehicle and may surprise who is ahead
STOP_MARGIN_M = 2.5  # bumpers stop this far before a line,
LEAST_MARGIN_M = 0.5  # or nearer, rather than
MARGIN_BRAKING_MPS2 = 2.6  # to brake harder than this
CROSSING_MARGIN_M = 4.5  # and before somebody's way across
STANDSTILL_GAP_M = 3.5
HEADWAY_S = 1.5
BRAKE_LIGHTS_MPS2 = -0.25
JERK_MPS3 = 4.0


@dataclass
class SignalState:
    """A traffic light and its programme: 'green', 'turns red' or 'red first'.

    It looks at how far the ego vehicle is, so that nobody waits long.
    """

    stop_s: float
    programme: str
    trigger_m: float  # of the ego vehicle's bumper from the stop line
    red_s: float
    light: Light
    since_s: float | None = None  # time since it was triggered

    @property
    def red_end_s(self) -> float:
        """When it turns green, after it was triggered."""
        return self.red_s + (AMBER_S if self.programme == 'turns red' else 0.0)

    def step(self, dt_s: float, ego_front_s: float, ego_speed_mps: float) -> None:
        """Advance; amber comes only while there is room for a comfortable stop."""
        if self.since_s is None:
            distance = self.stop_s - ego_front_s
            # Whoever accelerates still has to notice.
            needed = distance_for(ego_speed_mps) + STOP_MARGIN_M + 0.5 * ego_speed_mps + 2.0
            needed = max(needed, self.trigger_m)
            if self.programme != 'green' and 0.0 < distance < needed:
                self.since_s = 0.0
            else:
                return
        else:
            self.since_s += dt_s
        if self.since_s >= self.red_end_s:
            self.light = Light.GREEN
        elif self.programme == 'turns red' and self.since_s < AMBER_S:
            self.light = Light.AMBER
        else:
            self.light = Light.RED


@dataclass
class Crossing:
    """Somebody who waits at the right kerb and crosses when a vehicle comes near."""

    kind: BodyKind
    colour: Colour
    s_m: float
    lateral_m: float
    clear_lateral_m: float  # from here on the ego lane is free
    end_lateral_m: float
    speed_mps: float
    trigger_m: float
    delay_s: float
    moving: bool = False
    since_s: float | None = None

    @property
    def in_the_way(self) -> bool:
        """Whether the ego lane has to stay free: from waiting until well past the middle."""
        return self.lateral_m < self.clear_lateral_m

    def step(self, dt_s: float, front_s: float, speed_mps: float) -> None:
        """Advance; `front_s` and `speed_mps` are of the vehicle that comes next."""
        if self.since_s is None:
            distance = self.s_m - front_s
            needed = distance_for(speed_mps) + CROSSING_MARGIN_M + 0.5 * speed_mps + 2.0
            if 0.0 < distance < max(self.trigger_m, needed):
                self.since_s = 0.0
            return
        self.since_s += dt_s
        self.moving = self.since_s >= self.delay_s and self.lateral_m < self.end_lateral_m
        if self.moving:
            self.lateral_m += self.speed_mps * dt_s

    def body(self, route: Route) -> Body:
        """Return what is seen of it."""
        x, y, heading = route.pose(self.s_m, self.lateral_m)
        stride = self.lateral_m / 1.4 % 1.0 if self.moving else 0.0
        return Body(
            self.kind,
            (x, y),
            heading + math.pi / 2,
            SIZES_M[self.kind],
            self.colour,
            False,
            stride,
        )


@dataclass
class Bystander:
    """Somebody on the sidewalk, well back from the kerb, who stands or walks along the road."""

    colour: Colour
    s_m: float
    lateral_m: float
    speed_mps: float  # along the route, negative against it
    facing_rad: float  # relative to the route, of who stands

    def step(self, dt_s: float) -> None:
        """Advance."""
        self.s_m += self.speed_mps * dt_s

    def body(self, route: Route) -> Body:
        """Return what is seen of it."""
        x, y, heading = route.pose(self.s_m, self.lateral_m)
        turn = self.facing_rad
        if self.speed_mps:
            turn = 0.0 if self.speed_mps > 0 else math.pi
        kind = BodyKind.PEDESTRIAN
        stride = self.s_m / 1.4 % 1.0 if self.speed_mps else 0.0
        return Body(kind, (x, y), heading + turn, SIZES_M[kind], self.colour, False, stride)


@dataclass
class Lead:
    """A vehicle ahead on the ego lane; `s_m` is the middle of it. `stops` are (s, seconds)."""

    kind: BodyKind
    colour: Colour
    s_m: float
    speed_mps: float
    cruise_mps: float
    stops: tuple[tuple[float, float], ...]
    acceleration_mps2: float = 0.0
    held_s: float = 0.0

    @property
    def rear_s(self) -> float:
        """Where its rear bumper is."""
        return self.s_m - SIZES_M[self.kind][0] / 2

    @property
    def front_s(self) -> float:
        """Where its front bumper is."""
        return self.s_m + SIZES_M[self.kind][0] / 2

    @property
    def braking(self) -> bool:
        """Whether its brake lights are on: it slows down or is held."""
        standing = self.speed_mps < 0.05 and self.acceleration_mps2 <= 0.0
        return standing or self.acceleration_mps2 < BRAKE_LIGHTS_MPS2

    def step(
        self,
        dt_s: float,
        guide: Guide,
        junctions: tuple[Junction, ...],
        lights: list[Light],
        crossings: list[Crossing],
    ) -> None:
        """Advance under the same rules as everybody, and stop for a while where it is to."""
        _, _, _, limit, slope = guide.at(self.s_m)
        wanted = cruising(self.speed_mps, min(limit, self.cruise_mps),
                          slope if limit < self.cruise_mps else 0.0)  # fmt: skip
        stops = stop_distances(
            self.front_s, self.speed_mps, junctions, lights, crossings, LEAD_AMBER_BRAKING_MPS2
        )
        for _, distance in stops:
            wanted = min(wanted, stopping(self.speed_mps, distance))
        if self.stops and self.front_s < self.stops[0][0] + 5.0:
            wanted = min(wanted, stopping(self.speed_mps, self.stops[0][0] - self.front_s))
            if self.speed_mps < 0.02 and self.stops[0][0] - self.front_s < 1.5:
                self.held_s += dt_s
                if self.held_s > self.stops[0][1]:
                    self.stops, self.held_s = self.stops[1:], 0.0
        self.speed_mps, self.acceleration_mps2, moved = advance(
            self.speed_mps, self.acceleration_mps2, wanted, dt_s
        )
        self.s_m += moved

    def coast(self, dt_s: float, keeps: bool) -> None:
        """Advance as a stranger expects: it keeps its acceleration, or its speed."""
        if not keeps:
            self.acceleration_mps2 = 0.0
        speed = max(self.speed_mps + self.acceleration_mps2 * dt_s, 0.0)
        self.s_m += (self.speed_mps + speed) / 2 * dt_s
        self.speed_mps = speed
        if speed == 0.0:
            self.acceleration_mps2 = min(self.acceleration_mps2, 0.0)

    def body(self, route: Route, guide: Guide) -> Body:
        """Return what is seen of it."""
        offset, slope, *_ = guide.at(self.s_m)
        x, y, heading = route.pose(self.s_m, offset)
        size = SIZES_M[self.kind]
        heading += math.atan(slope)
        return Body(self.kind, (x, y), heading, size, self.colour, self.braking)


@dataclass
class Oncoming:
    """A vehicle of the opposite lane, which comes from the route's end to its start."""

    colour: Colour
    s_m: float
    lateral_m: float
    start_s: float  # time at which it appears
    cruise_mps: float
    speed_mps: float
    acceleration_mps2: float = 0.0

    def step(
        self,
        dt_s: float,
        time_s: float,
        guide: Guide,
        junctions: tuple[Junction, ...],
        lights: list[Light],
        crossings: list[Crossing],
        ahead: 'Oncoming | None',
    ) -> None:
        """Advance; `guide` and the vehicle ahead are those of its own direction."""
        if time_s < self.start_s:
            return
        v = self.speed_mps
        front_s = self.s_m - SIZES_M[BodyKind.CAR][0] / 2
        _, _, _, limit, slope = guide.at(self.s_m)
        wanted = cruising(v, min(limit, self.cruise_mps),
                          -slope if limit < self.cruise_mps else 0.0)  # fmt: skip
        for junction in junctions:
            distance = front_s - (junction.end_s + junction.start_s - junction.stop_s)
            if junction.signal is not None and distance > 0:
                wanted = min(wanted, obeying(lights[junction.signal], v, distance))
        for crossing in crossings:
            distance = front_s - crossing.s_m
            if crossing.moving and 1.0 < distance < 60.0:
                wanted = min(wanted, stopping(v, distance - CROSSING_MARGIN_M))
        if ahead is not None:
            room = front_s - ahead.s_m - SIZES_M[BodyKind.CAR][0] / 2 - STANDSTILL_GAP_M
            if room < 60.0:
                wanted = min(
                    wanted,
                    following(v, room, ahead.speed_mps, ahead.acceleration_mps2, HEADWAY_S),
                )
        self.speed_mps, self.acceleration_mps2, moved = advance(
            v, self.acceleration_mps2, wanted, dt_s
        )
        self.s_m -= moved

    def body(self, route: Route) -> Body:
        """Return what is seen of it."""
        x, y, heading = route.pose(self.s_m, self.lateral_m)
        kind = BodyKind.CAR
        return Body(kind, (x, y), heading + math.pi, SIZES_M[kind], self.colour)


@dataclass
class CrossTraffic:
    """A vehicle that crosses a junction straight on while the ego vehicle's light is red."""

    colour: Colour
    junction: Junction
    signal: SignalState
    arm: Command
    speed_mps: float
    start_m: float  # from the junction's centre
    clear_s: float  # when it has left the box, after the light was triggered

    @property
    def distance_m(self) -> float | None:
        """Distance from the centre, negative behind it; None while it is not there."""
        if self.signal.since_s is None:
            return None
        leave_m = -(self.junction.half_size_m + SIZES_M[BodyKind.CAR][0])
        distance = leave_m + (self.clear_s - self.signal.since_s) * self.speed_mps
        return distance if -65.0 < distance < self.start_m else None

    @property
    def nears_box(self) -> bool:
        """Whether it is about to drive through the junction, or does so."""
        distance = self.distance_m
        half = self.junction.half_size_m
        return distance is not None and -half < distance < half + 25.0

    def body(self, route: Route) -> Body | None:
        """Return what is seen of it, if it is there."""
        distance = self.distance_m
        if distance is None:
            return None
        x, y, heading = route.arm_pose(self.junction, self.arm, distance, incoming=True)
        kind = BodyKind.CAR
        return Body(kind, (x, y), heading, SIZES_M[kind], self.colour)


def stop_distances(
    front_s: float,
    speed_mps: float,
    junctions: tuple[Junction, ...],
    lights: list[Light],
    crossings: list[Crossing],
    amber_braking_mps2: float = AMBER_BRAKING_MPS2,
) -> list[tuple[str, float]]:
    """Return (why, how far ahead) a vehicle on the ego lane has to stop.

    The reasons are 'red', 'amber', 'pedestrian' and 'cyclist'.
    """
    distances = []
    for junction in junctions:
        if junction.signal is not None:
            light = lights[junction.signal]
            distance = signal_distance(front_s, speed_mps, junction, light, amber_braking_mps2)
            if distance is not None:
                distances.append((light.value, distance))
    for crossing in crossings:
        # Too late to wait for who stands; never too late for who walks.
        nearest = 0.3 if crossing.moving else 1.0
        if crossing.in_the_way and nearest < crossing.s_m - front_s < 60.0:
            room = crossing.s_m - CROSSING_MARGIN_M - front_s
            distances.append((crossing.kind.value, room))
    return distances


def signal_distance(
    front_s: float,
    speed_mps: float,
    junction: Junction,
    light: Light,
    amber_braking_mps2: float,
) -> float | None:
    """Return the way to stop in for a light of the ego lane, or None to drive on."""
    distance = junction.stop_s - front_s
    if light is Light.GREEN or distance > 80.0 or front_s > junction.start_s:
        return None
    if distance < 0.0:  # over the line, before the box: who stands stays
        return 0.0 if speed_mps < 1.0 else None
    if light is Light.AMBER and not _can_stop(speed_mps, distance, amber_braking_mps2):
        return None
    return _before_line(speed_mps, distance)


def obeying(light: Light, speed_mps: float, distance_m: float) -> float:
    """Return the acceleration that a light allows, `distance_m` before its line."""
    if light is Light.GREEN or (
        light is Light.AMBER and not _can_stop(speed_mps, distance_m, AMBER_BRAKING_MPS2)
    ):
        return math.inf
    return stopping(speed_mps, _before_line(speed_mps, distance_m))


def _before_line(speed_mps: float, distance_m: float) -> float:
    """Return the way to stop in, given the way to the line."""
    needed = speed_mps * speed_mps / (2 * MARGIN_BRAKING_MPS2)
    return max(distance_m - STOP_MARGIN_M, min(needed, distance_m - LEAST_MARGIN_M))


def advance(
    speed_mps: float, acceleration_mps2: float, wanted_mps2: float, dt_s: float
) -> tuple[float, float, float]:
    """Return (speed, acceleration, way) of a vehicle without dynamics, its jerk limited."""
    change = JERK_MPS3 * dt_s
    low = acceleration_mps2 - (change if wanted_mps2 > -3.0 else 10.0)
    acceleration = min(max(wanted_mps2, low, -HARDEST_MPS2), acceleration_mps2 + change)
    speed = speed_mps + acceleration * dt_s
    if speed <= 0.0:
        speed, acceleration = 0.0, max(acceleration, 0.0)
    return speed, acceleration, (speed + speed_mps) / 2 * dt_s


def _can_stop(speed_mps: float, distance_m: float, braking_mps2: float) -> bool:
    return speed_mps * speed_mps / (2 * max(distance_m, 0.1)) <= braking_mps2
