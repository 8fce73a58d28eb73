"""Recent motion of the vehicle, and its state at any time in between."""

import math
import threading
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, replace

import numpy as np
from scipy.spatial.transform import Rotation, Slerp

from ..types import EgoState
from .ego_continuity import break_between, disagreement
from .not_ready import NotReady

ACCELERATION_WINDOW_NS = 500_000_000  # of velocity, to derive acceleration from
MIN_WINDOW_NS = 200_000_000  # a shorter history says nothing about acceleration
MAX_ACCELERATION_MPS2 = 100.0
MAX_SPEED_MPS = 150.0  # no vehicle on a road is faster, but numbers without a sense are
MAX_YAW_RATE_RADPS = 10.0
MAX_POSITION_M = 1e8  # farther than any frame on Earth reaches


class EgoError(ValueError):
    """An ego state was refused; the message names the value and the remedy."""


@dataclass(frozen=True)
class EgoCounters:
    """What has happened to the ego messages since start-up."""

    received: int = 0
    duplicate: int = 0  # stamp already there: not stored
    refused: int = 0
    last_error: str = ''  # of the newest refused message


class EgoBuffer:
    """Ego states of the last `duration_ns`, sorted by stamp. Thread-safe.

    `max_gap_ns` is the farthest that is interpolated across, or extrapolated beyond the newest.
    """

    def __init__(self, duration_ns: int, max_gap_ns: int):
        self._duration_ns = duration_ns
        self._max_gap_ns = max_gap_ns
        self._states: list[EgoState] = []
        self._accelerations: list[tuple[int, float, float]] = []
        self._counters = EgoCounters()
        self._lock = threading.Lock()

    def add(self, state: EgoState) -> None:
        """Store `state`; its acceleration is not used.

        Raises EgoError, with nothing stored, for values that are not finite, for a speed beyond
        any vehicle's, for a quaternion more than 10 % off unit norm, and when the frames differ
        from those of the states held: then the caller clears the stream and adds again.
        """
        with self._lock:
            self._count(received=1)
            try:
                state = _checked(state, self._states[-1] if self._states else None)
            except EgoError as error:
                self._count(refused=1)
                self._counters = replace(self._counters, last_error=str(error))
                raise
            if not _insert(self._states, state, state.stamp_ns, _state_stamp_ns):
                self._count(duplicate=1)
            self._forget_old(self._states, _state_stamp_ns)

    def break_before(self, state: EgoState, max_jump_m: float) -> str:
        """Say why `state` does not go on from the newest one held, or ''.

        Then the caller clears the stream before it adds the state; see `break_between`.
        """
        newest = self.newest()
        if newest is None or state.stamp_ns <= newest.stamp_ns:
            return ''
        try:
            state = _checked(state, None)
        except EgoError:
            return ''  # never becomes part of the stream
        return break_between(newest, state, max_jump_m)

    def disagreement(self) -> str:
        """Say by how much poses and twists differ, or ''; see ego_continuity.py."""
        with self._lock:
            states = list(self._states)
        return disagreement(states) if states else ''

    def add_acceleration(self, stamp_ns: int, forward_mps2: float, left_mps2: float) -> None:
        """Store a measured acceleration in the base frame.

        From the first one on, states carry measured accelerations instead of derived ones. Hence
        one without a state near it must not get in, or nothing would be planned any more: before
        the first state it is ignored, and one older than the history is refused. Raises EgoError
        for that, and for values that are not finite or that no vehicle reaches.
        """
        with self._lock:
            if not self._states:
                return
            behind_s = (self._states[-1].stamp_ns - stamp_ns) * 1e-9
            reason = ''
            # A NaN is not below the limit either.
            if not math.hypot(forward_mps2, left_mps2) < MAX_ACCELERATION_MPS2:
                reason = (
                    f'acceleration ({forward_mps2}, {left_mps2}) is not below '
                    f'{MAX_ACCELERATION_MPS2:g} m/s^2; check its source and unit'
                )
            elif behind_s * 1e9 > self._duration_ns:
                reason = f'acceleration is {behind_s:.3f} s older than odometry; check the clocks'
            if reason:
                self._count(refused=1)
                self._counters = replace(self._counters, last_error=reason)
                raise EgoError(reason)
            sample = (stamp_ns, float(forward_mps2), float(left_mps2))
            _insert(self._accelerations, sample, stamp_ns, _sample_stamp_ns)
            self._forget_old(self._accelerations, _sample_stamp_ns)

    def at(self, time_ns: int) -> EgoState:
        """Return the state at `time_ns`, interpolated between its neighbours.

        Beyond the newest state, velocity and yaw rate are taken as constant. Raises NotReady
        when the neighbours are too far apart or the newest state is too old.
        """
        with self._lock:
            states, accelerations = list(self._states), list(self._accelerations)
        state = self._motion_at(states, time_ns)
        if accelerations:
            acceleration = self._measured_at(accelerations, time_ns)
        else:
            acceleration = _derived_acceleration(states, state)
        return replace(state, acceleration_base_mps2=acceleration)

    def newest(self) -> EgoState | None:
        """Return the newest state as it was added."""
        with self._lock:
            return self._states[-1] if self._states else None

    def newest_before(self, time_ns: int) -> EgoState | None:
        """Return the newest state with a stamp of at most `time_ns`, as it was added."""
        with self._lock:
            at = bisect_right(self._states, time_ns, key=_state_stamp_ns)
            return self._states[at - 1] if at else None

    def newest_acceleration_ns(self) -> int | None:
        """Return the stamp of the newest measured acceleration."""
        with self._lock:
            return self._accelerations[-1][0] if self._accelerations else None

    def clear(self) -> None:
        """Forget all states and accelerations; the counters go on."""
        with self._lock:
            self._states.clear()
            self._accelerations.clear()

    def counters(self) -> EgoCounters:
        """Return the counters of this moment."""
        with self._lock:
            return self._counters

    def __len__(self) -> int:
        with self._lock:
            return len(self._states)

    def _motion_at(self, states: list[EgoState], time_ns: int) -> EgoState:
        before, after = self._around('odometry', states, _state_stamp_ns, time_ns)
        if before.stamp_ns == time_ns:
            return before
        if after is None:
            return _extrapolate(before, time_ns)
        return interpolate(before, after, time_ns)

    def _measured_at(self, samples: list, time_ns: int) -> tuple[float, float]:
        before, after = self._around('acceleration', samples, _sample_stamp_ns, time_ns)
        if after is None or before[0] == time_ns:
            return before[1:]
        share = (time_ns - before[0]) / (after[0] - before[0])
        return _mix(before[1:], after[1:], share)

    def _around(self, what: str, entries: list, stamp_ns, time_ns: int):
        """Return the neighbours (before, after) of `time_ns`, after = None beyond the newest."""
        if not entries:
            raise NotReady(f'no {what} yet')
        at = bisect_right(entries, time_ns, key=stamp_ns)
        if at == 0:
            ahead_s = (stamp_ns(entries[0]) - time_ns) * 1e-9
            raise NotReady(f'{what} begins {ahead_s:.3f} s after t0')
        before, after = entries[at - 1], entries[at] if at < len(entries) else None
        if stamp_ns(before) == time_ns:
            return before, after
        if after is None:
            beyond_ns = time_ns - stamp_ns(before)
            if beyond_ns > self._max_gap_ns:
                raise NotReady(f'{what} ends {self._over_limit(beyond_ns)} before t0')
        elif stamp_ns(after) - stamp_ns(before) > self._max_gap_ns:
            gap_ns = stamp_ns(after) - stamp_ns(before)
            raise NotReady(f'{what} has a gap of {self._over_limit(gap_ns)} around t0')
        return before, after

    def _over_limit(self, duration_ns: int) -> str:
        return f'{duration_ns * 1e-9:.3f} s (limit {self._max_gap_ns * 1e-9:.3f} s)'

    def _forget_old(self, entries: list, stamp_ns) -> None:
        oldest_ns = stamp_ns(entries[-1]) - self._duration_ns
        del entries[: bisect_left(entries, oldest_ns, key=stamp_ns)]

    def _count(self, **more: int) -> None:
        now = {name: getattr(self._counters, name) + n for name, n in more.items()}
        self._counters = replace(self._counters, **now)


