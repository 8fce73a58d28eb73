"""The pictures of a report, as small inline SVG: curves, sparklines, plans from above.

Sized for a phone: letters of 13 stay readable when 440 units are shown 345 pixels wide.
"""

import base64
from collections.abc import Sequence
from html import escape

import cv2
import numpy as np

from ..pinhole import Pinhole
from .bootstrap import Estimate
from .displacement import offsets_in
from .page import BLUE, GREEN, ORANGE
from .replay_run import BagReplay

WIDTH, HEIGHT = 440, 240
LEFT, BOTTOM, TOP = 44, 36, 12
COLOURS = (BLUE, ORANGE)
SPARK_POINTS = 100
ABOVE = (360, 150)
PICTURE_WIDTH = 480

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
            parts.append(f'<polygon points="{_points(up + down[::-1])}" fill="{colour}33"/>')
        middle = [(x_of(x), y_of(e.value)) for x, e in zip(xs, ys, strict=True)]
        parts.append(_line(middle, colour))
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
        parts += [_line(points, colour), _key(number, name, colour, low=True)]
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
        f'<polyline points="{_points(run)}" fill="none" stroke="{BLUE}" stroke-width="1.2"/>'
        for run in runs
        if len(run) > 1
    )
    return f'<svg class="spark" viewBox="0 0 100 24" aria-hidden="true">{lines}</svg>'


def above(replay: BagReplay, place: int) -> str:
    """Draw plan, truth and others of one tick from above, ahead is to the right."""
    width, height = ABOVE
    paths = _paths(replay, place)
    every = np.concatenate([np.zeros((1, 2)), *paths])
    behind_m = min(float(every[:, 0].min()), -2.0)
    ahead_m = max(float(every[:, 0].max()), 15.0)
    aside_m = max(float(np.abs(every[:, 1]).max()) + 2.0, 6.0)
    scale = min((width - 16) / (ahead_m - behind_m), height / (2 * aside_m))

    def at(points: np.ndarray) -> list[tuple[float, float]]:
        return [
            (8 + (x - behind_m) * scale, height / 2 - y * scale)
            for x, y in points.tolist()
        ]  # fmt: skip

    parts, spacing = [], 10.0 if scale > 2.5 else 50.0
    for line_m in np.arange(0, (width - 8) / scale + behind_m, spacing).tolist():
        x = 8 + (line_m - behind_m) * scale
        parts.append(
            f'<path d="M{x:.1f} 0V{height}" stroke="#8884"/>'
            f'<text x="{x + 2:.1f}" y="{height - 3}">{line_m:.0f} m</text>'
        )
    parts += [
        f'<polygon points="{_points(at(box))}" fill="#8888"/>' for box in _others(replay, place)
    ]
    ego = np.array([(3.7, 0.9), (3.7, -0.9), (-0.9, -0.9), (-0.9, 0.9)])
    parts.append(f'<polygon points="{_points(at(ego))}" fill="none" stroke="currentColor"/>')
    for path, colour in zip(paths, (GREEN, BLUE), strict=True):
        if len(path):
            parts.append(_line(at(np.concatenate([np.zeros((1, 2)), path])), colour, 2.5))
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="from above">'
        f'{"".join(parts)}</svg>'
    )


def in_picture(replay: BagReplay, place: int) -> str:
    """Return the camera picture of a tick with plan and truth drawn in it; '' without one."""
    path = replay.thumbnail(place)
    if path is None:
        return ''
    bgr = cv2.imdecode(np.frombuffer(path.read_bytes(), np.uint8), cv2.IMREAD_COLOR)
    if bgr is None:
        return ''
    height, width = bgr.shape[:2]
    shown = bgr
    if width > PICTURE_WIDTH:
        size = PICTURE_WIDTH, round(height * PICTURE_WIDTH / width)
        shown = cv2.resize(bgr, size, interpolation=cv2.INTER_AREA)
    _, jpeg = cv2.imencode('.jpg', shown, [cv2.IMWRITE_JPEG_QUALITY, 75])
    url = 'data:image/jpeg;base64,' + base64.b64encode(jpeg).decode('ascii')
    height, width = shown.shape[:2]
    lines = ''
    camera = replay.camera()
    if camera is not None:
        for path_m, colour in zip(_paths(replay, place), ('#3fb950', '#58a6ff'), strict=True):
            points = _projected(camera, path_m) * (width / camera.width)
            if len(points) > 1:
                lines += _line([tuple(point) for point in points.tolist()], colour, 2.5)
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="camera picture">'
        f'<image href="{url}" width="{width}" height="{height}"/>{lines}</svg>'
    )


def _paths(replay: BagReplay, place: int) -> list[np.ndarray]:
    """Return what was driven and the plan [N, 2], in base at the tick; without a plan of its own
    a tick has none, whatever is held.
    """
    if replay.own[place]:
        paths = [replay.truth_m[place, :, :2], replay.plan_xy_m[place]]
    else:
        after_ns = np.arange(0, 11) * 500_000_000
        track = replay.driven(replay.grid_ns[place] + after_ns)
        paths = [offsets_in(track[0, 2], track[1:, :2] - track[0, :2]), np.zeros((0, 2))]
    return [path[np.isfinite(path[:, 0])] for path in paths]


def _others(replay: BagReplay, place: int) -> list[np.ndarray]:
    """Return the corners [4, 2] in base of a simulator's road users at a tick."""
    world = replay.worlds[place]
    if not world or not np.isfinite(replay.ego[place, 0]):
        return []
    from .footprints import footprint_corners

    x, y, heading = replay.ego[place, :3]
    boxes = np.array(
        [(b['x_m'], b['y_m'], b['heading_rad'], *b['size_m'][:2]) for b in world['bodies']], float
    ).reshape(-1, 5)
    offset = offsets_in(np.full(len(boxes), heading), boxes[:, :2] - (x, y))
    near = np.hypot(*offset.T) < 80
    turned = np.column_stack([offset, boxes[:, 2] - heading, boxes[:, 3:]])[near]
    return list(footprint_corners(turned))


def _projected(camera: Pinhole, path_m: np.ndarray) -> np.ndarray:
    pixels, depth = camera.project(np.pad(path_m, ((0, 0), (0, 1))))
    return pixels[depth > 1.0]


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


def _line(points: Sequence[tuple[float, float]], colour: str, width: float = 2) -> str:
    return (
        f'<polyline points="{_points(points)}" fill="none" stroke="{colour}" '
        f'stroke-width="{width}" stroke-linejoin="round"/>'
    )


def _points(points: Sequence[tuple[float, float]]) -> str:
    return ' '.join(f'{x:.1f},{y:.1f}' for x, y in points)


def _svg(parts: Sequence[str], words: str) -> str:
    return (
        f'<svg class="plot" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{escape(words)}">{"".join(parts)}</svg>'
    )
