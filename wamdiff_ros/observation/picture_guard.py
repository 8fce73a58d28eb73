"""Notices a camera that shows the same picture while the vehicle drives on."""

import math

import numpy as np

from ..types import CameraFrame, EgoState


class PictureGuard:
    """Compares each picture of one camera with the one before it.

    `check` is for one thread, `reset` for any.

    A driver that hangs goes on sending its last picture, under new stamps. A real picture never
    comes twice while the vehicle moves: there is noise, and the world passes by. At a standstill
    nothing is claimed, for a simulated world repeats itself there.
    """

    def __init__(self, max_distance_m: float):
        self._max_distance_m = max_distance_m  # 0: never complain
        self._first: tuple[CameraFrame, EgoState] | None = None  # that showed this picture

    def check(self, frame: CameraFrame, ego: EgoState) -> str:
        """Return what is wrong with `frame`, seen with the vehicle at `ego`, or ''."""
        known = self._first  # read once: a reset comes from another thread
        if known is None or not np.array_equal(frame.rgb, known[0].rgb):
            self._first = (frame, ego)
            return ''
        first, ego_then = known
        distance_m = math.dist(ego.position_fixed_m, ego_then.position_fixed_m)
        if not self._max_distance_m or distance_m <= self._max_distance_m:
            return ''
        duration_s = (frame.stamp_ns - first.stamp_ns) * 1e-9
        return (
            f'camera {frame.camera} has shown one picture for {duration_s:.2f} s and '
            f'{distance_m:.1f} m; is its driver frozen?'
        )

    def reset(self) -> None:
        """Forget the last picture."""
        self._first = None
