"""Pushes the vehicle off the expert's path now and then, so that data shows the way back.

A push is only given where the expert recovers from it: it is tried in a copy of the world first.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from .expert import Expert
from .vehicle import VEHICLE, Control
from .world import World

CALM_S = (1.0, 5.0)  # between two pushes, and before the first
RETRY_S = 0.5  # after a push that the expert would not recover from
RECOVERY_S = 3.0
LASTS_S = (0.5, 1.5)  # of wrong controls
MOVING_MPS = 1.0
# Share of pushes that stop a moving vehicle for no reason, and how long it is held. Without them
# almost everything that stands in the data waits for something, and a model that stands stays.
STOPS, STANDS_S = 0.2, (0.3, 2.0)
HELD_MPS2 = -8.0


@dataclass(frozen=True)
class Push:
    """Either a jump of pose and speed at once, or an error of the controls for a while."""

    left_m: float = 0.0
    heading_rad: float = 0.0
    speed_mps: float = 0.0
    steering_rad: float = 0.0
    acceleration_mps2: float = 0.0
    lasts_s: float = 0.0


NO_PUSH = Push()


class Disturbances:
    """The pushes of one route. `push` before each step, then `disturbed` on its control."""

    def __init__(self, random: np.random.Generator):
        self._random = random
        self._push = NO_PUSH
        self._next_s = random.uniform(*CALM_S)
        self._ends_s = -math.inf

    def push(self, world: World, expert: Expert) -> None:
        """Begin a push when it is time, if the expert recovers from it; may move the vehicle."""
        if world.time_s < self._next_s:
            return
        push = _draw(self._random, world.ego.speed_mps)
        if not recovers(world, expert, push):
            self._next_s = world.time_s + RETRY_S
            return
        _jump(world, push)
        self._push, self._ends_s = push, world.time_s + push.lasts_s
        self._next_s = self._ends_s + self._random.uniform(*CALM_S)

    def disturbed(self, world: World, control: Control) -> Control:
        """Return the control with the error of a push that lasts."""
        return _with_error(control, self._push) if world.time_s < self._ends_s else control

    def is_recovering(self, world: World) -> bool:
        """Return whether the vehicle may be off the expert's path."""
        return world.time_s < self._ends_s + RECOVERY_S


def _draw(random: np.random.Generator, speed_mps: float) -> Push:
    """Draw a push that a vehicle at this speed can get: at rest it can only start wrongly."""
    if speed_mps > MOVING_MPS and random.random() < STOPS:
        return Push(
            speed_mps=-speed_mps, acceleration_mps2=HELD_MPS2, lasts_s=random.uniform(*STANDS_S)
        )
    if speed_mps > MOVING_MPS and random.random() < 0.5:
        return Push(
            left_m=_normal(random, 0.6, 1.4),
            heading_rad=_normal(random, 0.07, 0.18),
            speed_mps=max(_normal(random, 1.5, 3.0), -speed_mps) * (random.random() < 0.5),
        )
    lateral_mps2 = _normal(random, 1.5, 3.0)
    # The steering error that makes this lateral acceleration, within a sensible angle.
    steering = math.atan(VEHICLE.wheelbase_m * lateral_mps2 / max(speed_mps, 3.0) ** 2)
    return Push(
        steering_rad=float(np.clip(steering, -0.25, 0.25)),
        acceleration_mps2=_normal(random, 1.2, 2.5) * (random.random() < 0.6),
        lasts_s=random.uniform(*LASTS_S),
    )


def recovers(
    world: World, expert: Expert, push: Push = NO_PUSH, held: Control | None = None
) -> bool:
    """Whether the expert, after a push, drives on for some seconds without a fault.

    While the push lasts, the control is the expert's with the error, or `held`.
    """
    copy = world.copy()
    known = len(copy.events)
    _jump(copy, push)
    ends_s = copy.time_s + push.lasts_s
    while not copy.finished and copy.time_s < ends_s + RECOVERY_S:
        control = expert.control(copy)
        if copy.time_s < ends_s:
            control = held or _with_error(control, push)
        copy.step(control)
    return len(copy.events) == known


def _jump(world: World, push: Push) -> None:
    ego = world.ego
    speed_mps = max(ego.speed_mps + push.speed_mps, 0.0)
    world.place(
        replace(
            ego,
            x_m=ego.x_m - push.left_m * math.sin(ego.heading_rad),
            y_m=ego.y_m + push.left_m * math.cos(ego.heading_rad),
            heading_rad=ego.heading_rad + push.heading_rad,
            speed_mps=speed_mps,
            acceleration_mps2=ego.acceleration_mps2 if speed_mps > 0.0 else 0.0,
        )
    )


def _with_error(control: Control, push: Push) -> Control:
    return Control(
        control.acceleration_mps2 + push.acceleration_mps2,
        control.steering_rad + push.steering_rad,
    )


def _normal(random: np.random.Generator, sigma: float, limit: float) -> float:
    return float(np.clip(random.normal(0.0, sigma), -limit, limit))
