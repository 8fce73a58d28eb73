"""The plots of a report, as small inline SVG.

Sized for a phone: letters of 13 stay readable when 440 units are shown 345 pixels wide.
"""

from collections.abc import Sequence
from html import escape

import numpy as np

from .bootstrap import Estimate
from .page import BLUE, ORANGE

WIDTH, HEIGHT = 440, 240
LEFT, BOTTOM, TOP = 44, 36, 12
COLOURS = (BLUE, ORANGE)
SPARK_POINTS = 100

Curve = tuple[str, Sequence[float], Sequence[Estimate]]


def curves(lines: Sequence[Curve], x_words: str, y_words: str) -> str:
    """Draw (name, x, estimates) with their intervals as bands, from 0 on."""
    highest = max(
        (value for _, _, ys in lines for e in ys for value in (e.value, e.high) if value),
        default=1,
    )
    furthest = max((x for _, xs, _ in lines for x in xs), default=1)
    x_axis, y_axis = _nice(furthest, 6), _nice(highest, 4)
    x_of, y_of = _scales(x_axis[0], y_axis[0])
    parts = [_axes(x_axis, y_axis, x_words, y_words)]
    for number, (name, xs, ys) in enumerate(lines):
        colour = COLOURS[number % len(COLOURS)]
        if all(e.low is not None for e in ys):
            up = [(x_of(x), y_of(e.high)) for x, e in zip(xs, ys, strict=True)]
            down = [(x_of(x), y_of(e.low)) for x, e in zip(xs, ys, strict=True)]
            parts.append(f'<polygon points="{points_of(up + down[::-1])}" fill="{colour}33"/>')
        middle = [(x_of(x), y_of(e.value)) for x, e in zip(xs, ys, strict=True)]
        parts.append(line(middle, colour))
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in middle]
        parts.append(_key(number, name, colour))
    return _svg(parts, f'{y_words} over {x_words}')


def shares(lines: Sequence[tuple[str, np.ndarray]], x_words: str) -> str:
    """Draw which share of values [N] is below x, up to their 99th percentile."""
    known = [(name, np.sort(values[np.isfinite(values)])) for name, values in lines]
    known = [(name, values) for name, values in known if len(values)]
    furthest = max((float(np.percentile(values, 99)) for _, values in known), default=1) or 1.0
    x_axis = _nice(furthest, 6)
    x_of, y_of = _scales(x_axis[0], 1.0)
    parts = [_axes(x_axis, (1.0, 0.25), x_words, 'share')]
    for number, (name, values) in enumerate(known):
        x = np.linspace(0, x_axis[0], 80)
        below = np.searchsorted(values, x, side='right') / len(values)
        colour = COLOURS[number % len(COLOURS)]
        points = [(x_of(a), y_of(b)) for a, b in zip(x.tolist(), below.tolist(), strict=True)]
        parts += [line(points, colour), _key(number, name, colour, low=True)]
    return _svg(parts, f'share of ticks below {x_words}')


def sparkline(values: np.ndarray, top: float) -> str:
    """Draw values [N] over time on a scale up to `top`, with gaps where there are none."""
    step = max(1, -(-len(values) // SPARK_POINTS))
    chunks = [values[i : i + step] for i in range(0, len(values), step)]
    peaks = [float(np.nanmax(chunk)) if np.isfinite(chunk).any() else None for chunk in chunks]
    runs: list[list[tuple[float, float]]] = [[]]
    for place, peak in enumerate(peaks):
        if peak is None:
            runs.append([])
        else:
            x = 2 + 96 * place / max(len(peaks) - 1, 1)
            runs[-1].append((x, 22 - 20 * min(peak / (top or 1.0), 1.0)))
    lines = ''.join(
        f'<polyline points="{points_of(run)}" fill="none" stroke="{BLUE}" stroke-width="1.2"/>'
        for run in runs
        if len(run) > 1
    )
    return f'<svg class="spark" viewBox="0 0 100 24" aria-hidden="true">{lines}</svg>'


def _nice(highest: float, steps: int) -> tuple[float, float]:
    """Return (end, step) of an axis from 0 on: round numbers, at most about `steps` of them."""
    rough = max(highest, 1e-6) / steps
    power = 10 ** np.floor(np.log10(rough))
    step = float(next(power * m for m in (1, 2, 2.5, 5, 10) if power * m >= rough * 0.999))
    return float(np.ceil(highest / step - 1e-6)) * step or step, step


def _scales(furthest: float, highest: float):
    def x_of(x: float) -> float:
        return LEFT + (WIDTH - LEFT - 16) * x / furthest

    def y_of(y: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * min(y / highest, 1.0)

    return x_of, y_of


def _axes(
    x_axis: tuple[float, float], y_axis: tuple[float, float], x_words: str, y_words: str
) -> str:
    (furthest, x_step), (highest, y_step) = x_axis, y_axis
    x_of, y_of = _scales(furthest, highest)
    parts = []
    for value in np.arange(0, highest + y_step / 2, y_step).tolist():
        y = y_of(value)
        parts.append(
            f'<path d="M{LEFT} {y:.1f}H{WIDTH - 16}" stroke="#8884"/>'
            f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:.4g}</text>'
        )
    for value in np.arange(0, furthest + x_step / 2, x_step).tolist():
        parts.append(
            f'<text x="{x_of(value):.1f}" y="{HEIGHT - BOTTOM + 16}" '
            f'text-anchor="middle">{value:.4g}</text>'
        )
    parts.append(
        f'<text x="{WIDTH - 10}" y="{HEIGHT - 4}" text-anchor="end">{escape(x_words)}</text>'
        f'<text x="4" y="{HEIGHT - 4}">{escape(y_words)}</text>'
    )
    return ''.join(parts)


def _key(number: int, name: str, colour: str, low: bool = False) -> str:
    y = (HEIGHT - BOTTOM - 40 if low else TOP + 12) + 18 * number
    x = WIDTH - 20 if low else LEFT + 8
    anchor = 'end' if low else 'start'
    return (
        f'<text x="{x}" y="{y}" text-anchor="{anchor}" style="fill:{colour}">{escape(name)}</text>'
    )


def line(points: Sequence[tuple[float, float]], colour: str, width: float = 2) -> str:
    """Return a line through points of the picture."""
    return (
        f'<polyline points="{points_of(points)}" fill="none" stroke="{colour}" '
        f'stroke-width="{width}" stroke-linejoin="round"/>'
    )


def points_of(points: Sequence[tuple[float, float]]) -> str:
    """Return points as SVG writes them."""
    return ' '.join(f'{x:.1f},{y:.1f}' for x, y in points)


def _svg(parts: Sequence[str], words: str) -> str:
    return (
        f'<svg class="plot" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{escape(words)}">{"".join(parts)}</svg>'
    )
