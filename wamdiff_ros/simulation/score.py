"""What a drive along one route was worth, and what many of them were.

Faults come from the world; this file weighs them. The composite follows the PDM score of NAVSIM,
NC · DAC · (5 EP + 5 TTC + 2 C) / 12. NAVSIM judges 4 s at a time, so time to collision and
comfort are the shares of a route's 4 s windows that keep their limits; the gates hold for the
whole route, and progress is the mean pace compared with the expert's on the same route.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.stats import binomtest

from ..evaluation.comfort import comfortable
from ..evaluation.navsim import TIME_TO_COLLISION_S, pdm_score
from ..types import PlanStatus
from .expert import Expert
from .scene import Body
from .vehicle import VEHICLE, VehicleState, curvature_of
from .world import STEP_S, Footprint, World

WINDOW_S = 4.0
MOVING_MPS = 0.1  # a standing vehicle runs into nobody
CONFIDENCE = 0.95
# A drive is lost after these faults, and once it has not come farther for so long: nobody stands
# for longer than that at a light.
FATAL = ('collision', 'off_road')
AFTERMATH_S = 2.0  # that is still driven then, to see and to judge what happened
STUCK_S, STUCK_M = 30.0, 1.0


@dataclass(frozen=True)
class RouteScore:
    """One finished drive; shares and ratios are 0 … 1."""

    seed: int
    completed: bool  # reached the route's end in time
    collisions: int
    off_road: int
    red_lights: int
    wrong_way: int
    completion: float  # share of the route's length
    duration_s: float
    lane_deviation_m: float  # mean distance from the lane's centre line
    progress: float  # mean pace, as a share of the expert's
    time_to_collision: float  # share of the 4 s windows without a collision within 1 s ahead
    comfort: float  # share of the 4 s windows within the limits of comfort
    pdms: float
    not_nominal: float  # share of the steps without a plan of their own
    faults: tuple[str, ...]  # in words, in their order
    rejected_plans: dict[str, int] = field(default_factory=dict)  # by the check that they broke
    ended_early: str = ''  # why: a kind of fault, or 'stuck'

    @property
    def success(self) -> bool:
        """Completed, without collision, off-road or red-light fault."""
        return self.completed and not (self.collisions or self.off_road or self.red_lights)


@dataclass(frozen=True)
class DriveSummary:
    """Many routes; `success_interval` is the Wilson interval of 95 % confidence."""

    routes: int
    successes: int
    success_rate: float
    success_interval: tuple[float, float]
    completed: int
    collisions: int
    off_road: int
    red_lights: int
    wrong_way: int
    lane_deviation_m: float
    pdms: float
    rejected_plans: dict[str, int]  # by the check that they broke
    ended_early: int


def summarise(scores: Sequence[RouteScore]) -> DriveSummary:
    """Add up and average over routes. Raises ValueError for none."""
    if not scores:
        raise ValueError('no routes to summarise')
    successes = sum(score.success for score in scores)
    rejected = sum((Counter(score.rejected_plans) for score in scores), Counter())
    interval = binomtest(successes, len(scores)).proportion_ci(CONFIDENCE, 'wilson')
    return DriveSummary(
        routes=len(scores),
        successes=successes,
        success_rate=successes / len(scores),
        success_interval=(float(interval.low), float(interval.high)),
        completed=sum(score.completed for score in scores),
        collisions=sum(score.collisions for score in scores),
        off_road=sum(score.off_road for score in scores),
        red_lights=sum(score.red_lights for score in scores),
        wrong_way=sum(score.wrong_way for score in scores),
        lane_deviation_m=float(np.mean([score.lane_deviation_m for score in scores])),
        pdms=float(np.mean([score.pdms for score in scores])),
        rejected_plans=dict(rejected),
        ended_early=sum(bool(score.ended_early) for score in scores),
    )


def lost(world: World) -> str:
    """Return why the drive cannot become a success any more and may be ended, or ''."""
    for fault in world.events:
        if fault.kind in FATAL and world.time_s > fault.time_s + AFTERMATH_S - STEP_S / 2:
            return fault.kind
    steps = round(STUCK_S / STEP_S)
    if len(world.history) <= steps:
        return ''
    before, now = world.history[-1 - steps][1], world.ego
    moved_m = math.hypot(now.x_m - before.x_m, now.y_m - before.y_m)
    return 'stuck' if moved_m < STUCK_M else ''


class Drive:
    """Keeps what the score of one drive is made from; one `add` per step, before it is taken."""

    def __init__(self) -> None:
        self._bodies: list[tuple[Body, ...]] = []
        self._statuses: list[PlanStatus] = []

    def add(self, world: World, status: PlanStatus) -> None:
        """Keep who is where now, and which kind of plan is followed from now on."""
        self._bodies.append(world.view().bodies)
        self._statuses.append(status)

    def score(
        self, world: World, rejected_plans: Mapping[str, int] | None = None, ended_early: str = ''
    ) -> RouteScore:
        """Return the score of the drive; one that ended early counts as if it went no farther."""
        states = [state for _, state in world.history]
        speed_mps = np.array([state.speed_mps for state in states])
        curvature_1pm = np.array([curvature_of(state.steering_rad) for state in states])
        comfort = share_of_windows(comfortable(speed_mps, speed_mps * curvature_1pm, STEP_S))
        clear = share_of_windows(np.array(self._clear(states), bool))
        all_s = STEP_S * math.ceil(world.time_limit_s / STEP_S)
        progress = _progress(world, all_s if ended_early else world.time_s)
        faults = Counter(fault.kind for fault in world.events)
        gates = faults['collision'] == 0, faults['off_road'] == 0
        held = [status is not PlanStatus.NOMINAL for status in self._statuses]
        return RouteScore(
            seed=world.seed,
            completed=world.completed,
            collisions=faults['collision'],
            off_road=faults['off_road'],
            red_lights=faults['red_light'],
            wrong_way=faults['wrong_way'],
            completion=world.completion,
            duration_s=world.time_s,
            lane_deviation_m=world.lane_deviation_m,
            progress=progress,
            time_to_collision=clear,
            comfort=comfort,
            pdms=pdm_score(*gates, progress, clear, comfort),
            not_nominal=float(np.mean(held)) if held else 0.0,
            faults=(*describe_faults(world), *_end_in_words(world, ended_early)),
            rejected_plans=dict(rejected_plans or {}),
            ended_early=ended_early,
        )

    def _clear(self, states: list[VehicleState]) -> list[bool]:
        """Return for every step whether going straight on would hit nobody within a second."""
        reach = round(TIME_TO_COLLISION_S / STEP_S)
        return [
            state.speed_mps < MOVING_MPS
            or not any(
                _would_hit(state, bodies, (offset + 1) * STEP_S)
                for offset, bodies in enumerate(self._bodies[i + 1 : i + 1 + reach])
            )
            for i, state in enumerate(states)
        ]


def describe_faults(world: World) -> list[str]:
    """Return what went wrong so far, in words."""
    words = [
        f'{fault.time_s:.1f} s: {fault.kind.replace("_", " ")} ({fault.detail})'
        for fault in world.events
    ]
    if world.finished and not world.completed:
        words.append(f'{world.time_s:.1f} s: out of time')
    return words


def _end_in_words(world: World, ended_early: str) -> tuple[str, ...]:
    if ended_early == 'stuck':
        return (f'{world.time_s:.1f} s: stuck for {STUCK_S:.0f} s',)
    return ()


def _would_hit(state: VehicleState, bodies: tuple[Body, ...], after_s: float) -> bool:
    """Return whether the ego vehicle, straight on, touches somebody before it then."""
    cos, sin = math.cos(state.heading_rad), math.sin(state.heading_rad)
    way_m = VEHICLE.centre_m + state.speed_mps * after_s
    middle = state.x_m + way_m * cos, state.y_m + way_m * sin
    ego = Footprint.of(middle, state.heading_rad, VEHICLE.length_m, VEHICLE.width_m)
    for body in bodies:
        dx, dy = body.position_map_m[0] - middle[0], body.position_map_m[1] - middle[1]
        if abs(dx) + abs(dy) > 14.0 or dx * cos + dy * sin < 0:
            continue
        other = Footprint.of(body.position_map_m, body.heading_rad, *body.size_m[:2])
        if ego.overlaps(other):
            return True
    return False


def _progress(world: World, duration_s: float) -> float:
    """Return the mean pace over `duration_s` as a share of the expert's on the same route."""
    other, expert = World(world.seed), Expert()
    while not other.finished:
        other.step(expert.control(other))
    pace = world.completion / max(duration_s, STEP_S)
    return min(pace / (other.completion / other.time_s), 1.0)


def share_of_windows(kept: np.ndarray, step_s: float = STEP_S) -> float:
    """Return the share of 4 s windows in which all steps kept a limit; a short rest counts too."""
    if not len(kept):
        return 1.0
    size = round(WINDOW_S / step_s)
    windows = [kept[i : i + size].all() for i in range(0, len(kept), size)]
    return float(np.mean(windows))
