"""Many boxes on the ground at once: arrays [..., 5] of x, y, heading, length and width.

`simulation/world.py` has the same test for one pair, which is faster there; a test compares them.
"""

import numpy as np

_CORNERS = np.array([(0.5, 0.5), (0.5, -0.5), (-0.5, -0.5), (-0.5, 0.5)])  # of length and width


def footprint_corners(boxes: np.ndarray) -> np.ndarray:
    """Return corners [..., 4, 2] of footprints [..., 5] from the front left on, clockwise."""
    along, across = np.moveaxis(boxes[..., None, 3:5] * _CORNERS, -1, 0)
    cos, sin = np.cos(boxes[..., 2:3]), np.sin(boxes[..., 2:3])
    return np.stack(
        (
            boxes[..., 0:1] + along * cos - across * sin,
            boxes[..., 1:2] + along * sin + across * cos,
        ),
        axis=-1,
    )


def footprints_overlap(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return bool [...] whether footprints [..., 5] share ground, by separating axes.

    The leading axes are broadcast against each other. NaN shares ground with nothing.
    """
    dx, dy = other[..., 0] - one[..., 0], other[..., 1] - one[..., 1]
    turn = other[..., 2] - one[..., 2]
    cos, sin = np.abs(np.cos(turn)), np.abs(np.sin(turn))
    overlap = np.ones(dx.shape, bool)
    for own, its in ((one, other), (other, one)):
        ahead_x, ahead_y = np.cos(own[..., 2]), np.sin(own[..., 2])
        along, across = np.abs(dx * ahead_x + dy * ahead_y), np.abs(dy * ahead_x - dx * ahead_y)
        length, width = its[..., 3], its[..., 4]
        overlap &= along <= (own[..., 3] + length * cos + width * sin) / 2
        overlap &= across <= (own[..., 4] + length * sin + width * cos) / 2
    return overlap
