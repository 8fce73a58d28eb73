"""Comfort: whether a motion keeps limits of acceleration, jerk and turning, and keeps to itself.

The limits are nuPlan's, which NAVSIM's PDM score took over; derivatives come from a Savitzky-Golay
filter of second order. Motions are speeds and yaw rates [..., T] at equal steps; reverse is
negative speed.
"""

import numpy as np
from scipy.signal import savgol_filter

FILTER_SAMPLES = 9
# Limits of comfort, low and high.
LONGITUDINAL_MPS2 = (-4.05, 2.40)
LATERAL_MPS2 = 4.89
JERK_MPS3 = 8.37
LONGITUDINAL_JERK_MPS3 = 4.13
YAW_RATE_RADPS = 0.95
YAW_ACCELERATION_RADPS2 = 1.93
# Extended comfort: limits of the root mean square difference between consecutive plans.
EXTENDED = {'acceleration': 0.7, 'jerk': 0.5, 'yaw_rate': 0.1, 'yaw_acceleration': 0.1}


def comfortable(speed_mps: np.ndarray, yaw_rate_radps: np.ndarray, step_s: float) -> np.ndarray:
    """Return for every step [..., T] whether acceleration, jerk and turning are within the limits.

    Motions too short for the filter are comfortable; NaN is not.
    """
    if speed_mps.shape[-1] < FILTER_SAMPLES:
        return np.ones(speed_mps.shape, bool)
    longitudinal = _slope(speed_mps, step_s)
    lateral = speed_mps * yaw_rate_radps
    longitudinal_jerk, lateral_jerk = _slope(longitudinal, step_s), _slope(lateral, step_s)
    low, high = LONGITUDINAL_MPS2
    return (
        (low <= longitudinal)
        & (longitudinal <= high)
        & (np.abs(lateral) <= LATERAL_MPS2)
        & (np.hypot(longitudinal_jerk, lateral_jerk) <= JERK_MPS3)
        & (np.abs(longitudinal_jerk) <= LONGITUDINAL_JERK_MPS3)
        & (np.abs(yaw_rate_radps) <= YAW_RATE_RADPS)
        & (np.abs(_slope(yaw_rate_radps, step_s)) <= YAW_ACCELERATION_RADPS2)
    )


def motion_difference(
    one: tuple[np.ndarray, np.ndarray], other: tuple[np.ndarray, np.ndarray], step_s: float
) -> dict[str, np.ndarray]:
    """Return root mean square differences [...] of two motions (speed, yaw rate) [..., T].

    Of the magnitudes of acceleration and jerk, of yaw rate and yaw acceleration: NAVSIM v2's
    extended comfort.
    """
    differences = zip(_features(*one, step_s), _features(*other, step_s), strict=True)
    return {
        name: np.sqrt(np.mean((mine - its) ** 2, axis=-1))
        for name, (mine, its) in zip(EXTENDED, differences, strict=True)
    }


def alike(difference: dict[str, np.ndarray]) -> np.ndarray:
    """Return bool [...]: where all differences of `motion_difference` are within their limits."""
    return np.all([difference[name] <= limit for name, limit in EXTENDED.items()], axis=0)


def _features(speed_mps: np.ndarray, yaw_rate_radps: np.ndarray, step_s: float) -> tuple:
    longitudinal, lateral = _slope(speed_mps, step_s), speed_mps * yaw_rate_radps
    return (
        np.hypot(longitudinal, lateral),
        np.hypot(_slope(longitudinal, step_s), _slope(lateral, step_s)),
        yaw_rate_radps,
        _slope(yaw_rate_radps, step_s),
    )


def _slope(values: np.ndarray, step_s: float) -> np.ndarray:
    known = np.isfinite(values).all(axis=-1, keepdims=True)
    slope = savgol_filter(np.where(known, values, 0), FILTER_SAMPLES, 2, deriv=1, delta=step_s)
    return np.where(known, slope, np.nan)
