"""How long the inferences of a replay took, stage by stage: it depends on the machine."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from .distribution import Distribution

TOTAL = 'all stages'


@dataclass(frozen=True)
class Latency:
    """Wall times in ms per inference; stages are in the order in which they ran."""

    inferences: int
    stages_ms: tuple[tuple[str, Distribution], ...]  # the last one is their sum
    deadline_ms: float | None
    deadline_misses: int  # inferences that took longer than the deadline allows


def latency_of(inferences: Iterable[Mapping[str, float]], deadline_s: float | None) -> Latency:
    """Return the latency of inferences, {stage: s} each; an empty one was none.

    `deadline_s` is from the grid instant on.
    """
    durations_ms: dict[str, list[float]] = {}
    totals_ms: list[float] = []
    for stages_s in inferences:
        for name, seconds in stages_s.items():
            durations_ms.setdefault(name, []).append(1e3 * seconds)
        if stages_s:
            totals_ms.append(1e3 * sum(stages_s.values()))
    stages = [(name, Distribution.of(values)) for name, values in durations_ms.items()]
    if totals_ms:
        stages.append((TOTAL, Distribution.of(totals_ms)))
    deadline_ms = None if deadline_s is None else 1e3 * deadline_s
    misses = 0 if deadline_ms is None else int((np.array(totals_ms) > deadline_ms).sum())
    return Latency(len(totals_ms), tuple(stages), deadline_ms, misses)
