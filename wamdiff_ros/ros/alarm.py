"""A one-shot timer on the node's clock, wall or simulated.

rclpy's periodic timers round their period and lose their place when the clock is set; an alarm
is set anew for every absolute instant, so the grid neither drifts nor stops.
"""

from collections.abc import Callable

from rclpy.node import Node


class Alarm:
    """Calls `callback` once per `set`, in the executor's thread."""

    def __init__(self, node: Node, callback: Callable[[], None]) -> None:
        self._node = node
        self._callback = callback
        self._timer = node.create_timer(3600.0, self._ring, clock=node.get_clock())
        self._timer.cancel()

    def set(self, delay_ns: int) -> None:
        """Ring in `delay_ns` of the node's clock; takes the place of an earlier setting."""
        self._timer.timer_period_ns = max(delay_ns, 1)
        self._timer.reset()

    def cancel(self) -> None:
        """Do not ring."""
        self._timer.cancel()

    def destroy(self) -> None:
        """Take the timer back."""
        self._node.destroy_timer(self._timer)

    def _ring(self) -> None:
        self._timer.cancel()
        self._callback()
