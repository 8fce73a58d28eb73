"""What the vision tower said of each camera's newest frames: as many as a prompt shows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..types import CameraFrame
from .engine import ImageFeatures
from .stage_clock import StageClock


@dataclass(frozen=True, eq=False)
class _Seen:
    """One frame; pixels are kept of a camera's newest one only."""

    stamp_ns: int
    rgb: np.ndarray | None
    features: ImageFeatures


class FrameWindow:
    """The frames to show: each is encoded once, ever.

    `frames` of each camera, taken `interval_s` apart, as the checkpoint was trained. Where frames
    do not follow each other like that, the window begins anew with the newest one.
    """

    def __init__(
        self,
        frames: int,
        interval_s: float,
        encode: Callable[[np.ndarray, StageClock], ImageFeatures],
    ):
        self._frames, self._interval_ns = frames, round(interval_s * 1e9)
        self._encode = encode
        self.reset()

    def reset(self) -> None:
        """Forget all frames."""
        self._cameras: dict[str, list[_Seen]] = {}  # oldest first

    def show(
        self, frames: Sequence[CameraFrame], clock: StageClock
    ) -> tuple[list[ImageFeatures], int]:
        """Take the frames of one moment, one of each camera; the same ones again change nothing.

        Returns the features of all frames to show, camera after camera, oldest first, and how
        many had to be encoded.
        """
        cameras, encoded = {}, 0
        for frame in frames:
            seen = self._cameras.get(frame.camera, [])
            if seen and _equal_images(seen[-1].rgb, frame.rgb):
                features = seen[-1].features
            else:
                features = self._encode(frame.rgb, clock)
                encoded += 1
            newest = _Seen(frame.stamp_ns, frame.rgb, features)
            cameras[frame.camera] = [*self._before(seen, frame.stamp_ns), newest]
        self._cameras = cameras
        return [one.features for seen in cameras.values() for one in seen], encoded

    def _before(self, seen: list[_Seen], stamp_ns: int) -> list[_Seen]:
        """Return which of the frames seen so far are shown before one that was taken then."""
        if self._frames == 1 or not seen:
            return []
        step_ns = stamp_ns - seen[-1].stamp_ns
        if step_ns == 0:
            return seen[:-1]
        if not 0.5 <= step_ns / self._interval_ns <= 1.5:
            return []
        return [replace(one, rgb=None) for one in seen[1 - self._frames :]]


def _equal_images(known: np.ndarray, rgb: np.ndarray) -> bool:
    """Compare by content: a camera that stands still may send a frame again."""
    if known.shape != rgb.shape:
        return False
    # A coarse look tells nearly all different images apart.
    return known is rgb or (
        np.array_equal(known[::16, ::16], rgb[::16, ::16]) and np.array_equal(known, rgb)
    )
