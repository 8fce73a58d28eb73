"""What has come of the ticks since somebody last asked."""

from collections import Counter

from ..types import PlanStatus


class TickTally:
    """Counts ticks by their status; for one thread."""

    def __init__(self) -> None:
        self.statuses: Counter[PlanStatus] = Counter()
        self.reasons: dict[PlanStatus, str] = {}  # the newest of each status
        self.late = 0  # ticks without an answer at their deadline
        self.slept = 0  # grid instants that passed without a tick

    def add(self, status: PlanStatus, reason: str, is_late: bool) -> None:
        """Count a published tick."""
        self.statuses[status] += 1
        self.reasons[status] = reason
        self.late += is_late

    @property
    def total(self) -> int:
        """How many ticks there were."""
        return self.statuses.total()

    def describe(self) -> str:
        """Return '8 NOMINAL, 2 HELD, 1 late'."""
        counts = [f'{self.statuses[s]} {s.name}' for s in PlanStatus if self.statuses[s]]
        return ', '.join((*counts, f'{self.late} late'))
