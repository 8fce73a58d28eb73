"""The newest frames of one camera, still encoded."""

import threading
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import median_low

import numpy as np

PERIODS_KEPT = 15  # whose median is the camera's period
MIN_PERIODS = 5


@dataclass(frozen=True, eq=False)
class EncodedFrame:
    """One received image. `decode` returns its RGB uint8 [H, W, 3] or raises ImageError.

    Callbacks wrap the message, `partial(decode_raw, message.encoding, …)`; the inference thread
    calls `decode`, for the few frames that are used.
    """

    stamp_ns: int
    camera: str
    decode: Callable[[], np.ndarray]


@dataclass(frozen=True)
class FrameCounters:
    """What has happened to the frames of one camera since start-up."""

    received: int = 0
    duplicate: int = 0  # stamp already there: not stored
    out_of_order: int = 0  # older than one received before: stored in its place
    overwritten: int = 0  # pushed out by newer frames
    missing: int = 0  # never arrived, by the gaps between the stamps of those that did
    undecodable: int = 0
    last_error: str = ''  # of the newest undecodable frame


class FrameBuffer:
    """At most `capacity` frames of one camera, sorted by stamp. Thread-safe."""

    def __init__(self, capacity: int):
        if capacity < 1:
            raise ValueError(f'capacity {capacity} of a frame buffer is below 1')
        self._capacity = capacity
        self._frames: list[EncodedFrame] = []
        self._newest_ns: int | None = None
        self._periods_ns: deque[int] = deque(maxlen=PERIODS_KEPT)
        self._counters = FrameCounters()
        self._lock = threading.Lock()

    def add(self, frame: EncodedFrame) -> None:
        """Store `frame`; the oldest one gives way when the buffer is full."""
        with self._lock:
            at = bisect_left(self._frames, frame.stamp_ns, key=_stamp_ns)
            self._count(received=1)
            if at < len(self._frames):
                if self._frames[at].stamp_ns == frame.stamp_ns:
                    self._count(duplicate=1)
                    return
                self._count(out_of_order=1)
            self._look_for_gap(frame.stamp_ns)
            self._frames.insert(at, frame)
            if len(self._frames) > self._capacity:
                del self._frames[0]
                self._count(overwritten=1)

    def newest_before(self, time_ns: int) -> EncodedFrame | None:
        """Return the newest frame with a stamp of at most `time_ns`."""
        with self._lock:
            at = bisect_right(self._frames, time_ns, key=_stamp_ns)
            return self._frames[at - 1] if at else None

    def nearest(self, time_ns: int, latest_ns: int | None = None) -> EncodedFrame | None:
        """Return the frame nearest to `time_ns`, of those stamped at most `latest_ns`."""
        with self._lock:
            frames = [
                frame for frame in self._frames if latest_ns is None or frame.stamp_ns <= latest_ns
            ]
        return min(frames, key=lambda frame: abs(frame.stamp_ns - time_ns), default=None)

    def oldest(self) -> EncodedFrame | None:
        """Return the oldest frame held."""
        with self._lock:
            return self._frames[0] if self._frames else None

    def reject(self, frame: EncodedFrame, reason: str) -> None:
        """Take out a frame that could not be decoded."""
        with self._lock:
            if frame in self._frames:
                self._frames.remove(frame)
            self._count(undecodable=1)
            self._counters = replace(self._counters, last_error=reason)

    def clear(self) -> None:
        """Forget all frames; the counters go on."""
        with self._lock:
            self._frames.clear()
            self._newest_ns = None

    def counters(self) -> FrameCounters:
        """Return the counters of this moment."""
        with self._lock:
            return self._counters

    def __len__(self) -> int:
        with self._lock:
            return len(self._frames)

    def _look_for_gap(self, stamp_ns: int) -> None:
        """Count the frames that should lie between the newest one and this one."""
        newest_ns, missing = self._newest_ns, self._counters.missing
        if newest_ns is not None and stamp_ns < newest_ns:
            self._count(missing=-min(missing, 1))  # it was only late
            return
        if stamp_ns == newest_ns:
            return  # sent again after it was rejected: that is no period
        self._newest_ns = stamp_ns
        if newest_ns is None:
            return
        gap_ns = stamp_ns - newest_ns
        if len(self._periods_ns) >= MIN_PERIODS:
            self._count(missing=max(round(gap_ns / median_low(self._periods_ns)) - 1, 0))
        self._periods_ns.append(gap_ns)

    def _count(self, **more: int) -> None:
        now = {name: getattr(self._counters, name) + n for name, n in more.items()}
        self._counters = replace(self._counters, **now)


def _stamp_ns(frame: EncodedFrame) -> int:
    return frame.stamp_ns
