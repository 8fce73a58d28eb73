"""Show a `Summary` as one HTML file that needs nothing else: no network, no scripts."""

import base64
from collections.abc import Sequence
from html import escape

import cv2
import numpy as np

from ..types import PlanStatus
from .summary import Summary, rows_of

STATUS_COLOURS = {
    PlanStatus.WAITING: '#6e7681',
    PlanStatus.NOMINAL: '#238636',
    PlanStatus.HELD: '#bb8009',
    PlanStatus.FALLBACK_STOP: '#cf222e',
}
STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8882; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.5rem; margin: .5rem 0; } h2 { font-size: 1.1rem; margin: 1.5rem 0 .5rem; }
.note { background: #bb800933; border-left: 4px solid #bb8009; padding: .6rem .8rem; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); gap: .6rem; }
.card { background: var(--soft); border-radius: 8px; padding: .6rem .8rem; }
.card b { display: block; font-size: 1.4rem; } .card span { font-size: .85rem; opacity: .8; }
img, svg { max-width: 100%; height: auto; display: block; border-radius: 6px; }
svg text { fill: currentColor; font: 12px system-ui, sans-serif; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th, td { text-align: left; vertical-align: top; padding: .3rem .8rem .3rem 0;
  border-bottom: 1px solid var(--line); overflow-wrap: anywhere; }
th { font-weight: 600; min-width: 9rem; }
.key { display: inline-block; width: .8em; height: .8em; border-radius: 2px;
  margin: 0 .3em 0 1em; }
"""
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
    cards = [
        (f'{s.rate_hz:.2f} Hz', 'trajectories published'),
        (f'{s.jitter_ms.p99:.1f} ms' if s.jitter_ms else '–', 'jitter of the period, p99'),
        (f'{s.age_ms.p50:.0f} ms' if s.age_ms else '–', 'age when published, p50'),
        (f'{nominal:.0f} %', 'of the ticks NOMINAL'),
        (str(s.missed_deadlines), 'missed deadlines'),
    ]
    parts = [
        '<!doctype html><html lang="en"><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f'<title>Planner run: {escape(s.model)}</title><style>{STYLE}</style>',
        f'<h1>Planner run: {escape(s.model)}</h1>',
        f'<p>{s.duration_s:.1f} s on {escape(s.backend)}.</p>',
    ]
    if s.model_note:
        parts.append(f'<p class="note">{escape(s.model_note)}</p>')
    if still_rgb is not None:
        parts.append(f'<img alt="The plan in the camera picture" src="{_data_url(still_rgb)}">')
    if drive:
        parts.append('<h2>The drive</h2>' + _table(drive))
    parts.append('<h2>At a glance</h2><div class="cards">')
    parts += [
        f'<div class="card"><b>{value}</b><span>{name}</span></div>' for value, name in cards
    ]
    parts.append('</div>')
    parts.append('<h2>Status of every tick</h2>' + _strip(s.states) + _keys(states))
    if s.ages_ms:
        parts.append('<h2>Age of the trajectories when published [ms]</h2>' + _curve(s.ages_ms))
    if s.intervals_ms:
        parts.append('<h2>Time between trajectories [ms]</h2>' + _curve(s.intervals_ms))
    if s.stages_ms:
        parts.append('<h2>Time per stage, p50 and p95 [ms]</h2>' + _bars(s))
    parts.append('<h2>All numbers</h2>' + _table(rows_of(s)))
    parts.append('</html>\n')
    return '\n'.join(parts)


def _table(rows: Sequence[tuple[str, str]]) -> str:
    cells = [f'<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>' for name, value in rows]
    return '\n'.join(['<table>', *cells, '</table>'])


def _data_url(rgb: np.ndarray) -> str:
    bgr = cv2.cvtColor(rgb, cv2.COLOR_RGB2BGR)
    _, jpeg = cv2.imencode('.jpg', bgr, [cv2.IMWRITE_JPEG_QUALITY, 82])
    return 'data:image/jpeg;base64,' + base64.b64encode(jpeg).decode('ascii')


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


def _bars(summary: Summary) -> str:
    longest = max(stage.p95 for _, stage in summary.stages_ms) or 1.0
    rows = []
    for i, (name, stage) in enumerate(summary.stages_ms):
        y = 6 + 30 * i
        scale = (WIDTH - 330) / longest
        rows.append(
            f'<text x="0" y="{y + 15}">{escape(name)}</text>'
            f'<rect x="150" y="{y}" width="{stage.p95 * scale:.1f}" height="20" fill="#2f81f755"/>'
            f'<rect x="150" y="{y}" width="{stage.p50 * scale:.1f}" height="20" fill="#2f81f7"/>'
            f'<text x="{158 + stage.p95 * scale:.0f}" y="{y + 15}">'
            f'{stage.p50:.1f} / {stage.p95:.1f}</text>'
        )
    height = 8 + 30 * len(rows)
    return f'<svg viewBox="0 0 {WIDTH} {height}">{"".join(rows)}</svg>'
