"""What a drive along one route was worth, and what many of them were.

Faults come from the world; this file weighs them. The composite follows the PDM score of NAVSIM,
NC · DAC · (5 EP + 5 TTC + 2 C) / 12. NAVSIM judges 4 s at a time, so time to collision and
comfort are the shares of a route's 4 s windows that keep their limits; the gates hold for the
whole route, and progress is the mean pace compared with the expert's on the same route.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.signal import savgol_filter
from scipy.stats import binomtest

WINDOW_S = 4.0
FILTER_SAMPLES = 9  # of the Savitzky-Golay filter, of second order
# Limits of comfort, low and high.
LONGITUDINAL_MPS2 = (-4.05, 2.40)
LATERAL_MPS2 = 4.89
JERK_MPS3 = 8.37
LONGITUDINAL_JERK_MPS3 = 4.13
YAW_RATE_RADPS = 0.95
YAW_ACCELERATION_RADPS2 = 1.93
CONFIDENCE = 0.95


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
    held: float  # share of the steps that followed a plan of an earlier step
    faults: tuple[str, ...]  # in words, in their order

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


def summarise(scores: Sequence[RouteScore]) -> DriveSummary:
    """Add up and average over routes. Raises ValueError for none."""
    if not scores:
        raise ValueError('no routes to summarise')
    successes = sum(score.success for score in scores)
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
    )


def pdm_score(
    no_collision: bool, on_road: bool, progress: float, time_to_collision: float, comfort: float
) -> float:
    """Return NC · DAC · (5 EP + 5 TTC + 2 C) / 12."""
    return no_collision * on_road * (5 * progress + 5 * time_to_collision + 2 * comfort) / 12


def comfortable(speed_mps: np.ndarray, yaw_rate_radps: np.ndarray, step_s: float) -> np.ndarray:
    """Return for every step [N] whether acceleration, jerk and turning are within the limits."""
    if len(speed_mps) < FILTER_SAMPLES:
        return np.ones(len(speed_mps), bool)

    def slope(values):
        return savgol_filter(values, FILTER_SAMPLES, 2, deriv=1, delta=step_s)

    longitudinal = slope(speed_mps)
    lateral = speed_mps * yaw_rate_radps
    longitudinal_jerk, lateral_jerk = slope(longitudinal), slope(lateral)
    low, high = LONGITUDINAL_MPS2
    return (
        (low <= longitudinal)
        & (longitudinal <= high)
        & (np.abs(lateral) <= LATERAL_MPS2)
        & (np.hypot(longitudinal_jerk, lateral_jerk) <= JERK_MPS3)
        & (np.abs(longitudinal_jerk) <= LONGITUDINAL_JERK_MPS3)
        & (np.abs(yaw_rate_radps) <= YAW_RATE_RADPS)
        & (np.abs(slope(yaw_rate_radps)) <= YAW_ACCELERATION_RADPS2)
    )


def share_of_windows(kept: np.ndarray, step_s: float) -> float:
    """Return the share of 4 s windows in which all steps kept a limit; a short rest counts too."""
    if not len(kept):
        return 1.0
    size = round(WINDOW_S / step_s)
    windows = [kept[i : i + size].all() for i in range(0, len(kept), size)]
    return float(np.mean(windows))
