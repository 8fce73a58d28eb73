"""Show one replay run, or two over the same recordings, as one HTML file.

Scripts of the page only sort and search the table of bags. Names, reasons and answers come from
recordings and models: they are escaped, and no script reads them as anything but text.
"""

import os
from collections.abc import Sequence
from html import escape
from pathlib import Path
from urllib.parse import quote

import numpy as np

from ..replay.replay_run import VIDEO, ReplayRun
from .bootstrap import Estimate
from .columns import BY_NAME, COLUMNS, PRIMARY, RANKED, Column
from .displacement import HORIZONS_S
from .metrics import BagMetrics
from .page import cards, document, stage_bars, table
from .plain_text import plain
from .replay_comparison import ReplayComparison, SegmentDifference, compare_runs, interval
from .report_cases import cases
from .report_plots import curves, shares, sparkline
from .report_script import SCRIPT, STYLE
from .run_metrics import JudgedRun, Pooled, RunMetrics

GLANCE = (
    'own_plan', PRIMARY, RANKED, 'fde_3s_m', 'miss_3s', 'comfort', 'shift_m',
    'rater_feedback', 'pdms',
)  # fmt: skip
BAG_COLUMNS = {  # with words short enough for a table
    'own_plan': 'coverage', PRIMARY: 'ADE 3 s [m]', RANKED: 'ADE 3 s due [m]',
    'fde_3s_m': 'FDE 3 s [m]', 'miss_3s': 'misses 3 s',
    'heading_3s_rad': 'heading 3 s [rad]', 'comfort': 'comfort',
    'shift_m': 'shift [m]', 'held': 'held', 'rater_feedback': 'RFS', 'pdms': 'PDMS',
}  # fmt: skip
NONE = '–'


def to_html(first: JudgedRun, second: JudgedRun | None = None, folder: Path | None = None) -> str:
    """Return the page; with a second run it shows both and their difference.

    `folder` is where the page will lie, for the links to the bags' videos. Raises
    ComparisonError when the two are not over the same data.
    """
    judged = [first] if second is None else [first, second]
    comparison = None if second is None else compare_runs(first, second)
    totals = [run.metrics() for run in judged]
    title = f'Replay: {totals[-1].run}'
    if comparison:
        title += f' against {totals[0].run}'
    body = [
        *_head(totals),
        '<h2>At a glance</h2>' + cards(_glance(totals)),
        _plots(judged, totals),
        *(_comparison(comparison) if comparison else ()),
        _bags(judged, totals, folder),
        cases(judged[-1]),
        '<h2>All numbers</h2>' + _numbers(totals, comparison),
        *(_latency(one, len(totals) > 1) for one in totals),
        *(_origin(run.run, len(totals) > 1) for run in judged),
    ]
    return document(title, body, SCRIPT, STYLE)


def _head(totals: Sequence[RunMetrics]) -> list[str]:
    parts = []
    for one in totals:
        seconds = sum(bag.duration_s for bag in one.bags)
        parts.append(
            f'<p><b>{escape(one.run)}</b>: {escape(one.model)} on {escape(one.backend)}, '
            f'{_bag_count(len(one.bags))}, {seconds:.0f} s, {one.ticks} ticks.</p>'
        )
        if one.plans < one.ticks:
            reasons: dict[str, int] = {}
            for bag in one.bags:
                for reason, count in bag.failures:
                    reasons[reason] = reasons.get(reason, 0) + count
            most = sorted(reasons.items(), key=lambda item: -item[1])[:3]
            words = '; '.join(f'{count} times {plain(reason, 120)}' for reason, count in most)
            parts.append(
                f'<p class="note">{one.ticks - one.plans} of {one.ticks} ticks have no plan of '
                f'their own: {escape(words)}.</p>'
            )
        parts += [
            f'<p class="note">{escape(bag)} was not replayed: {escape(plain(reason))}</p>'
            for bag, reason in one.failed
        ]
    parts.append(
        f'<p>Intervals: 95 %, bootstrap over {escape(totals[0].drawn)}. '
        'docs/metrics.md defines every number.</p>'
    )
    return parts