def _state_stamp_ns(state: EgoState) -> int:
    return state.stamp_ns


def _sample_stamp_ns(sample: tuple[int, float, float]) -> int:
    return sample[0]


def _insert(entries: list, entry, stamp_ns: int, key) -> bool:
    """Insert by stamp; False when the stamp is there already."""
    at = bisect_left(entries, stamp_ns, key=key)
    if at < len(entries) and key(entries[at]) == stamp_ns:
        return False
    entries.insert(at, entry)
    return True


def _checked(state: EgoState, previous: EgoState | None) -> EgoState:
    """Return `state` with a unit quaternion, or raise EgoError."""
    for name in (
        'position_fixed_m',
        'orientation_xyzw',
        'velocity_base_mps',
        'yaw_rate_radps',
    ):
        value = getattr(state, name)
        if not np.all(np.isfinite(value)):
            raise EgoError(f'odometry: {name} {value} is not finite; check its source')
    speed_mps = math.hypot(*state.velocity_base_mps)
    if speed_mps > MAX_SPEED_MPS:
        raise EgoError(
            f'odometry: velocity_base_mps {state.velocity_base_mps} is faster than '
            f'{MAX_SPEED_MPS:g} m/s; check its source and unit'
        )
    if abs(state.yaw_rate_radps) > MAX_YAW_RATE_RADPS:
        raise EgoError(
            f'odometry: yaw_rate_radps {state.yaw_rate_radps} is faster than '
            f'{MAX_YAW_RATE_RADPS:g} rad/s; check its source and unit'
        )
    if max(map(abs, state.position_fixed_m)) > MAX_POSITION_M:
        raise EgoError(
            f'odometry: position_fixed_m {state.position_fixed_m} is farther than '
            f'{MAX_POSITION_M:g} m; check its source'
        )
    norm = math.hypot(*state.orientation_xyzw)
    if not 0.9 <= norm <= 1.1:
        raise EgoError(
            f'odometry: orientation {state.orientation_xyzw} has norm {norm:.3g}, '
            'publish a unit quaternion'
        )
    if previous is not None:
        was = (previous.fixed_frame, previous.base_frame)
        now = (state.fixed_frame, state.base_frame)
        if now != was:
            raise EgoError(
                f'odometry: frames changed from {was[0]!r}, {was[1]!r} to {now[0]!r}, {now[1]!r}; '
                'let one source publish on the topic'
            )
    x, y, z, w = (float(value) / norm for value in state.orientation_xyzw)
    return replace(state, orientation_xyzw=(x, y, z, w))


