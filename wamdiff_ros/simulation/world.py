"""The driving world: an ego vehicle on a route with other road users, and what goes wrong there.

A world is a function of its seed and of the controls it gets. It knows no pictures; `view` says
what a renderer has to show.
"""

import copy
import math
from dataclasses import dataclass

import numpy as np

from ..types import Command, EgoState
from .ground import half_width_m
from .guide import Guide
from .route import Route, make_route
from .scenario import START_S, draw_scenario, empty_scenario
from .scene import Body, Light, PropKind, Scene, View
from .scenery import make_scene
from .traffic import Crossing, Lead, Oncoming
from .vehicle import VEHICLE, Control, VehicleState, curvature_of, step

STEP_S = 0.1
END_M = 10.0  # the route is done this far before its end
OFF_ROAD_M = 0.3  # a wheel beyond the asphalt
WRONG_WAY_S = 2.0
WRONG_WAY_M = 0.5  # the vehicle's middle beyond the middle of the road
RED_LIGHT_MPS = 0.5
SLOWEST_MPS = 4.0  # mean speed below which a drive is given up, apart from waiting
WAITING_S = 30.0
VARIANTS = ('default', 'empty')


@dataclass(frozen=True)
class Fault:
    """Something that went wrong: 'collision', 'off_road', 'red_light' or 'wrong_way'."""

    kind: str
    time_s: float
    detail: str  # with whom or where


@dataclass(frozen=True)
class Footprint:
    """A box on the ground: middle, direction, half length and half width."""

    x_m: float
    y_m: float
    cos: float
    sin: float
    half_length_m: float
    half_width_m: float

    @classmethod
    def of(
        cls, position: tuple[float, float], heading_rad: float, length_m: float, width_m: float
    ) -> 'Footprint':
        """Return the footprint of a body or prop."""
        return cls(
            position[0],
            position[1],
            math.cos(heading_rad),
            math.sin(heading_rad),
            length_m / 2,
            width_m / 2,
        )

    def overlaps(self, other: 'Footprint') -> bool:
        """Whether two boxes share ground (separating axes)."""
        dx, dy = other.x_m - self.x_m, other.y_m - self.y_m
        reach = self.half_length_m + self.half_width_m + other.half_length_m + other.half_width_m
        if abs(dx) > reach or abs(dy) > reach:
            return False
        cos = abs(self.cos * other.cos + self.sin * other.sin)
        sin = abs(self.cos * other.sin - self.sin * other.cos)
        for a, b in ((self, other), (other, self)):
            along, across = abs(dx * a.cos + dy * a.sin), abs(dy * a.cos - dx * a.sin)
            if along > a.half_length_m + b.half_length_m * cos + b.half_width_m * sin:
                return False
            if across > a.half_width_m + b.half_length_m * sin + b.half_width_m * cos:
                return False
        return True


