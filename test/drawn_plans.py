"""Published plans of each status, made by the planner's own code, for tests that draw them."""

from dataclasses import replace

import numpy as np

from wamdiff_ros.parameters import Parameters
from wamdiff_ros.planning.publication import PublicationPolicy
from wamdiff_ros.planning.trajectory import trajectory_from_waypoints
from wamdiff_ros.types import EgoState, Plan, PlanStatus

SPEED_MPS = 7.0
T0_NS = 1_000_000_000_000
EGO = EgoState(
    T0_NS,
    'odom',
    'base_link',
    (100.0, 50.0, 2.0),
    (0.0, 0.0, np.sin(np.pi / 6), np.cos(np.pi / 6)),  # 60 degrees to the left
    (SPEED_MPS, 0.0),
    0.0,
    (0.0, 0.0),
)


def plan(curvature_1pm=0.02, acceleration_mps2=0.6, ego=EGO):
    """Return a plan along an arc."""
    t_s = np.arange(1, 9) * 0.5
    turn_rad = curvature_1pm * (SPEED_MPS * t_s + acceleration_mps2 * t_s**2 / 2)
    waypoints = np.stack([np.sin(turn_rad), 1 - np.cos(turn_rad)], axis=1) / curvature_1pm
    return Plan(
        ego.stamp_ns, ego, waypoints, trajectory_from_waypoints(waypoints, (SPEED_MPS, 0.0), 0.1)
    )


def publication(status=PlanStatus.NOMINAL, of=None):
    """Return what the policy publishes 80, 380 or 1250 ms after t0; a stop begins at EGO's place.

    The vehicle has not moved since then, so that all three are drawn around the same place.
    """
    of = of or plan()
    age_ns = {PlanStatus.NOMINAL: 80, PlanStatus.HELD: 380, PlanStatus.FALLBACK_STOP: 1250}[
        status
    ] * 10**6
    policy = PublicationPolicy(Parameters.from_mapping({}))
    policy.accept(of, 0)
    now_ns, tick = of.t0_ns + age_ns, 0 if status is PlanStatus.NOMINAL else 1
    published = policy.decide(tick, now_ns, replace(of.ego, stamp_ns=now_ns), 'no frame')
    assert published.status is status
    return published
