"""Show a `Summary` as one HTML file that needs nothing else: no network, no scripts."""

from collections.abc import Sequence
from html import escape

import numpy as np

from ..types import PlanStatus
from .page import cards, document, image_url, stage_bars, table
from .summary import Summary, rows_of

STATUS_COLOURS = {
    PlanStatus.WAITING: '#6e7681',
    PlanStatus.NOMINAL: '#238636',
    PlanStatus.HELD: '#bb8009',
    PlanStatus.FALLBACK_STOP: '#cf222e',
}
WIDTH = 900


def to_html(
    summary: Summary,
    still_rgb: np.ndarray | None = None,
    drive: Sequence[tuple[str, str]] = (),
) -> str:
    """Return the page; `still_rgb`, uint8 [height, width, 3], is shown at its top.

    `drive` says in (name, value) how a closed-loop drive went.
    """
    s = summary
    states = s.status_counts()
    nominal = 100 * states[PlanStatus.NOMINAL] / len(s.states)
    glance = [
        (f'{s.rate_hz:.2f} Hz', 'trajectories published'),
        (f'{s.jitter_ms.p99:.1f} ms' if s.jitter_ms else '–', 'jitter of the period, p99'),
        (f'{s.age_ms.p50:.0f} ms' if s.age_ms else '–', 'age when published, p50'),
        (f'{nominal:.0f} %', 'of the ticks NOMINAL'),
        (str(s.missed_deadlines), 'missed deadlines'),
    ]
    parts = [f'<p>{s.duration_s:.1f} s on {escape(s.backend)}.</p>']
    if s.model_note:
        parts.append(f'<p class="note">{escape(s.model_note)}</p>')
    if still_rgb is not None:
        parts.append(f'<img alt="The plan in the camera picture" src="{image_url(still_rgb)}">')
    if drive:
        parts.append('<h2>The drive</h2>' + table(drive))
    parts.append('<h2>At a glance</h2>' + cards(glance))
    parts.append('<h2>Status of every tick</h2>' + _strip(s.states) + _keys(states))
    if s.ages_ms:
        parts.append('<h2>Age of the trajectories when published [ms]</h2>' + _curve(s.ages_ms))
    if s.intervals_ms:
        parts.append('<h2>Time between trajectories [ms]</h2>' + _curve(s.intervals_ms))
    if s.stages_ms:
        parts.append('<h2>Time per stage, p50 and p95 [ms]</h2>' + stage_bars(s.stages_ms))
    parts.append('<h2>All numbers</h2>' + table(rows_of(s)))
    return document(f'Planner run: {s.model}', parts)


def _strip(states: tuple[PlanStatus, ...]) -> str:
    """Draw one coloured bar per run of ticks with the same status."""
    step = WIDTH / len(states)
    bars, start = [], 0
    for i in range(1, len(states) + 1):
        if i == len(states) or states[i] is not states[start]:
            bars.append(
                f'<rect x="{start * step:.1f}" width="{(i - start) * step:.2f}" height="28" '
                f'fill="{STATUS_COLOURS[states[start]]}"/>'
            )
            start = i
    return f'<svg viewBox="0 0 {WIDTH} 28">{"".join(bars)}</svg>'


def _keys(states) -> str:
    keys = [
        f'<span class="key" style="background:{colour}"></span>{status.name} {states[status]}'
        for status, colour in STATUS_COLOURS.items()
        if states[status]
    ]
    return f'<p>{"".join(keys)}</p>'


def _curve(values: tuple[float, ...], height: int = 150) -> str:
    """Draw the values in the order of time, with the lowest, middle and highest named."""
    data = np.array(values)
    # A single outlier must not flatten all the rest.
    top = max(float(np.percentile(data, 99)) * 1.25, float(np.median(data)) * 1.5, 1e-6)
    x = np.linspace(44, WIDTH - 6, len(data)) if len(data) > 1 else np.array([WIDTH / 2])
    y = height - 8 - np.clip(data / top, 0, 1) * (height - 20)
    points = ' '.join(f'{a:.1f},{b:.1f}' for a, b in zip(x, y, strict=True))
    grid = ''
    for share in (0, 0.5, 1):
        line = height - 8 - share * (height - 20)
        grid += (
            f'<path d="M44 {line:.0f}H{WIDTH}" stroke="#8884"/>'
            f'<text x="38" y="{line + 4:.0f}" text-anchor="end">{share * top:.0f}</text>'
        )
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}">{grid}<polyline points="{points}" fill="none" '
        'stroke="#2f81f7" stroke-width="1.5"/></svg>'
    )
