"""The worst moments of a run for a report: what was seen, planned, driven and said."""

import base64
from functools import lru_cache
from html import escape

import cv2
import numpy as np

from ..pinhole import Pinhole
from ..replay.replay_run import BagReplay, read_bag
from .columns import RANKED
from .displacement import offsets_in
from .footprints import footprint_corners
from .page import BLUE, GREEN
from .plain_text import plain
from .report_plots import line, points_of
from .run_metrics import JudgedRun

CASES, CASES_PER_BAG = 12, 3
ABOVE = (360, 150)
PICTURE_WIDTH = 480


def cases(run: JudgedRun) -> str:
    """Return the section of the worst moments of all bags, '' when nothing could be judged."""
    places = [
        (float(bag.values[RANKED][place]), bag, place)
        for bag in run.bags
        for place in bag.worst[: max(CASES_PER_BAG, CASES // len(run.bags))]
    ]
    places.sort(key=lambda case: -case[0])
    read = lru_cache(maxsize=CASES)(read_bag)
    shown = [_case(error, read(bag.folder), place) for error, bag, place in places[:CASES]]
    if not shown:
        return ''
    return (
        '<h2>Worst moments</h2><p>By ADE to 3 s; a tick without a plan counts as standing still. '
        'Blue is what was published, green what was driven.</p>'
        f'<div class="cases">{"".join(shown)}</div>'
    )


def _case(error: float, replay: BagReplay, place: int) -> str:
    speed_mps = replay.ego[place, 3]
    lines = [
        f'{replay.name} at {replay.time_s[place]:.1f} s, tick {replay.tick[place]}: '
        f'{error:.2f} m, {replay.status[place]}, '
        + (f'{speed_mps:.1f} m/s, ' if np.isfinite(speed_mps) else '')
        + f'command {plain(replay.commands[place] or "none", 20)}',
        *(f'{words}: {plain(text)}' for words, text in (
            ('why', replay.reasons[place]),
            ('answer', replay.answers[place]),
            ('description', replay.descriptions[place]),
        ) if text),
    ]  # fmt: skip
    views = [_in_picture(replay, place), _above(replay, place)]
    words = ''.join(f'<p>{escape(line)}</p>' for line in lines)
    return f'<div class="case"><div class="views">{"".join(views)}</div>{words}</div>'


def _above(replay: BagReplay, place: int) -> str:
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
    # No line so near the edge that its words are cut off.
    for line_m in np.arange(0, (width - 50) / scale + behind_m, spacing).tolist():
        x = 8 + (line_m - behind_m) * scale
        parts.append(
            f'<path d="M{x:.1f} 0V{height}" stroke="#8884"/>'
            f'<text x="{x + 2:.1f}" y="{height - 3}">{line_m:.0f} m</text>'
        )
    parts += [
        f'<polygon points="{points_of(at(box))}" fill="#8888"/>' for box in _others(replay, place)
    ]
    ego = np.array([(3.7, 0.9), (3.7, -0.9), (-0.9, -0.9), (-0.9, 0.9)])
    parts.append(f'<polygon points="{points_of(at(ego))}" fill="none" stroke="currentColor"/>')
    for path, colour in zip(paths, (GREEN, BLUE), strict=True):
        if len(path):
            parts.append(line(at(np.concatenate([np.zeros((1, 2)), path])), colour, 2.5))
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="from above">'
        f'{"".join(parts)}</svg>'
    )


def _in_picture(replay: BagReplay, place: int) -> str:
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
                lines += line([tuple(point) for point in points.tolist()], colour, 2.5)
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="camera picture">'
        f'<image href="{url}" width="{width}" height="{height}"/>{lines}</svg>'
    )


def _paths(replay: BagReplay, place: int) -> list[np.ndarray]:
    """Return what was driven and what was published [N, 2], in base at its t0."""
    if replay.t0_ns[place]:
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
    from ..simulation.plan_terms import GroundTruthError, Worlds

    try:
        boxes = Worlds([world]).boxes[0]
    except GroundTruthError:  # said among what could not be judged
        return []
    x, y, heading = replay.ego[place, :3]
    offset = offsets_in(np.full(len(boxes), heading), boxes[:, :2] - (x, y))
    near = np.hypot(*offset.T) < 80
    turned = np.column_stack([offset, boxes[:, 2] - heading, boxes[:, 3:]])[near]
    return list(footprint_corners(turned))


def _projected(camera: Pinhole, path_m: np.ndarray) -> np.ndarray:
    pixels, depth = camera.project(np.pad(path_m, ((0, 0), (0, 1))))
    return pixels[depth > 1.0]
