"""The expert: a driver who sees the world's state, and keeps to its rules smoothly.

It has no memory: what it does follows from the world as it is, so it can take over anywhere.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .pacing import HARDEST_MPS2, HOLD_MPS2, cruising, following, stopping
from .traffic import HEADWAY_S, STANDSTILL_GAP_M, stop_distances
from .vehicle import VEHICLE, Control, VehicleState, steering_for

if TYPE_CHECKING:
    from .world import World

STEP_S = 0.1
HORIZON_STEPS = 40
WAYPOINT_STEPS = range(5, 41, 5)
JERK_STEP_MPS2 = 0.75  # how far the asked acceleration may be from the present one
URGENT_MPS2 = -2.8  # below this, as far as need be
STEERING_PREVIEW_S = 0.25  # the steering takes its time
SPEED_PREVIEW_S = 1.8
RECOVERY_MPS2 = 3.0  # to the side, on top of the curve


@dataclass(frozen=True, eq=False)
class ExpertPlan:
    """Where the expert will be, as far as can be known now; base frame at t0, every 0.1 s."""

    waypoints_base_m: np.ndarray  # [8, 2] at 0.5, 1.0 … 4.0 s
    xy_base_m: np.ndarray  # [41, 2] from 0.0 s on
    heading_rad: np.ndarray  # [41]
    speed_mps: np.ndarray  # [41]
    reason: str  # what limits the speed most at t0: a key of `Expert.wishes`


class Expert:
    """Drives a world's ego vehicle."""

    def control(self, world: 'World') -> Control:
        """Return what to do now."""
        return self._control(world, world.ego, world.s_m)[0]

    def plan(self, world: 'World') -> ExpertPlan:
        """Roll out a copy in which everybody goes on as now and nothing new begins."""
        world = world.frozen()
        states, reasons = [world.ego], []
        for _ in range(HORIZON_STEPS):
            control, reason = self._control(world, world.ego, world.s_m)
            reasons.append(reason)
            world.step(control)
            states.append(world.ego)
        table = np.array([(s.x_m, s.y_m, s.heading_rad, s.speed_mps) for s in states])
        start = states[0]
        cos, sin = math.cos(start.heading_rad), math.sin(start.heading_rad)
        xy = (table[:, :2] - table[0, :2]) @ np.array([[cos, -sin], [sin, cos]])
        heading = table[:, 2] - start.heading_rad
        return ExpertPlan(xy[list(WAYPOINT_STEPS)], xy, heading, table[:, 3], reasons[0])

    def wishes(self, world: 'World', ego: VehicleState, s_m: float) -> dict[str, float]:
        """Return the acceleration that each reason allows, in m/s²; the least one counts."""
        v = ego.speed_mps
        front_s = s_m + VEHICLE.front_m
        _, _, _, limit, slope = world.guide.at(s_m)
        later = world.guide.limit_at(s_m + SPEED_PREVIEW_S * v)
        found = {'cruise': cruising(v, limit, slope, later)}
        for reason, distance in stop_distances(
            front_s, v, world.route.junctions, world.lights, world.crossings
        ):
            wish = stopping(v, distance)
            if wish < found.get(reason, math.inf):
                found[reason] = wish
        lead = world.lead
        if lead is not None:
            room = lead.rear_s - front_s - STANDSTILL_GAP_M
            if -10.0 < room < 90.0:
                found['lead'] = following(
                    v, room, lead.speed_mps, lead.acceleration_mps2, HEADWAY_S
                )
        return found

    def _control(self, world: 'World', ego: VehicleState, s_m: float) -> tuple[Control, str]:
        found = self.wishes(world, ego, s_m)
        reason = min(found, key=found.__getitem__)
        return Control(_smooth(found[reason], ego), steer(world, ego, s_m)), reason


def _smooth(wanted_mps2: float, ego: VehicleState) -> float:
    """Limit jerk; holding at rest and urgent braking are not limited."""
    if ego.speed_mps < 0.01 and wanted_mps2 <= 0.0:
        return HOLD_MPS2
    present = ego.acceleration_mps2
    low = present - JERK_STEP_MPS2
    if wanted_mps2 < URGENT_MPS2:
        low = -HARDEST_MPS2
    return min(max(wanted_mps2, low), present + JERK_STEP_MPS2)


def steer(world: 'World', ego: VehicleState, s_m: float) -> float:
    """Return the steering angle that leads back to, and along, the guide's line."""
    guide, v = world.guide, ego.speed_mps
    offset, slope, *_ = guide.at(s_m)
    heading = world.route.at(s_m)[2] + math.atan(slope)
    error = ego.heading_rad - heading
    error = math.atan2(math.sin(error), math.cos(error))
    aside = world.lateral_m - offset
    # Damped spring over the way, softer at speed.
    length = max(3.0, 0.75 * v)
    back = -aside / (length * length) - 1.6 * math.sin(error) / length
    most = min(0.25, RECOVERY_MPS2 / max(v * v, 1.0))
    ahead = s_m + STEERING_PREVIEW_S * v
    curvature = guide.at(ahead)[2] + min(max(back, -most), most)
    if v < 0.05:  # no steering at rest
        return ego.steering_rad
    return steering_for(curvature)
