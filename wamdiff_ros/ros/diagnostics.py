"""How the planner is, in words and numbers, as one `DiagnosticArray`.

Pure but for the message types: the node collects a `Health` once a second, also while it loads,
and this file judges it by what has happened since the last one. The reason for anything but OK is
always the message's first words.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from builtin_interfaces.msg import Time
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue

from ..types import PlanStatus
from .tick_tally import TickTally

OK, WARN, ERROR = DiagnosticStatus.OK, DiagnosticStatus.WARN, DiagnosticStatus.ERROR
HELD_SHARE = 0.1  # of the ticks; so few may be held without a warning


@dataclass(frozen=True)
class Health:
    """What the verdict is made from; empty strings mean "nothing to complain about"."""

    lifecycle: str  # unconfigured, configuring, inactive, active, ...
    error: str = ''  # why the last transition failed, in its own words
    progress: str = ''  # what loading is doing
    enabled: bool = True
    stalled: str = ''  # why there are no ticks
    lost: bool = False  # there was a plan, and for longer than a plan lives there has been none
    tally: TickTally = field(default_factory=TickTally)  # since the last message
    latency_p95_s: float = 0.0  # of the newest inferences
    deadline_s: float = 0.0
    obstacles: tuple[str, ...] = ()  # inputs that are wrong as long as they are, e.g. by their QoS
    dropped: tuple[str, ...] = ()  # why messages were dropped since the last message
    values: Mapping[str, str] = field(default_factory=dict)


def verdict(health: Health) -> tuple[bytes, str]:
    """Return the diagnostic level and its message, the worst first."""
    if health.error:
        return ERROR, health.error
    if health.lifecycle == 'configuring':
        return WARN, f'loading the model: {health.progress}'
    if health.lifecycle != 'active':
        return OK, health.lifecycle
    findings = [
        *((ERROR, text) for text in health.obstacles),
        *_about_plans(health),
        *((WARN, text) for text in health.dropped),
    ]
    if not findings:
        return OK, 'planning'
    findings.sort(key=lambda finding: finding[0], reverse=True)
    return findings[0][0], '; '.join(text for _, text in findings)


def _about_plans(health: Health) -> Iterator[tuple[bytes, str]]:
    tally = health.tally
    if not health.enabled:
        yield WARN, 'planning is disabled, ~/enable resumes it'
    elif health.stalled:
        yield WARN, health.stalled
    elif not tally.total:
        yield WARN, 'WAITING: no tick yet'
    elif tally.statuses[PlanStatus.FALLBACK_STOP]:
        yield ERROR, _ticks(tally, PlanStatus.FALLBACK_STOP)
    elif tally.statuses[PlanStatus.WAITING] and health.lost:
        yield ERROR, f'LOST: {tally.reasons[PlanStatus.WAITING]}'
    elif tally.statuses[PlanStatus.WAITING]:
        yield WARN, _ticks(tally, PlanStatus.WAITING)
    elif tally.statuses[PlanStatus.HELD] > HELD_SHARE * tally.total:
        yield WARN, _ticks(tally, PlanStatus.HELD)
    if tally.late and health.latency_p95_s > health.deadline_s:  # one alone may be an accident
        yield (
            WARN,
            f'latency p95 {health.latency_p95_s * 1e3:.0f} ms is above deadline_s, '
            f'{health.deadline_s * 1e3:.0f} ms',
        )
    if tally.slept > HELD_SHARE * (tally.total + tally.slept):
        yield WARN, f'{tally.slept} grid instants passed without a tick; is the machine busy?'


def _ticks(tally: TickTally, status: PlanStatus) -> str:
    """Return 'HELD in 3 of 10 ticks: reason', or 'HELD: reason' of all."""
    count = tally.statuses[status]
    share = '' if count == tally.total else f' in {count} of {tally.total} ticks'
    return f'{status.name}{share}: {tally.reasons[status]}'


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

    def p95_s(self) -> float:
        """Return the 95th percentile, 0 before the first."""
        return float(np.percentile(list(self._durations_ns) or [0], 95)) / 1e9

    def describe(self) -> str:
        """Return 'p50 12.3 ms, p95 15.0 ms', or 'none yet'."""
        if not self._durations_ns:
            return 'none yet'
        p50, p95 = np.percentile(list(self._durations_ns), (50, 95)) / 1e6
        return f'p50 {p50:.1f} ms, p95 {p95:.1f} ms'