def _glance(totals: Sequence[RunMetrics]) -> list[tuple[str, str]]:
    shown = []
    for name in GLANCE:
        column = BY_NAME[name]
        values = [one.metrics.get(name) for one in totals]
        if any(values):
            shown.append((' → '.join(_mean(column, value) for value in values), column.words))
    latencies = [dict(one.latency.stages_ms).get('all stages') for one in totals]
    if any(latencies):
        words = [f'{d.p95:.0f} ms' if d else NONE for d in latencies]
        shown.append((' → '.join(words), 'inference, p95'))
        missed = [str(one.latency.deadline_misses) for one in totals]
        shown.append((' → '.join(missed), 'inferences over the deadline'))
    return shown


def _plots(judged: Sequence[JudgedRun], totals: Sequence[RunMetrics]) -> str:
    lines = []
    for one in totals:
        points = [
            (horizon_s, one.metrics[f'ade_{horizon_s:g}s_m'].estimate)
            for horizon_s in HORIZONS_S
            if f'ade_{horizon_s:g}s_m' in one.metrics
        ]
        if points:
            lines.append((one.run, *zip(*points, strict=True)))
    plots = [('ADE over the horizon', curves(lines, 'horizon [s]', 'ADE [m]'))] if lines else []
    for name, title, x_words in (
        ('fde_3s_m', 'Distribution of FDE at 3 s', 'FDE at 3 s [m]'),
        ('shift_m', 'Distribution of shifts between plans', 'shift [m]'),
    ):
        values = [(run.run.name, run.column(name)) for run in judged]
        if any(np.isfinite(one).any() for _, one in values):
            plots.append((title, shares(values, x_words)))
    figures = [f'<div><h2>{escape(words)}</h2>{svg}</div>' for words, svg in plots]
    return '<div class="plots">' + '\n'.join(figures) + '</div>'


def _comparison(c: ReplayComparison) -> list[str]:
    parts = [f'<h2>What differs: {escape(c.second)} against {escape(c.first)}</h2>']
    parts.append(
        f'<p>{c.ticks} ticks of {_bag_count(c.bags)}, the same for both; a line compares those at '
        'which both have a value.</p>'
    )
    rows = [
        f'<tr><td>{escape(_words(BY_NAME[d.column]))}</td>'
        f'<td class="n">{d.first:.{BY_NAME[d.column].digits}f}</td>'
        f'<td class="n">{d.second:.{BY_NAME[d.column].digits}f}</td><td class="n">{d.ticks}</td>'
        f'<td class="n">{interval(d.difference, f".{BY_NAME[d.column].digits}f")}</td>'
        f'<td class="{escape(d.verdict)}">{escape(d.verdict)}</td></tr>'
        for d in c.differences
        if d.column in GLANCE
    ]
    head = _head_row(('', c.first, c.second, 'ticks', 'difference', ''))
    parts.append(f'<div class="scroll"><table>{head}{"".join(rows)}</table></div>')
    if c.seconds_ratio is not None:
        where = 'the same machine' if c.same_machine else 'another machine'
        parts.append(f'<p>Inference took {c.seconds_ratio:.2f} times as long, on {where}.</p>')
    for what, segments in (('worse', c.worse), ('better', c.better)):
        if segments:
            parts.append(f'<h2>Where {escape(c.second)} is {what}</h2>' + _segments(segments))
    return parts


def _segments(segments: Sequence[SegmentDifference]) -> str:
    head = _head_row(('bag', 'from', 'to', 'first [m]', 'second [m]', 'difference [m]'))
    rows = [
        f'<tr><td>{escape(s.bag)}</td>'
        + ''.join(
            f'<td class="n">{words}</td>'
            for words in (
                f'{s.start_s:.0f} s', f'{s.end_s:.0f} s', f'{s.first:.2f}', f'{s.second:.2f}',
                f'{s.difference:+.2f}',
            )
        )
        + '</tr>'
        for s in segments
    ]  # fmt: skip
    return f'<div class="scroll"><table>{head}{"".join(rows)}</table></div>'


