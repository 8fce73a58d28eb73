"""Notices that the node's clock was set: system time steps, suspended machines."""

# A clock that is disciplined without steps is slowed by less than a thousandth (adjtime).
BACKWARD_NS = 50_000_000


class ClockGuard:
    """Compares the node's clock with the steady clock, from check to check. Not thread-safe."""

    def __init__(self, threshold_ns: int):
        """`threshold_ns` is how far a step forward may go unsaid."""
        self._threshold_ns = threshold_ns
        self._last: tuple[int, int] | None = None

    def check(self, ros_now_ns: int, steady_now_ns: int) -> str | None:
        """Return why the clock jumped since the last check, or None.

        The two clocks must have advanced by the same time, up to the threshold forward and
        BACKWARD_NS backward. Each check starts anew, so slow drift is no jump; the two times are
        to be read together. Not for simulated time, which may run at any rate.
        """
        last, self._last = self._last, (ros_now_ns, steady_now_ns)
        if last is None:
            return None
        ros_ns, steady_ns = ros_now_ns - last[0], steady_now_ns - last[1]
        jump_s = (ros_ns - steady_ns) * 1e-9
        if ros_ns < 0 or ros_ns - steady_ns < -BACKWARD_NS:
            return f'the clock jumped {-jump_s:.3f} s backward'
        if ros_ns - steady_ns > self._threshold_ns:
            return f'the clock jumped {jump_s:.3f} s forward'
        return None

    def reset(self) -> None:
        """Forget the last check."""
        self._last = None
