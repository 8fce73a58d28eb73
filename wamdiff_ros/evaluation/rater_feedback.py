"""The Rater Feedback Score of the Waymo Open Dataset's end-to-end driving challenge (WOD-E2E).

People rated up to three trajectories per scene. A plan gets the label of a rated trajectory while
it stays within a trust region around it at 3 s and at 5 s, and loses a factor of ten for each
further width of that region (Xu et al., WOD-E2E, 2025, section 4).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

RATE_HZ = 4.0
POINTS = 20  # t = 0.25 … 5.0 s
RATERS = 3
JUDGED = (11, 19)  # the points at 3 s and at 5 s
LATERAL_M = np.array([1.0, 1.8])  # half widths of the trust region there, at full scale
LONGITUDINAL_M = np.array([4.0, 7.2])
SLOW_MPS, FAST_MPS = 1.4, 11.0  # below and above, the scale is 0.5 and 1
FLOOR = 4.0  # of a plan outside of all trust regions
DECAY = 0.1


@dataclass(frozen=True)
class RaterFeedback:
    """`score` is 0 … 10; a plan within a trust region at both times has no floor."""

    score: float
    in_trust_region: bool  # of several modes: the most probable one


def rater_feedback_score(
    plan_xy_m: np.ndarray,
    raters_xy_m: Sequence[np.ndarray],
    labels: Sequence[float],
    speed_mps: float,
    probabilities: Sequence[float] | None = None,
) -> RaterFeedback:
    """Score a plan [T, 2], or M modes [M, T, 2] with their `probabilities`, in base at t0.

    Points are 0.25 s apart, the first at 0.25 s; `raters_xy_m` are [T, 2] alike, `labels` 0 … 10,
    `speed_mps` is that at t0. The score of several modes is the sum of probability times score.
    Shorter trajectories repeat their last point, longer ones are cut; so are raters, to three.
    Raises ValueError for none or not as many labels.
    """
    modes = np.asarray(plan_xy_m, float)
    modes = modes[None] if modes.ndim == 2 else modes
    weights = np.ones(len(modes)) if probabilities is None else np.asarray(probabilities, float)
    if not len(raters_xy_m) or len(raters_xy_m) != len(labels):
        raise ValueError(f'{len(raters_xy_m)} rated trajectories with {len(labels)} labels')
    if len(weights) != len(modes) or (probabilities is None and len(modes) > 1):
        raise ValueError(f'{len(modes)} modes need as many probabilities')
    modes = np.stack([_padded(mode, POINTS) for mode in modes])
    raters = _padded(np.stack([_padded(one, POINTS) for one in raters_xy_m]), RATERS)
    label = _padded(np.asarray(labels, float), RATERS)

    away = _distance(modes, raters, trust_scale(speed_mps))  # [modes, raters, times]
    scores = (label[:, None] * DECAY ** np.maximum(away - 1, 0)).max(axis=1).mean(axis=1)
    inside = (away <= 1).all(axis=2).any(axis=1)
    scores = np.where(inside, scores, np.maximum(scores, FLOOR))
    return RaterFeedback(float(weights @ scores), bool(inside[np.argmax(weights)]))


def trust_scale(speed_mps: float) -> float:
    """Return by how much the speed at t0 narrows the trust region, 0.5 … 1."""
    return float(np.clip(0.5 + 0.5 * (speed_mps - SLOW_MPS) / (FAST_MPS - SLOW_MPS), 0.5, 1.0))


def _distance(modes: np.ndarray, raters: np.ndarray, scale: float) -> np.ndarray:
    """Return distances [M, R, 2] of modes [M, 20, 2] from raters [R, 20, 2] at the judged times.

    In half widths of the trust region, which lies along the rater's last displacement.
    """
    ahead = _directions(raters)[:, JUDGED]  # [R, 2, 2]
    offset = modes[:, None, JUDGED] - raters[:, JUDGED]  # [M, R, 2, 2]
    along = np.abs((offset * ahead).sum(axis=-1))
    across = np.abs(offset[..., 1] * ahead[..., 0] - offset[..., 0] * ahead[..., 1])
    return np.maximum(along / (scale * LONGITUDINAL_M), across / (scale * LATERAL_M))


def _directions(raters: np.ndarray) -> np.ndarray:
    """Return unit vectors [R, T, 2] of the last displacement, kept while there is none."""
    steps = np.diff(raters, axis=1, prepend=raters[:, :1])
    length = np.linalg.norm(steps, axis=2)
    ahead = np.empty_like(raters)
    last = np.broadcast_to([1.0, 0.0], (len(raters), 2))
    for point in range(raters.shape[1]):
        moving = length[:, point, None] > 0
        unit = steps[:, point] / np.where(moving, length[:, point, None], 1.0)
        last = np.where(moving, unit, last)
        ahead[:, point] = last
    return ahead


def _padded(rows: np.ndarray, count: int) -> np.ndarray:
    """Cut or repeat the last of rows [N, ...] to [count, ...]."""
    rows = np.asarray(rows, float)
    return rows[np.minimum(np.arange(count), len(rows) - 1)]
