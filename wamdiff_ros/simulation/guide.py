"""Where on its lane a driver who knows the whole route wants to be, and how fast at most.

Fixed for a route: the lateral offset makes way for what intrudes on the lane, the speed keeps
curves, junctions and roadworks comfortable. Both are tables over the route's distance.
"""

import math
from dataclasses import dataclass

import numpy as np

from .route import STEP_M, Route
from .vehicle import VEHICLE

CLEARANCE_M = 0.65  # between the ego's side and what intrudes
LATERAL_MPS2 = 2.2  # in curves
SLOWEST_TURN_MPS = 3.5
SLOWING_MPS2 = 1.8  # before a lower limit
SPEEDING_UP_MPS2 = 1.5  # after it
RAMP_M = 13.0  # of the offset, before and after
BEFORE_M = VEHICLE.front_m + 1.5  # the offset is complete here before an obstacle
BEHIND_M = VEHICLE.rear_overhang_m + 1.0


@dataclass(frozen=True)
class Obstacle:
    """Something beside or on the lane's right edge, from `start_s` to `end_s`."""

    start_s: float
    end_s: float
    inner_lateral_m: float  # its left side, relative to the middle of the lane: negative
    limit_mps: float  # not faster past it
    by_vehicle: bool  # a parked car, else roadworks


class Guide:
    """Tables over s; plain floats, because they are read one at a time."""

    def __init__(
        self, route: Route, obstacles: tuple[Obstacle, ...] = (), lateral_m: float = 0.0
    ) -> None:
        """Make the tables; `lateral_m` is the left shift of a lane to drive on, for its curves."""
        s = route.s_m
        bends = route.curvature_1pm / (1 - route.curvature_1pm * lateral_m)
        offset = np.zeros(len(s))
        limit = np.minimum(route.speed_limit_mps, turning_limit(bends))
        ramp_m = RAMP_M
        for obstacle in obstacles:
            needed = obstacle.inner_lateral_m + VEHICLE.width_m / 2 + CLEARANCE_M
            inside = (s > obstacle.start_s - BEFORE_M - RAMP_M / 2) & (
                s < obstacle.end_s + BEHIND_M
            )
            limit[inside] = np.minimum(limit[inside], obstacle.limit_mps)
            if needed > 0:
                up = _smooth_step((s - (obstacle.start_s - BEFORE_M - ramp_m)) / ramp_m)
                down = _smooth_step(((obstacle.end_s + BEHIND_M + ramp_m) - s) / ramp_m)
                offset = np.maximum(offset, needed * up * down)
        limit = _within_acceleration(limit)
        slope = np.gradient(offset, STEP_M)
        # Driven at the offset; the change of the offset bends it once more.
        curvature = route.curvature_1pm / (1 - route.curvature_1pm * offset)
        curvature += np.gradient(slope, STEP_M)
        columns = [offset, slope, curvature, limit, np.gradient(limit, STEP_M)]
        self._rows = [tuple(row) for row in np.column_stack(columns).tolist()]
        self.offset_m, self.limit_mps = offset, limit
        self._last = len(s) - 1

    def at(self, s_m: float) -> tuple[float, float, float, float, float]:
        """Return (offset, its slope, curvature there, speed limit, its slope) at `s_m`."""
        place = min(max(s_m / STEP_M, 0.0), self._last - 1e-6)
        index = int(place)
        part = place - index
        o0, t0, c0, v0, a0 = self._rows[index]
        o1, t1, c1, v1, a1 = self._rows[index + 1]
        return (
            o0 + (o1 - o0) * part, t0 + (t1 - t0) * part, c0 + (c1 - c0) * part,
            v0 + (v1 - v0) * part, a0 + (a1 - a0) * part,
        )  # fmt: skip

    def limit_at(self, s_m: float) -> float:
        """Return the speed limit alone."""
        return self._rows[min(max(round(s_m / STEP_M), 0), self._last)][3]


def turning_limit(curvature_1pm: np.ndarray) -> np.ndarray:
    """Return the speed (m/s) [N] that is comfortable on curves [N]."""
    radius = 1 / np.maximum(np.abs(curvature_1pm), 1e-4)
    return np.maximum(np.sqrt(LATERAL_MPS2 * radius), SLOWEST_TURN_MPS)


def _smooth_step(x: np.ndarray) -> np.ndarray:
    x = np.clip(x, 0, 1)
    return x * x * x * (10 + x * (6 * x - 15))


def _within_acceleration(limit_mps: np.ndarray) -> np.ndarray:
    """Lower a limit until it can be followed with comfortable acceleration both ways."""
    square = (limit_mps**2).tolist()
    for i in range(len(square) - 2, -1, -1):
        square[i] = min(square[i], square[i + 1] + 2 * SLOWING_MPS2 * STEP_M)
    for i in range(1, len(square)):
        square[i] = min(square[i], square[i - 1] + 2 * SPEEDING_UP_MPS2 * STEP_M)
    return np.array([math.sqrt(value) for value in square])
