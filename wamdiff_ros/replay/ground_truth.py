"""What was driven after a plan: the recording's own odometry, as seen from the plan's start."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

import numpy as np
from scipy.spatial.transform import Rotation

from ..observation.ego_buffer import EgoBuffer, EgoError, interpolate
from ..observation.ego_continuity import break_between
from ..parameters import Parameters
from ..recordings.recording import Recording
from ..types import EgoState

STEPS, STEP_NS = 10, 500_000_000  # 0.5 s … 5 s
DRAWN_NS = 100_000_000  # between points of a way that is drawn


class GroundTruth:
    """The vehicle's states, sorted by stamp; those that the ego buffer refuses are left out.

    Nothing is interpolated across more than `max_gap_ns`, nor across a jump of the pose.
    """

    def __init__(self, states: Iterable[EgoState], max_gap_ns: int, max_jump_m: float) -> None:
        self._max_gap_ns = max_gap_ns
        self._states = [checked for state in states if (checked := _usable(state)) is not None]
        self._stamps_ns = [state.stamp_ns for state in self._states]
        pairs = zip(self._states, self._states[1:], strict=False)
        # Where a drive begins that does not go on from the one before.
        self._breaks = [i for i, pair in enumerate(pairs, 1) if break_between(*pair, max_jump_m)]

    @classmethod
    def of(cls, recording: Recording, parameters: Parameters) -> 'GroundTruth':
        """Return what the recording's odometry says."""
        states = (noun for _, name, noun in recording.motion if name == 'odometry')
        max_gap_ns = round(parameters.max_ego_gap_s * 1e9)
        return cls(states, max_gap_ns, parameters.max_odometry_jump_m)

    def at(self, time_ns: int) -> EgoState | None:
        """Return the state at the time, None where odometry ends or has a gap."""
        index = bisect_left(self._stamps_ns, time_ns)
        if index < len(self._states) and self._stamps_ns[index] == time_ns:
            return self._states[index]
        if index in (0, len(self._states)) or index in self._breaks:
            return None
        before, after = self._states[index - 1 : index + 1]
        if after.stamp_ns - before.stamp_ns > self._max_gap_ns:
            return None
        return interpolate(before, after, time_ns)

    def ahead_of(self, ego: EgoState) -> list[list[float] | None]:
        """Return [x, y, heading] in base at `ego`, every 0.5 s up to 5 s; None where unknown."""
        to_base = Rotation.from_quat(ego.orientation_xyzw).inv()
        drive = self._drive(ego.stamp_ns)
        rows: list[list[float] | None] = []
        for step in range(1, STEPS + 1):
            time_ns = ego.stamp_ns + step * STEP_NS
            state = self.at(time_ns)
            if state is None or self._drive(time_ns) != drive:
                rows.append(None)
                continue
            moved_m = np.subtract(state.position_fixed_m, ego.position_fixed_m)
            x, y, _ = to_base.apply(moved_m)
            turned = (to_base * Rotation.from_quat(state.orientation_xyzw)).as_matrix()
            rows.append([float(x), float(y), float(np.arctan2(turned[1, 0], turned[0, 0]))])
        return rows

    def way_ahead(self, ego: EgoState) -> np.ndarray:
        """Return the way [M, 3] of the 5 s after `ego`, in base, up to a gap or a jump.

        It begins at the vehicle and has a point every 0.1 s, to be drawn.
        """
        way_m, newest_ns, before_ns = [ego.position_fixed_m], ego.stamp_ns, ego.stamp_ns
        index = bisect_right(self._stamps_ns, ego.stamp_ns)
        end_ns = ego.stamp_ns + STEPS * STEP_NS
        while index < len(self._states) and self._stamps_ns[index] <= end_ns:
            stamp_ns = self._stamps_ns[index]
            if index in self._breaks or stamp_ns - before_ns > self._max_gap_ns:
                break
            if stamp_ns - newest_ns >= DRAWN_NS:
                way_m.append(self._states[index].position_fixed_m)
                newest_ns = stamp_ns
            index, before_ns = index + 1, stamp_ns
        to_base = Rotation.from_quat(ego.orientation_xyzw).inv()
        return to_base.apply(np.subtract(way_m, ego.position_fixed_m))

    def _drive(self, time_ns: int) -> int:
        """Return the number of the drive that the newest state by then belongs to."""
        return bisect_right(self._breaks, bisect_right(self._stamps_ns, time_ns) - 1)


def _usable(state: EgoState) -> EgoState | None:
    buffer = EgoBuffer(0, 0)
    try:
        buffer.add(state)
    except EgoError:
        return None
    return buffer.newest()
