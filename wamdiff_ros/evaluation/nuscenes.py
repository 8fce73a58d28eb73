"""Open-loop planning on nuScenes, in both conventions that papers report under the same names.

Six steps of 0.5 s. `at` (UniAD) is the value at 1, 2 and 3 s; `mean` (ST-P3, VAD) is the average
over all steps up to there. Collisions are those of ST-P3's grid, which the others kept: the ego
box is never turned, the grid is coarse, and a step at which the truth itself collides does not
count. So numbers say something only beside numbers of the same convention.
"""

import cv2
import numpy as np

from .footprints import footprint_corners

STEPS = 6
STEP_S = 0.5
HORIZONS_S = (1.0, 2.0, 3.0)
EGO_LENGTH_M, EGO_WIDTH_M = 4.084, 1.85
EGO_AHEAD_M = 0.5  # the middle of the box, from the pose
REACH_M, CELL_M = 50.0, 0.5
CELLS = round(2 * REACH_M / CELL_M)


def at_horizons(values: np.ndarray) -> np.ndarray:
    """Return values [N, 6] of the steps at 1, 2 and 3 s, [N, 3] (UniAD)."""
    return values[:, [round(horizon_s / STEP_S) - 1 for horizon_s in HORIZONS_S]]


def mean_to_horizons(values: np.ndarray) -> np.ndarray:
    """Return the mean over the steps [N, 6] up to 1, 2 and 3 s, [N, 3] (ST-P3, VAD)."""
    counts = [round(horizon_s / STEP_S) for horizon_s in HORIZONS_S]
    return np.stack([values[:, :count].mean(axis=1) for count in counts], axis=1)


def collisions(
    plan_xy_m: np.ndarray, truth_xy_m: np.ndarray, boxes: list[np.ndarray]
) -> np.ndarray:
    """Return for each of six steps whether a plan collides where the truth does not, bool [6].

    `plan_xy_m` and `truth_xy_m` are [6, 2] in base at t0; `boxes` has for each step an array
    [K, 5] of x, y, heading, length and width of the others, in the same frame. NaN collides with
    nobody.
    """
    hit = np.zeros(STEPS, bool)
    for step, others in enumerate(boxes):
        if len(others):
            occupied = occupancy(others)
            hit[step] = _hits(plan_xy_m[step], occupied) and not _hits(truth_xy_m[step], occupied)
    return hit


def occupancy(boxes: np.ndarray) -> np.ndarray:
    """Draw boxes [K, 5] (x, y, heading, length, width) into the grid, bool [x, y] [200, 200].

    Corners are rounded to cells, as ST-P3 does.
    """
    grid = np.zeros((CELLS, CELLS), np.uint8)
    corners = np.round((footprint_corners(boxes) + REACH_M) / CELL_M).astype(np.int32)
    for polygon in corners:
        cv2.fillPoly(grid, [polygon[:, ::-1]], 1)  # OpenCV's first axis is the array's last
    return grid.astype(bool)


def _ego_cells() -> np.ndarray:
    """Return the cells [C, 2] whose middles lie in the ego box of a pose at the origin."""
    middles = (np.arange(CELLS) + 0.5) * CELL_M - REACH_M
    along = np.flatnonzero(np.abs(middles - EGO_AHEAD_M) <= EGO_LENGTH_M / 2)
    across = np.flatnonzero(np.abs(middles) <= EGO_WIDTH_M / 2)
    return np.stack(np.meshgrid(along, across, indexing='ij'), axis=-1).reshape(-1, 2)


def _hits(xy_m: np.ndarray, occupied: np.ndarray) -> bool:
    if not np.isfinite(xy_m).all():
        return False
    # Moved by fractions of a cell and cut off, and held at the border, as ST-P3 does.
    cells = np.clip((_ego_cells() + xy_m / CELL_M).astype(int), 0, CELLS - 1)
    return bool(occupied[cells[:, 0], cells[:, 1]].any())