def _bags(judged: Sequence[JudgedRun], totals: Sequence[RunMetrics], folder: Path | None) -> str:
    last = judged[-1]
    videos = [_video(bag.folder, folder) for bag in last.bags]
    names = [name for name in BAG_COLUMNS if any(name in bag.metrics for bag in totals[-1].bags)]
    film = ['video'] if any(videos) else []
    heads = ['bag', 'over time', *film, 's', 'ticks', *(BAG_COLUMNS[name] for name in names)]
    if len(judged) == 2:
        heads.append('ADE 3 s due, change [m]')
    known = last.column(RANKED)
    known = known[np.isfinite(known)]
    top = float(np.percentile(known, 99)) if len(known) else 1.0
    rows = []
    for place, (bag, one) in enumerate(zip(last.bags, totals[-1].bags, strict=True)):
        curve = sparkline(bag.values.get(RANKED, np.full(one.ticks, np.nan)), top)
        cells = [
            f'<td>{escape(one.bag)}</td><td>{curve}</td>',
            *([f'<td class="n">{videos[place]}</td>'] if film else []),
            _cell(one.duration_s, '.0f'), _cell(one.ticks, 'd'),
            *(_metric_cell(one, name) for name in names),
        ]  # fmt: skip
        if len(judged) == 2:
            before = totals[0].bags[place].metrics.get(RANKED)
            after = one.metrics.get(RANKED)
            difference = after.mean - before.mean if before and after else None
            cells.append(_cell(difference, '+.2f'))
        rows.append(f'<tr>{"".join(cells)}</tr>')
    buttons = ''.join(
        f'<th scope="col" class="{"n" if place > 1 else ""}">'
        + (f'<button type="button">{escape(words)}</button>' if place != 1 else escape(words))
        + '</th>'
        for place, words in enumerate(heads)
    )
    return (
        f'<h2>Bags</h2><p>Over time: {escape(_words(BY_NAME[RANKED]))}, up to {top:.1f} m.</p>'
        '<input type="search" id="search" placeholder="search bags" aria-label="search bags">'
        f'<p><span id="shown">{len(rows)}</span> of {_bag_count(len(rows))}</p>'
        f'<div class="scroll"><table id="bags"><thead><tr>{buttons}</tr></thead>'
        f'<tbody>{"".join(rows)}</tbody></table></div>'
    )


def _video(bag: Path, folder: Path | None) -> str:
    """Return a link from a page in `folder` to the video of a bag's replay, '' without one."""
    video = bag / VIDEO
    if folder is None or not video.is_file():
        return ''
    address = quote(os.path.relpath(video, folder).replace(os.sep, '/'))
    return f'<a href="{escape(address)}">{VIDEO}</a>'


def _numbers(totals: Sequence[RunMetrics], comparison: ReplayComparison | None) -> str:
    differences = {d.column: d for d in comparison.differences} if comparison else {}
    parts = [
        '<p>A tick without a plan of its own counts 0 in scores, as a miss in misses, as standing '
        'still in “failures standing”, and is left out of all other distances.</p>'
    ]
    for group in dict.fromkeys(column.group for column in COLUMNS):
        rows = []
        for column in COLUMNS:
            values = [one.metrics.get(column.name) for one in totals]
            if column.group != group or not any(values):
                continue
            cells = [f'<td>{escape(_words(column))}</td>']
            cells += [f'<td class="n">{escape(_estimate(column, value))}</td>' for value in values]
            if comparison:
                difference = differences.get(column.name)
                form = f'.{column.digits}f'
                words = interval(difference.difference, form) if difference else NONE
                judged = difference.verdict if difference else ''
                cells.append(
                    f'<td class="n">{escape(words)}</td>'
                    f'<td class="{escape(judged)}">{escape(judged)}</td>'
                )
            cells.append(f'<td class="n">{values[-1].count if values[-1] else 0}</td>')
            rows.append(f'<tr>{"".join(cells)}</tr>')
        if rows:
            heads = ['', *(one.run for one in totals)]
            heads += ['difference', ''] if comparison else []
            parts.append(
                f'<details{" open" if group == "coverage" else ""}><summary>{escape(group)}'
                f'</summary><div class="scroll"><table>{_head_row([*heads, "ticks"])}'
                f'{"".join(rows)}</table></div></details>'
            )
    skipped = sorted({(BY_NAME[n].words if n in BY_NAME else n.replace('_', ' '), why)
                      for one in totals for n, why in one.skipped.items()})  # fmt: skip
    parts += [f'<p>No {escape(name)}: {escape(why)}.</p>' for name, why in skipped]
    return '\n'.join(parts)


