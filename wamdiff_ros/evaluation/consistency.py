"""How far plans are from the plans before them, at equal times and in the fixed frame."""

import numpy as np


def shifts_m(
    t0_ns: np.ndarray, time_s: np.ndarray, xy_fixed_m: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and largest distance [N] of each of N plans from the one before it.

    `t0_ns` [N] rises, `time_s` [T] is from t0 on and rises, `xy_fixed_m` is [N, T, 2] in the fixed
    frame. Compared are the newer plan's points at times that the older one covers; NaN where there
    are none, where a plan is missing (NaN), and for the first.
    """
    mean, most = np.full((2, len(t0_ns)), np.nan)
    for i in range(1, len(t0_ns)):
        at_s = time_s + (t0_ns[i] - t0_ns[i - 1]) * 1e-9
        both = at_s <= time_s[-1] + 1e-9
        if not both.any():
            continue
        before = np.stack([np.interp(at_s[both], time_s, axis) for axis in xy_fixed_m[i - 1].T])
        distance_m = np.hypot(*(xy_fixed_m[i, both].T - before))
        mean[i], most[i] = distance_m.mean(), distance_m.max()
    return mean, most
