"""How far plans are from what was driven: displacement, heading, and the truth's own directions.

The times of plans and truth are the same ones; a plan or a truth that does not reach a horizon is
NaN up to there and has no error at that horizon. What a missing plan counts for is not decided
here.
"""

from dataclasses import dataclass

import numpy as np

STEP_S = 0.5  # between the times that are compared, the interval of waypoints
HORIZONS_S = (1.0, 2.0, 3.0, 4.0, 5.0)
TIMES_S = np.arange(1, 11) * STEP_S  # [10], 0.5 … 5.0
MISS_M = 2.0  # a final error above is a miss (Argoverse; Chang et al. 2019, section 5)


@dataclass(frozen=True, eq=False)
class DisplacementErrors:
    """Errors of N plans at H horizons, all [N, H]; NaN where plan or truth does not reach."""

    ade_m: np.ndarray  # mean distance over the times up to the horizon
    fde_m: np.ndarray  # distance at the horizon
    heading_rad: np.ndarray  # mean absolute error over the times up to the horizon, 0 … pi
    longitudinal_m: np.ndarray  # at the horizon, along the truth's heading there: ahead above 0
    lateral_m: np.ndarray  # at the horizon, left of the truth above 0


def displacement_errors(
    plan_xy_m: np.ndarray,
    plan_heading_rad: np.ndarray,
    truth_xy_m: np.ndarray,
    truth_heading_rad: np.ndarray,
    step_s: float = STEP_S,
    horizons_s: tuple[float, ...] = HORIZONS_S,
) -> DisplacementErrors:
    """Compare N plans with the truth at T times `step_s`, 2 `step_s`, …

    Positions are [N, T, 2] and headings [N, T], both in one frame for plan and truth. ADE and FDE
    as in Pellegrini et al. (2009); a horizon beyond the T times has no errors.
    """
    offset_m = offsets_in(truth_heading_rad, plan_xy_m - truth_xy_m)
    distance_m = np.linalg.norm(offset_m, axis=-1)
    turned_rad = np.abs(wrapped_rad(plan_heading_rad - truth_heading_rad))
    none = np.full(len(plan_xy_m), np.nan)
    columns: list[list[np.ndarray]] = []
    for horizon_s in horizons_s:
        steps = round(horizon_s / step_s)
        if steps > plan_xy_m.shape[1]:
            columns.append([none] * 5)
            continue
        columns.append(
            [
                distance_m[:, :steps].mean(axis=1),
                distance_m[:, steps - 1],
                turned_rad[:, :steps].mean(axis=1),
                *offset_m[:, steps - 1].T,
            ]
        )
    return DisplacementErrors(*(np.stack(one, axis=1) for one in zip(*columns, strict=True)))


def offsets_in(heading_rad: np.ndarray, offset_m: np.ndarray) -> np.ndarray:
    """Return offsets [..., 2] along and left of headings [...]."""
    cos, sin = np.cos(heading_rad), np.sin(heading_rad)
    x, y = offset_m[..., 0], offset_m[..., 1]
    return np.stack((x * cos + y * sin, y * cos - x * sin), axis=-1)


def wrapped_rad(angle_rad: np.ndarray) -> np.ndarray:
    """Return angles [...] in -pi … pi."""
    return np.arctan2(np.sin(angle_rad), np.cos(angle_rad))
