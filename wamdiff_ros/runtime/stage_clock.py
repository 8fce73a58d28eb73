"""Wall time of the stages of one inference."""

import time
from contextlib import contextmanager

from ..types import StageTimings


class StageClock:
    """Adds up wall time per stage, in the order in which stages first ran."""

    def __init__(self):
        self._stages: dict[str, int] = {}

    @contextmanager
    def __call__(self, stage: str):
        """Time what runs within, as part of `stage`."""
        start = time.perf_counter_ns()
        try:
            yield
        finally:
            spent = time.perf_counter_ns() - start
            self._stages[stage] = self._stages.get(stage, 0) + spent

    def timings(self) -> StageTimings:
        """Return what has been measured so far."""
        return StageTimings(tuple(self._stages.items()))