def _latency(one: RunMetrics, named: bool) -> str:
    latency = one.latency
    title = f'Latency of {one.run}' if named else 'Latency'
    if not latency.inferences:
        return f'<h2>{escape(title)}</h2><p>No timings were recorded.</p>'
    head = _head_row(('stage', 'mean', 'p50', 'p95', 'p99', 'highest'))
    rows = ''.join(
        f'<tr><td>{escape(name)}</td>'
        + ''.join(
            f'<td class="n">{value:.1f}</td>' for value in (d.mean, d.p50, d.p95, d.p99, d.highest)
        )
        + '</tr>'
        for name, d in latency.stages_ms
    )
    missed = ''
    if latency.deadline_ms is not None:
        missed = (
            f', {latency.deadline_misses} of them longer than the deadline of '
            f'{latency.deadline_ms:.0f} ms'
        )
    return (
        f'<h2>{escape(title)}</h2><p>{latency.inferences} inferences{missed}. p50 and p95 [ms]:'
        f'</p>{stage_bars(latency.stages_ms)}'
        f'<div class="scroll"><table>{head}{rows}</table></div>'
    )


def _origin(run: ReplayRun, named: bool) -> str:
    machine = {k: v for k, v in run.machine.items() if not isinstance(v, (dict, list))}
    groups = {
        'model': run.run.get('model', {}), 'versions': run.run.get('versions', {}),
        'options': run.run.get('options', {}), 'machine': machine,
    }  # fmt: skip
    rows = [
        (f'{group}: {name}', plain(str(value)))
        for group, values in groups.items()
        for name, value in values.items()
    ]
    parameters = [(name, plain(str(v))) for name, v in run.run.get('parameters', {}).items()]
    notes = [
        (name, plain(note)) for name, info in run.bags.items() for note in info.get('notes', ())
    ]
    title = f'How {run.name} was made' if named else 'How this was made'
    return (
        f'<h2>{escape(title)}</h2>{table(rows)}'
        f'<details><summary>parameters</summary>{table(parameters)}</details>'
        + (f'<details><summary>notes on the recordings</summary>{table(notes)}</details>'
           if notes else '')
    )  # fmt: skip


def _head_row(words: Sequence[str]) -> str:
    cells = ''.join(
        f'<th class="{"n" if place else ""}">{escape(one)}</th>' for place, one in enumerate(words)
    )
    return f'<thead><tr>{cells}</tr></thead>'


def _metric_cell(one: BagMetrics, name: str) -> str:
    measure = one.metrics.get(name)
    return _cell(measure and measure.mean, f'.{BY_NAME[name].digits}f')


def _cell(value: float | None, form: str) -> str:
    if value is None:
        return f'<td class="n" data-v="">{NONE}</td>'
    return f'<td class="n" data-v="{value:.6g}">{value:{form}}</td>'


def _bag_count(count: int) -> str:
    return f'{count} bag' if count == 1 else f'{count} bags'


def _words(column: Column) -> str:
    return f'{column.words} [{column.unit}]' if column.unit else column.words


def _mean(column: Column, pooled: Pooled | None) -> str:
    if pooled is None:
        return NONE
    unit = f' {column.unit}' if column.unit else ''
    return f'{pooled.estimate.value:.{column.digits}f}{unit}'


def _estimate(column: Column, pooled: Pooled | None) -> str:
    if pooled is None:
        return NONE
    estimate: Estimate = pooled.estimate
    form = f'.{column.digits}f'
    text = f'{estimate.value:{form}}'
    if estimate.low is not None:
        text += f' ({estimate.low:{form}} … {estimate.high:{form}})'
    return text