class World:
    """One route, driven once. `step` advances it by 0.1 s."""

    def __init__(self, seed: int, variant: str = 'default') -> None:
        if variant not in VARIANTS:
            raise ValueError(f'variant {variant!r} is none of {", ".join(VARIANTS)}')
        self.seed = seed
        self.route: Route = make_route(np.random.default_rng((seed, 0)))
        if variant == 'empty':
            scenario = empty_scenario(self.route)
        else:
            scenario = draw_scenario(self.route, np.random.default_rng((seed, 1)))
        self.scene: Scene = make_scene(
            self.route, np.random.default_rng((seed, 2)), scenario.features
        )
        self.features = scenario.features
        self.obstacles = scenario.obstacles
        self.guide = Guide(self.route, scenario.obstacles)
        self.oncoming_guide = Guide(self.route, lateral_m=self.route.lane_width_m)
        self.parked = scenario.parked
        self._fixed = self._fixed_footprints()
        self._half_road_m = half_width_m(self.route)

        self.signals = scenario.signals
        self.lights: list[Light] = [signal.light for signal in self.signals]
        self.lead: Lead | None = scenario.lead
        self.crossings: list[Crossing] = scenario.crossings
        self.oncoming = scenario.oncoming
        self.bystanders = scenario.bystanders
        self.cross_traffic = scenario.cross_traffic
        self._frozen = False
        self._frozen_s = 0.0

        self.time_s = 0.0
        self._steps = 0
        self.s_m, self.lateral_m = START_S, 0.0  # of the ego vehicle
        x, y, heading, _ = self.route.at(START_S)
        self.ego = VehicleState(x, y, heading, scenario.start_speed_mps)
        self.events: list[Fault] = []
        self.history: list[tuple[float, VehicleState]] = [(0.0, self.ego)]
        self._touching: set[str] = set()
        self._off_road = False
        self._wrong_way_s = 0.0
        self._deviation_m = 0.0
        self.time_limit_s = WAITING_S + self.route.length_m / SLOWEST_MPS

    # -- what drivers and judges ask ------------------------------------------------------------

    @property
    def ego(self) -> VehicleState:
        """The ego vehicle; who sets it moves the vehicle there, near where it was."""
        return self._ego

    @ego.setter
    def ego(self, state: VehicleState) -> None:
        self._ego = state
        near_s = self.s_m + state.speed_mps * STEP_S
        self.s_m, self.lateral_m = self.route.project(state.x_m, state.y_m, near_s)

    @property
    def completed(self) -> bool:
        """Whether the ego vehicle has reached the route's end."""
        return self.s_m >= self.route.length_m - END_M

    @property
    def finished(self) -> bool:
        """Whether the route is done or its time is over."""
        return self.completed or self.time_s >= self.time_limit_s

    @property
    def completion(self) -> float:
        """Share of the way from the start to the end that is done, 0 … 1."""
        whole = self.route.length_m - END_M - START_S
        return min(max((self.s_m - START_S) / whole, 0.0), 1.0)

    @property
    def lane_deviation_m(self) -> float:
        """Mean distance from the middle of the lane so far."""
        return self._deviation_m / max(self._steps, 1)

    def command(self) -> Command:
        """Return what the route asks for next."""
        return self.route.command_at(self.s_m)

    def ego_state(self, stamp_ns: int) -> EgoState:
        """Return the ego vehicle's motion as odometry tells it; the frame `odom` is the map."""
        ego = self.ego
        yaw_rate = ego.speed_mps * curvature_of(ego.steering_rad)
        half = ego.heading_rad / 2
        return EgoState(
            stamp_ns=stamp_ns,
            fixed_frame='odom',
            base_frame='base_link',
            position_fixed_m=(ego.x_m, ego.y_m, 0.0),
            orientation_xyzw=(0.0, 0.0, math.sin(half), math.cos(half)),
            velocity_base_mps=(ego.speed_mps, 0.0),
            yaw_rate_radps=yaw_rate,
            acceleration_base_mps2=(ego.acceleration_mps2, ego.speed_mps * yaw_rate),
        )

    def view(self) -> View:
        """Return what can be seen now; nobody farther than the scene reaches."""
        return View(
            frame_number=self._steps,
            position_map_m=(self.ego.x_m, self.ego.y_m),
            heading_rad=self.ego.heading_rad,
            pitch_rad=0.0,
            roll_rad=0.0,
            bodies=(*self.parked, *self.moving_bodies()),
            lights=tuple(self.lights),
        )

    def moving_bodies(self) -> list[Body]:
        """Return all road users but the parked ones."""
        route = self.route
        bodies = [crossing.body(route) for crossing in self.crossings]
        bodies += [person.body(route) for person in self.bystanders]
        bodies += [o.body(route) for o in self.oncoming if self._is_there(o)]
        bodies += [body for c in self.cross_traffic if (body := c.body(route))]
        if self.lead is not None:
            bodies.append(self.lead.body(route, self.guide))
        return bodies

    # -- time -----------------------------------------------------------------------------------

    def copy(self) -> 'World':
        """Return a world that goes on independently; what never changes is shared."""
        twin = copy.copy(self)
        twin.signals = [copy.copy(signal) for signal in self.signals]
        twin.crossings = [copy.copy(crossing) for crossing in self.crossings]
        twin.oncoming = [copy.copy(vehicle) for vehicle in self.oncoming]
        twin.bystanders = [copy.copy(person) for person in self.bystanders]
        twin.cross_traffic = [copy.copy(vehicle) for vehicle in self.cross_traffic]
        own = {id(old): new for old, new in zip(self.signals, twin.signals, strict=True)}
        for vehicle in twin.cross_traffic:
            vehicle.signal = own[id(vehicle.signal)]
        twin.lead = copy.copy(self.lead)
        twin.lights, twin.events = list(self.lights), list(self.events)
        twin.history, twin._touching = list(self.history), set(self._touching)
        return twin

    def frozen(self) -> 'World':
        """Return a copy in which nobody begins anything new, to foresee the ego vehicle in.

        Lights stay as they are; who crosses goes on, who waits waits; the vehicle ahead goes on
        accelerating for a second. Nothing that could not touch the ego vehicle is in it, and
        faults are not looked for.
        """
        twin = copy.copy(self)
        twin.crossings = [copy.copy(c) for c in self.crossings if c.in_the_way]
        twin.lead = copy.copy(self.lead)
        twin._frozen, twin._frozen_s = True, 0.0
        return twin

    def step(self, control: Control) -> None:
        """Advance by 0.1 s under a control."""
        if self._frozen:
            self._step_frozen(control)
            return
        front_s = self.s_m + VEHICLE.front_m
        self._move_others(front_s)
        self.ego = step(self.ego, control, STEP_S)
        self._steps += 1
        self.time_s = self._steps * STEP_S
        self._deviation_m += abs(self.lateral_m)
        self.history.append((self.time_s, self.ego))
        self._judge(front_s)

    def place(self, ego: VehicleState) -> None:
        """Put the ego vehicle elsewhere, near where it is: something pushed it."""
        self.ego = ego

    def _step_frozen(self, control: Control) -> None:
        for crossing in self.crossings:
            if crossing.moving:
                crossing.lateral_m += crossing.speed_mps * STEP_S
        if self.lead is not None:
            self.lead.coast(STEP_S, keeps=self._frozen_s < 1.0)
        self._frozen_s += STEP_S
        self.ego = step(self.ego, control, STEP_S)

    def _move_others(self, front_s: float) -> None:
        speed = self.ego.speed_mps
        for index, signal in enumerate(self.signals):
            signal.step(STEP_S, front_s, speed)
            self.lights[index] = signal.light
        lead, junctions, lights = self.lead, self.route.junctions, self.lights
        for crossing in self.crossings:
            if lead is not None and lead.front_s < crossing.s_m:
                crossing.step(STEP_S, lead.front_s, lead.speed_mps)
            else:
                crossing.step(STEP_S, front_s, speed)
        for person in self.bystanders:
            person.step(STEP_S)
        if lead is not None:
            lead.step(STEP_S, self.guide, junctions, lights, self.crossings)
        ahead = None
        for vehicle in self.oncoming:
            if vehicle.s_m > self.s_m - 60.0:
                vehicle.step(
                    STEP_S, self.time_s, self.oncoming_guide, junctions, lights,
                    self.crossings, ahead,
                )  # fmt: skip
                ahead = vehicle

    def _is_there(self, vehicle: Oncoming) -> bool:
        return vehicle.start_s <= self.time_s and self.s_m - 40.0 < vehicle.s_m

    # -- faults ---------------------------------------------------------------------------------

    def _judge(self, front_s: float) -> None:
        self._judge_collisions()
        self._judge_lane()
        if self.ego.speed_mps > RED_LIGHT_MPS:
            new_front_s = self.s_m + VEHICLE.front_m
            for junction in self.route.junctions:
                if junction.signal is None or not front_s < junction.stop_s <= new_front_s:
                    continue
                if self.lights[junction.signal] is Light.RED:
                    self._report('red_light', f'at {junction.stop_s:.0f} m')

    def _report(self, kind: str, detail: str) -> None:
        self.events.append(Fault(kind, self.time_s, detail))

    def _judge_collisions(self) -> None:
        ego = self._ego_footprint()
        touched = {
            name for s, footprint, name in self._fixed
            if abs(s - self.s_m) < 12.0 and ego.overlaps(footprint)
        }  # fmt: skip
        for body in self.moving_bodies():
            x, y = body.position_map_m
            if abs(x - ego.x_m) + abs(y - ego.y_m) < 14.0:
                footprint = Footprint.of((x, y), body.heading_rad, *body.size_m[:2])
                if ego.overlaps(footprint):
                    touched.add(body.kind.value)
        for name in sorted(touched - self._touching):
            self._report('collision', name)
        self._touching = touched

    def _ego_footprint(self) -> Footprint:
        ego = self.ego
        x = ego.x_m + VEHICLE.centre_m * math.cos(ego.heading_rad)
        y = ego.y_m + VEHICLE.centre_m * math.sin(ego.heading_rad)
        return Footprint.of((x, y), ego.heading_rad, VEHICLE.length_m, VEHICLE.width_m)

    def _judge_lane(self) -> None:
        ego, half_track = self.ego, VEHICLE.track_m / 2
        cos, sin = math.cos(ego.heading_rad), math.sin(ego.heading_rad)
        front = (ego.x_m + VEHICLE.wheelbase_m * cos, ego.y_m + VEHICLE.wheelbase_m * sin)
        near_s = self.s_m + VEHICLE.wheelbase_m
        axles = (
            (self.s_m, self.lateral_m, ego.x_m, ego.y_m),
            (*self.route.project(*front, near_s), *front),
        )
        away = 0.0
        for s, lateral, x, y in axles:
            from_middle = abs(lateral - self.route.lane_width_m / 2) + half_track
            beyond = from_middle - self._half_road_m
            if beyond > 0:
                beyond = min(beyond, self._beyond_box(s, x, y, half_track))
            away = max(away, beyond)
        if away > OFF_ROAD_M and not self._off_road:
            self._report('off_road', f'at {self.s_m:.0f} m')
        self._off_road = away > OFF_ROAD_M
        in_box = any(j.start_s - 1 < self.s_m < j.end_s + 1 for j in self.route.junctions)
        wrong = self.lateral_m - self.guide.at(self.s_m)[0] > (
            self.route.lane_width_m / 2 + WRONG_WAY_M
        )
        self._wrong_way_s = self._wrong_way_s + STEP_S if wrong and not in_box else 0.0
        if WRONG_WAY_S < self._wrong_way_s <= WRONG_WAY_S + STEP_S:
            self._report('wrong_way', f'at {self.s_m:.0f} m')

    def _beyond_box(self, s_m: float, x_m: float, y_m: float, half_track_m: float) -> float:
        """Return how far a wheel is out of the junction's square, inf away from junctions."""
        for junction in self.route.junctions:
            if junction.start_s - 3.0 < s_m < junction.end_s + 3.0:
                dx, dy = x_m - junction.centre_map_m[0], y_m - junction.centre_map_m[1]
                cos, sin = math.cos(junction.heading_rad), math.sin(junction.heading_rad)
                far = max(abs(dx * cos + dy * sin), abs(dy * cos - dx * sin))
                return far + half_track_m - junction.half_size_m
        return math.inf

    def _fixed_footprints(self) -> list[tuple[float, Footprint, str]]:
        found = []
        things = [
            (p.position_map_m, p.heading_rad, p.size_m, p.kind.value)
            for p in self.scene.props
            if p.kind in (PropKind.CONE, PropKind.BARRIER)
        ]
        things += [(b.position_map_m, b.heading_rad, b.size_m, 'parked car') for b in self.parked]
        for position, heading, size, name in things:
            s, _ = self.route.project(*position)
            found.append((s, Footprint.of(position, heading, *size[:2]), name))
        return found
