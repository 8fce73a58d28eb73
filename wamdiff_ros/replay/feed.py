"""Puts a recording into the planner's buffers, stamp by stamp, by the rules of the node."""

import heapq
from collections import Counter
from collections.abc import Callable
from typing import Any

from ..observation.frame_buffer import EncodedFrame
from ..observation.synchronizer import Synchronizer
from ..parameters import Parameters
from ..recordings.recording import Recording


class Feed:
    """Goes through `recording` once; `reset(reason)` is called when the odometry does not go on.

    `refused` counts the messages that a buffer did not take, by the reason.
    """

    def __init__(
        self,
        recording: Recording,
        synchronizer: Synchronizer,
        parameters: Parameters,
        reset: Callable[[str], None],
    ) -> None:
        self.refused: Counter[str] = Counter()
        self._synchronizer = synchronizer
        self._max_jump_m = parameters.max_odometry_jump_m
        self._reset = reset
        self._motion = recording.motion
        self._moved = 0
        self._pictures = recording.pictures()
        self._least_ahead_ns = recording.least_stamps_ahead()
        self._read = 0
        self._waiting: list[tuple[int, int, EncodedFrame]] = []  # heap of (stamp, number, frame)

    def until(self, time_ns: int) -> None:
        """Store everything that is stamped up to `time_ns`."""
        self._read_until(time_ns)
        never_ns = time_ns + 1
        while True:
            moves = self._moved < len(self._motion)
            motion_ns = self._motion[self._moved][0] if moves else never_ns
            picture_ns = self._waiting[0][0] if self._waiting else never_ns
            if min(motion_ns, picture_ns) > time_ns:
                return
            if motion_ns <= picture_ns:
                self._move(*self._motion[self._moved][1:])
                self._moved += 1
            else:
                frame = heapq.heappop(self._waiting)[2]
                self._synchronizer.frames[frame.camera].add(frame)

    def _read_until(self, time_ns: int) -> None:
        """Read pictures until none that is stamped up to `time_ns` is left in the file."""
        while self._read < len(self._least_ahead_ns) and self._ahead_ns() <= time_ns:
            frame = next(self._pictures)
            if frame is not None:
                heapq.heappush(self._waiting, (frame.stamp_ns, self._read, frame))
            self._read += 1

    def _ahead_ns(self) -> int:
        return self._least_ahead_ns[self._read]

    def _move(self, name: str, noun: Any) -> None:
        ego = self._synchronizer.ego
        try:
            if name == 'navigation_command':
                self._synchronizer.command = noun
            elif name == 'acceleration':
                ego.add_acceleration(*noun)
            else:
                if broken := ego.break_before(noun, self._max_jump_m):
                    self._reset(broken)
                ego.add(noun)
        except ValueError as error:
            self.refused[f'{name}: {error}'] += 1