def _mix(a: tuple, b: tuple, share: float) -> tuple:
    return tuple(x + share * (y - x) for x, y in zip(a, b, strict=True))


def interpolate(before: EgoState, after: EgoState, time_ns: int) -> EgoState:
    """Return the state in between."""
    share = (time_ns - before.stamp_ns) / (after.stamp_ns - before.stamp_ns)
    rotations = Rotation.from_quat([before.orientation_xyzw, after.orientation_xyzw])
    return replace(
        before,
        stamp_ns=time_ns,
        position_fixed_m=_mix(before.position_fixed_m, after.position_fixed_m, share),
        orientation_xyzw=_quaternion(Slerp([0.0, 1.0], rotations)(share)),
        velocity_base_mps=_mix(before.velocity_base_mps, after.velocity_base_mps, share),
        yaw_rate_radps=_mix((before.yaw_rate_radps,), (after.yaw_rate_radps,), share)[0],
        acceleration_base_mps2=_mix(
            before.acceleration_base_mps2, after.acceleration_base_mps2, share
        ),
    )


def _extrapolate(state: EgoState, time_ns: int) -> EgoState:
    """Drive on with constant velocity and yaw rate."""
    duration_s = (time_ns - state.stamp_ns) * 1e-9
    angle = state.yaw_rate_radps * duration_s
    # A vector that turns from 0 to `angle` at a constant rate has this mean (chord of the arc).
    chord = np.sinc(angle / (2 * np.pi))
    cos, sin = chord * math.cos(angle / 2), chord * math.sin(angle / 2)
    forward_mps, left_mps = state.velocity_base_mps
    moved_base_m = duration_s * np.array(
        [cos * forward_mps - sin * left_mps, sin * forward_mps + cos * left_mps, 0.0]
    )
    orientation = Rotation.from_quat(state.orientation_xyzw)
    position = np.array(state.position_fixed_m) + orientation.apply(moved_base_m)
    return replace(
        state,
        stamp_ns=time_ns,
        position_fixed_m=tuple(position.tolist()),
        orientation_xyzw=_quaternion(orientation * Rotation.from_rotvec([0.0, 0.0, angle])),
    )


def _derived_acceleration(states: list[EgoState], state: EgoState) -> tuple[float, float]:
    """Return (forward, left) from the speeds up to `state`; forward is 0 with too few of them.

    Only what lies before is used, so that a state is the same whenever it is asked for.
    """
    left_mps2 = state.speed_mps * state.yaw_rate_radps
    oldest_ns = state.stamp_ns - ACCELERATION_WINDOW_NS
    window = [s for s in states if oldest_ns <= s.stamp_ns < state.stamp_ns] + [state]
    if len(window) < 3 or window[-1].stamp_ns - window[0].stamp_ns < MIN_WINDOW_NS:
        return 0.0, left_mps2
    times_s = np.array([(s.stamp_ns - state.stamp_ns) * 1e-9 for s in window])
    slope_mps2 = np.polyfit(times_s, [s.speed_mps for s in window], 1)[0]
    return float(slope_mps2), left_mps2


def _quaternion(rotation: Rotation) -> tuple[float, float, float, float]:
    return tuple(rotation.as_quat().tolist())
