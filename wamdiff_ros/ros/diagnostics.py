"""How the planner is, in words and numbers, as one `DiagnosticArray`.

Pure but for the message types: the node collects a `Health` once a second, also while it loads,
and this file judges it. The reason for anything but OK is always the message's first words.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from builtin_interfaces.msg import Time
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue

from ..types import PlanStatus


@dataclass(frozen=True)
class Health:
    """What the verdict is made from; empty strings mean "nothing to complain about"."""

    lifecycle: str  # unconfigured, configuring, inactive, active, ...
    error: str = ''  # why the last transition failed, in its own words
    progress: str = ''  # what loading is doing
    enabled: bool = True
    status: PlanStatus | None = None  # of the newest tick
    reason: str = ''  # of the newest tick
    stalled: str = ''  # why there are no ticks
    lost: bool = False  # there was a plan, and for longer than a plan lives there has been none
    input_errors: tuple[str, ...] = ()  # e.g. incompatible QoS, unknown encodings
    values: Mapping[str, str] = field(default_factory=dict)


def verdict(health: Health) -> tuple[bytes, str]:
    """Return the diagnostic level and its message."""
    if health.error:
        return DiagnosticStatus.ERROR, health.error
    if health.lifecycle == 'configuring':
        return DiagnosticStatus.WARN, f'loading the model: {health.progress}'
    if health.lifecycle != 'active':
        return DiagnosticStatus.OK, health.lifecycle
    if health.input_errors:
        return DiagnosticStatus.ERROR, '; '.join(health.input_errors)
    if not health.enabled:
        return DiagnosticStatus.WARN, 'planning is disabled, ~/enable resumes it'
    if health.stalled:
        return DiagnosticStatus.WARN, health.stalled
    if health.status is PlanStatus.FALLBACK_STOP:
        return DiagnosticStatus.ERROR, f'FALLBACK_STOP: {health.reason}'
    if health.status is PlanStatus.WAITING and health.lost:
        return DiagnosticStatus.ERROR, f'LOST: {health.reason}'
    if health.status in (None, PlanStatus.WAITING):
        return DiagnosticStatus.WARN, f'WAITING: {health.reason or "no tick yet"}'
    if health.status is PlanStatus.HELD:
        return DiagnosticStatus.WARN, f'HELD: {health.reason}'
    return DiagnosticStatus.OK, 'planning'


def diagnostic_array(stamp: Time, node_name: str, health: Health) -> DiagnosticArray:
    """Return the message for `/diagnostics`."""
    level, message = verdict(health)
    status = DiagnosticStatus(level=level, name=f'{node_name}: planner', message=message)
    values = {'state': health.lifecycle, **health.values}
    status.values = [KeyValue(key=key, value=value) for key, value in values.items()]
    array = DiagnosticArray(status=[status])
    array.header.stamp = stamp
    return array


class RateMeter:
    """Rate and count of events over the last `window_s`, on the steady clock."""

    def __init__(self, window_s: float = 3.0) -> None:
        self.count = 0
        self._window_ns = round(window_s * 1e9)
        self._times_ns: deque[int] = deque(maxlen=1000)

    def add(self, steady_ns: int) -> None:
        """Count one event."""
        self.count += 1
        self._times_ns.append(steady_ns)

    def rate_hz(self, steady_ns: int) -> float:
        """Return the mean rate in the window, 0 without two events in it."""
        while self._times_ns and steady_ns - self._times_ns[0] > self._window_ns:
            self._times_ns.popleft()
        if len(self._times_ns) < 2:
            return 0.0
        return (len(self._times_ns) - 1) * 1e9 / (self._times_ns[-1] - self._times_ns[0])


class Latencies:
    """The newest wall times of one kind of work."""

    def __init__(self, length: int = 200) -> None:
        self._durations_ns: deque[int] = deque(maxlen=length)

    def add(self, duration_ns: int) -> None:
        """Remember one duration."""
        self._durations_ns.append(duration_ns)

    def describe(self) -> str:
        """Return 'p50 12.3 ms, p95 15.0 ms', or 'none yet'."""
        if not self._durations_ns:
            return 'none yet'
        p50, p95 = np.percentile(list(self._durations_ns), (50, 95)) / 1e6
        return f'p50 {p50:.1f} ms, p95 {p95:.1f} ms'
