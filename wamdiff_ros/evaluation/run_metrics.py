"""Judge a replay run: every bag, and all of them together with intervals.

Ticks next to each other are alike, so intervals come from drawing whole bags, or segments of 10 s
where there are fewer than eight bags. Segments of one drive are still alike, so those intervals
are rather too narrow.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..replay.replay_run import ReplayError, ReplayRun, read_bag
from .bootstrap import Estimate, RouteBootstrap
from .columns import COLUMNS
from .latency import Latency, latency_of
from .metrics import BagMetrics, Judged, judge
from .ratings import RatedMoment

SEGMENT_S = 10.0
ENOUGH_BAGS = 8


@dataclass(frozen=True)
class Pooled:
    """One column over the ticks of all bags that have a value."""

    count: int
    estimate: Estimate


@dataclass(frozen=True)
class RunMetrics:
    """What a run comes to; `drawn` are the units of the intervals."""

    run: str
    model: str
    backend: str
    drawn: str
    ticks: int
    plans: int
    metrics: dict[str, Pooled]
    latency: Latency
    skipped: dict[str, str]  # columns without any value, and why
    failed: tuple[tuple[str, str], ...]  # (bag, reason) of bags that were not replayed
    bags: tuple[BagMetrics, ...]


@dataclass(frozen=True, eq=False)
class JudgedBag:
    """What is kept of a judged bag: the values of all ticks, but not their plans and worlds."""

    folder: Path
    grid_ns: np.ndarray  # int64 [N]
    values: dict[str, np.ndarray]  # column name to [N]
    stages_s: tuple[dict[str, float], ...]
    worst: tuple[int, ...]  # places of the worst ticks
    metrics: BagMetrics

    @classmethod
    def of(cls, judged: Judged) -> 'JudgedBag':
        """Keep it."""
        replay = judged.replay
        return cls(
            replay.folder, replay.grid_ns, judged.values, replay.stages_s,
            tuple(judged.worst()), judged.metrics(),
        )  # fmt: skip

    @property
    def name(self) -> str:
        """The bag's name."""
        return self.metrics.bag


@dataclass(frozen=True, eq=False)
class JudgedRun:
    """A run with the values of all its ticks, bag after bag."""

    run: ReplayRun
    bags: tuple[JudgedBag, ...]

    def column(self, name: str) -> np.ndarray:
        """Return a column's values [N] over all bags, NaN where there is none."""
        return np.concatenate(
            [bag.values.get(name, np.full(len(bag.grid_ns), np.nan)) for bag in self.bags]
        )

    def metrics(self) -> RunMetrics:
        """Return what the run comes to."""
        labels, drawn = units(self.bags)
        bootstrap = RouteBootstrap(labels)
        found = {}
        for column in COLUMNS:
            values = self.column(column.name)
            known = np.isfinite(values)
            if known.any():
                estimate = bootstrap.mean(values, known)
                found[column.name] = Pooled(int(known.sum()), estimate)
        bags = tuple(bag.metrics for bag in self.bags)
        return RunMetrics(
            run=self.run.name,
            model=self.run.model,
            backend=self.run.backend,
            drawn=drawn,
            ticks=sum(bag.ticks for bag in bags),
            plans=sum(bag.plans for bag in bags),
            metrics=found,
            latency=self.latency(),
            skipped={
                name: why
                for bag in self.bags
                for name, why in bag.metrics.skipped.items()
                if not any(one.startswith(name) for one in found)
            },
            failed=self.run.failed,
            bags=bags,
        )

    def latency(self) -> Latency:
        """Return how long inference took."""
        deadline_s = self.run.run.get('parameters', {}).get('deadline_s')
        return latency_of((one for bag in self.bags for one in bag.stages_s), deadline_s)


def judge_run(
    run: ReplayRun, ratings: Mapping[str, Sequence[RatedMoment]] | None = None
) -> JudgedRun:
    """Judge all bags; `ratings` are people's, by the bag's name. Progress goes to stderr.

    Raises ReplayError, also when there is nothing to judge.
    """
    from tqdm import tqdm

    bags = []
    for name in tqdm(run.bags, f'judging {run.name}', unit='bag', disable=None, leave=False):
        judged = judge(read_bag(run.path / name), (ratings or {}).get(name, ()))
        bags.append(JudgedBag.of(judged))
    if not any(len(bag.grid_ns) for bag in bags):
        reasons = '; '.join(f'{name}: {reason}' for name, reason in run.failed)
        raise ReplayError(f'{run.path}: has no finished replay ({reasons or "no bags"})')
    return JudgedRun(run, tuple(bags))


def units(bags: Sequence[JudgedBag]) -> tuple[np.ndarray, str]:
    """Return what intervals are drawn by: a label per tick [N], and words."""
    by_bag = len(bags) >= ENOUGH_BAGS
    labels, first = [], 0
    for number, bag in enumerate(bags):
        segments = segments_of(bag) if not by_bag else np.zeros(len(bag.grid_ns), int)
        labels.append((number if by_bag else first) + segments)
        first += int(segments.max(initial=-1)) + 1
    drawn = 'bags' if by_bag else f'segments of {SEGMENT_S:g} s'
    return np.concatenate([*labels, np.zeros(0, int)]), drawn


def segments_of(bag: JudgedBag) -> np.ndarray:
    """Return the number [N] of the segment of 10 s that each tick is in."""
    return ((bag.grid_ns - bag.grid_ns[:1]) * 1e-9 // SEGMENT_S).astype(int)
