"""Two replay runs over the same recordings: what differs, how surely, and where.

Compared are ticks at which both have a value, so a difference is never one of the data.
Differences are the second run's value minus the first one's.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ..replay.replay_run import ReplayRun
from .bootstrap import Estimate, RouteBootstrap
from .columns import BY_NAME, COLUMNS, RANKED, Column
from .run_metrics import SEGMENT_S, JudgedRun, segments_of, units

SEGMENTS = 10  # listed in each direction
SAME = ('start_ns', 'end_ns', 'period_ns', 'topics')  # of bag.json, for the same data


class ComparisonError(ValueError):
    """Two runs cannot be compared; the message names the recording and what differs."""


@dataclass(frozen=True)
class ColumnDifference:
    """One column over the `ticks` at which both runs have a value."""

    column: str
    ticks: int
    first: float
    second: float
    difference: Estimate
    verdict: str  # see `verdict`, '' for a bias


@dataclass(frozen=True)
class SegmentDifference:
    """Ten seconds of a bag, by `ade_3s_due_m`."""

    bag: str
    start_s: float  # from the bag's first tick on
    end_s: float
    start_ns: int  # of its first tick
    first: float
    second: float
    difference: float


@dataclass(frozen=True)
class ReplayComparison:
    """The second run compared with the first one; `drawn` are the units of the intervals."""

    first: str
    second: str
    models: tuple[str, str]
    bags: int
    ticks: int
    drawn: str
    differences: tuple[ColumnDifference, ...]
    seconds_ratio: float | None  # of the medians of all stages
    same_machine: bool
    worse: tuple[SegmentDifference, ...]  # where the second run is, the worst first
    better: tuple[SegmentDifference, ...]


def compare_runs(first: JudgedRun, second: JudgedRun) -> ReplayComparison:
    """Compare two judged runs. Raises ComparisonError when they are not over the same data."""
    check_same_data(first.run, second.run)
    for one, other in zip(first.bags, second.bags, strict=True):
        if not np.array_equal(one.grid_ns, other.grid_ns):
            raise ComparisonError(
                f'{one.folder} and {other.folder}: hold other ticks than their bag.json says; '
                'run `wamdiff replay` again'
            )
    labels, drawn = units(first.bags)
    bootstrap = RouteBootstrap(labels)
    differences = []
    for column in COLUMNS:
        one, other = first.column(column.name), second.column(column.name)
        both = np.isfinite(one) & np.isfinite(other)
        if both.any():
            estimate = bootstrap.mean(other - one, both)
            differences.append(
                ColumnDifference(
                    column.name, int(both.sum()), float(one[both].mean()),
                    float(other[both].mean()), estimate, verdict(column, estimate),
                )
            )  # fmt: skip
    segments = sorted(_segments(first, second), key=lambda segment: -segment.difference)
    medians = [dict(run.latency().stages_ms).get('all stages') for run in (first, second)]
    machines = [run.run.machine for run in (first, second)]
    return ReplayComparison(
        first=first.run.name,
        second=second.run.name,
        models=(first.run.model, second.run.model),
        bags=len(first.bags),
        ticks=len(labels),
        drawn=drawn,
        differences=tuple(differences),
        seconds_ratio=medians[1].p50 / medians[0].p50 if all(medians) else None,
        same_machine=all(
            machines[0].get(key) == machines[1].get(key) for key in ('hostname', 'cpu', 'gpu')
        ),
        worse=tuple(segment for segment in segments[:SEGMENTS] if segment.difference > 0),
        better=tuple(
            segment for segment in segments[: -SEGMENTS - 1 : -1] if segment.difference < 0
        ),
    )


def verdict(column: Column, difference: Estimate) -> str:
    """Say whether the second run is better, when the interval leaves out 0.

    One bag or segment alone has no interval.
    """
    if not column.better:
        return ''
    if difference.low is None:
        return 'no interval'
    if difference.low <= 0 <= difference.high:
        return 'no difference shown'
    return 'better' if (difference.value < 0) == (column.better == 'less') else 'worse'


def check_same_data(first: ReplayRun, second: ReplayRun) -> None:
    """Raise ComparisonError unless both have replayed the same ticks of the same recordings."""
    for one, other in ((first, second), (second, first)):
        reasons = dict(other.failed)
        for name in one.bags:
            if name not in other.bags:
                why = f' ({reasons[name]})' if name in reasons else ''
                raise ComparisonError(
                    f'{other.path}: has no finished replay of {name!r}{why}, which '
                    f'{one.path} has; replay the same recordings with both'
                )
    if not first.bags:
        raise ComparisonError(f'{first.path}: has no finished replay')
    for name, info in first.bags.items():
        for key in SAME:
            mine, its = info.get(key), second.bags[name].get(key)
            if mine != its:
                raise ComparisonError(
                    f'{name!r} is not the same data in {first.path} and {second.path}: {key} is '
                    f'{mine} and {its}; replay it with the same rate, start, duration and topics'
                )


def to_text(comparison: ReplayComparison) -> str:
    """Return the comparison for a terminal."""
    c = comparison
    lines = [
        f'{c.second} ({c.models[1]}) against {c.first} ({c.models[0]}): {c.ticks} ticks of '
        f'{c.bags} bags; in brackets: 95 % intervals, bootstrap over {c.drawn}',
        '',
        f'{"":42}{"ticks":>8}{"first":>10}{"second":>10}  difference',
    ]
    for d in c.differences:
        column = BY_NAME[d.column]
        form = f'.{column.digits}f'
        name = f'{column.words} [{column.unit}]' if column.unit else column.words
        lines.append(
            f'{name:42}{d.ticks:>8}{d.first:>10{form}}{d.second:>10{form}}  '
            f'{interval(d.difference, form)}  {d.verdict}'.rstrip()
        )
    if c.seconds_ratio is not None:
        where = 'the same machine' if c.same_machine else 'ANOTHER machine'
        lines += ['', f'time of all stages, median: {c.seconds_ratio:.2f} times, on {where}']
    for words, segments in (('worse', c.worse), ('better', c.better)):
        if segments:
            lines += ['', f'where {c.second} is {words} ({BY_NAME[RANKED].words} [m])']
            lines += [
                f'  {s.bag} {s.start_s:.0f} … {s.end_s:.0f} s: {s.first:.2f} → {s.second:.2f} '
                f'({s.difference:+.2f})'
                for s in segments
            ]
    return '\n'.join(lines)


def interval(difference: Estimate, form: str) -> str:
    """Return a difference with its interval in words."""
    text = f'{difference.value:+{form}}'
    if difference.low is not None:
        text += f' ({difference.low:+{form}} … {difference.high:+{form}})'
    return text


def _segments(first: JudgedRun, second: JudgedRun) -> Iterable[SegmentDifference]:
    for one, other in zip(first.bags, second.bags, strict=True):
        values = [bag.values.get(RANKED) for bag in (one, other)]
        if any(value is None for value in values):
            continue
        both = np.isfinite(values[0]) & np.isfinite(values[1])
        segments = segments_of(one)
        for number in np.unique(segments[both]).tolist():
            inside = np.flatnonzero(both & (segments == number))
            means = [float(value[inside].mean()) for value in values]
            start_s = number * SEGMENT_S
            yield SegmentDifference(
                one.name, start_s, min(start_s + SEGMENT_S, one.metrics.duration_s),
                int(one.grid_ns[segments == number][0]), *means, means[1] - means[0],
            )  # fmt: skip
