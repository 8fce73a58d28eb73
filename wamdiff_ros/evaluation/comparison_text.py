"""Show a `Comparison` as tables for a terminal, and its errors over time as a picture."""

import os
from collections.abc import Sequence
from pathlib import Path

from .bootstrap import Estimate
from .comparison import CheckpointScore, Comparison

TIMES_S = tuple(0.5 * place for place in range(1, 9))
LISTED_REFUSALS = 3
NONE = '–'


def to_text(comparison: Comparison) -> str:
    """Return the tables."""
    scores = comparison.checkpoints
    names = _short([s.name for s in scores])
    parts = [
        f'{comparison.records} records of {comparison.routes} routes in '
        f'{", ".join(comparison.data)}; in brackets: 95 % intervals, bootstrap over routes',
        _table(
            ('planning', 'plans', 'L2 [m]', 'along [m]', 'across [m]', 'tokens', 'forwards',
             's/answer p50', 'p95', 'tokens/s'),
            [
                (names[s.name], f'{s.parsed} of {comparison.records}', _number(s.l2_m),
                 _number(s.along_m), _number(s.across_m), f'{s.tokens:.1f}', f'{s.forwards:.1f}',
                 f'{s.seconds_p50:.3f}', f'{s.seconds_p95:.3f}', f'{s.tokens_per_s:.0f}')
                for s in scores
            ],
        ),
        *_refusals(scores, names),
        _table(
            ('L2 [m] at', *(f'{time_s} s' for time_s in TIMES_S)),
            [
                (names[s.name], *(NONE if at is None else f'{at.value:.2f}' for at in s.l2_at_m))
                for s in scores
            ],
        ),
        _table(
            ('description', 'readable', 'objects F1', 'longitudinal', 'lateral', 's p50'),
            [
                (names[s.name], _share(s.readable), _share(s.objects_f1), _share(s.longitudinal),
                 _share(s.lateral), f'{s.description_s_p50:.3f}')
                for s in scores
            ],
        ),
        _table(
            ('F1 of each object', 'true in', *(names[s.name] for s in scores)),
            [
                (field.name, str(field.support),
                 *(_share(s.objects[i].f1, interval=False) for s in scores))
                for i, field in enumerate(scores[0].objects)
            ],
        ),
    ]  # fmt: skip
    if comparison.differences:
        parts.append(
            _table(
                (f'against {names[scores[0].name]}', 'plans', 'L2 [m] more', 'L2 ×', 'seconds ×',
                 'forwards ×'),
                [
                    (names[d.name], str(d.plans), _number(d.l2_difference_m, '+.3f'),
                     _number(d.l2_ratio), f'{d.seconds_ratio:.3f}', _number(d.forwards_ratio))
                    for d in comparison.differences
                ],
            )
        )  # fmt: skip
    return '\n\n'.join(parts)


def draw_errors(comparison: Comparison, path: Path) -> None:
    """Write a picture of the L2 distance over time, with its intervals."""
    from matplotlib.figure import Figure

    names = _short([score.name for score in comparison.checkpoints])
    figure = Figure(figsize=(7, 4.5), layout='constrained')
    axes = figure.subplots()
    for score in comparison.checkpoints:
        if score.l2_m is None:
            continue
        (line,) = axes.plot(
            TIMES_S, [at.value for at in score.l2_at_m], marker='o', label=names[score.name]
        )
        if score.l2_m.low is not None:
            low, high = zip(*((at.low, at.high) for at in score.l2_at_m), strict=True)
            axes.fill_between(TIMES_S, low, high, color=line.get_color(), alpha=0.2)
    axes.set(xlabel='time [s]', ylabel="distance from the expert's plan [m]", xlim=(0, 4.2))
    axes.set_ylim(bottom=0)
    axes.set_title(f'{comparison.records} held-out records of {comparison.routes} routes')
    axes.grid(alpha=0.3)
    if axes.lines:
        axes.legend()
    figure.savefig(path, dpi=120)


def _short(names: Sequence[str]) -> dict[str, str]:
    """Return the names without the folder that all of them are in."""
    if len(set(names)) == 1:
        return {names[0]: names[0]}
    common = os.path.commonpath([os.path.dirname(os.path.abspath(name)) for name in names])
    return {name: os.path.relpath(name, common) for name in names}


def _refusals(scores: Sequence[CheckpointScore], names: dict[str, str]) -> list[str]:
    lines = [
        f'{names[score.name]}: {count} times {reason}'
        for score in scores
        for reason, count in score.refusals[:LISTED_REFUSALS]
    ]
    return ['without a plan:\n' + '\n'.join(lines)] if lines else []


def _number(estimate: Estimate | None, form: str = '.3f') -> str:
    if estimate is None:
        return NONE
    value = format(estimate.value, form)
    if estimate.low is None:
        return value
    return f'{value} ({estimate.low:{form}} … {estimate.high:{form}})'


def _share(estimate: Estimate | None, interval: bool = True) -> str:
    if estimate is None:
        return NONE
    value = f'{100 * estimate.value:.1f}'
    if interval and estimate.low is not None:
        value += f' ({100 * estimate.low:.1f} … {100 * estimate.high:.1f})'
    return f'{value} %'


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    return '\n'.join(
        '  '.join(
            cell.rjust(width) if place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in (head, *rows)
    )
