"""Render a recording as a video: the plan in force, drawn into each camera frame.

Above the picture lies what the planner said about itself, below it what it said about the
scene; the inset shows the plan and the path that was really driven from above.
"""

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from PIL import Image, ImageDraw, ImageFont
from tqdm import tqdm

from ..message_time import header_ns
from ..observation.image_decoding import decode_compressed, decode_raw
from ..pinhole import Pinhole
from ..types import PlanStatus
from .bag import BagError, read_messages
from .timeline import Ego, PublishedPlan, Timeline, read_timeline
from .video import VideoWriter

VEHICLE_WIDTH_M = 1.8
VIDEO_WIDTH = 1280
PANEL_HEIGHT = 104
SILENT_AFTER_NS = 1_000_000_000  # a plan that nobody renewed for so long is no longer shown
MARKED_TIMES_S = (1.0, 2.0, 3.0, 4.0)
STATUS_RGB = {
    PlanStatus.WAITING: (110, 118, 129),
    PlanStatus.NOMINAL: (35, 134, 54),
    PlanStatus.HELD: (187, 128, 9),
    PlanStatus.FALLBACK_STOP: (207, 34, 46),
}
# Speed [m/s] to colour, from standstill to fast.
SPEED_STOPS_MPS = (0.0, 4.0, 9.0, 16.0, 30.0)
SPEED_RGB = ((225, 40, 60), (245, 140, 40), (70, 200, 90), (40, 170, 235), (140, 110, 245))
INSET_PX = (220, 300)
INSET_AHEAD_M = 52.0


@dataclass(frozen=True, eq=False)
class Overlay:
    """What was rendered; `still` is one RGB frame of it to show elsewhere."""

    frames: int
    still: np.ndarray


@dataclass(frozen=True, eq=False)
class _Scene:
    """Everything that one frame of the video shows."""

    rgb: np.ndarray
    ego: Ego | None
    plan: PublishedPlan | None
    age_s: float
    positions_base_m: np.ndarray | None  # [N, 3] of the plan
    headings_base: np.ndarray | None  # [N, 3], unit vectors
    driven_base_m: np.ndarray  # [M, 3], the path of the seconds to come
    description: str


def render_overlay(
    bag: Path,
    output: Path,
    camera: Pinhole | None = None,
    image_topic: str | None = None,
    note: str = '',
) -> Overlay:
    """Render the recording `bag` as the mp4 file `output`.

    Without `camera` the recording's own CameraInfo and transform apply, or else a level camera
    with 60 degrees horizontal field of view, 1.5 m high and 1.5 m before base_link. `note` is
    shown in every frame. Raises BagError and VideoError.
    """
    timeline = read_timeline(bag, image_topic)
    stamps_ns, first = _image_stamps(bag, timeline)
    height, width = first.shape[:2]
    camera = camera or timeline.camera or Pinhole.level(width, height)
    if (camera.width, camera.height) != (width, height):
        camera = _scaled(camera, width, height)
    size = (VIDEO_WIDTH, round(VIDEO_WIDTH * height / width / 2) * 2)
    painter = _Painter(_scaled(camera, *size), note)
    rate_hz = (len(stamps_ns) - 1) * 1e9 / max(stamps_ns[-1] - stamps_ns[0], 1)
    still, still_rank = None, -1
    with VideoWriter(output, size[0], size[1] + PANEL_HEIGHT, rate_hz) as video:
        frames = tqdm(
            _frames(bag, timeline), 'rendering', len(stamps_ns), unit='frame', disable=None
        )
        for index, (stamp_ns, rgb) in enumerate(frames):
            scene = _scene_at(timeline, stamp_ns, rgb)
            picture = painter.paint(scene)
            video.add(picture, (stamp_ns - stamps_ns[0]) / 1e9)
            rank = _still_rank(scene, index / len(stamps_ns))
            if rank > still_rank:
                still, still_rank = picture, rank
    return Overlay(len(stamps_ns), still)


def _frames(bag: Path, timeline: Timeline) -> Iterator[tuple[int, np.ndarray]]:
    for _, _, _, message in read_messages(bag, [timeline.image_topic]):
        yield header_ns(message), _decoded(message)


def _image_stamps(bag: Path, timeline: Timeline) -> tuple[list[int], np.ndarray]:
    stamps_ns, first = [], None
    for _, _, _, message in read_messages(bag, [timeline.image_topic]):
        first = _decoded(message) if first is None else first
        stamps_ns.append(header_ns(message))
    if first is None:
        raise BagError(f'{bag}: holds no images on {timeline.image_topic}')
    return stamps_ns, first


def _decoded(message: Any) -> np.ndarray:
    if hasattr(message, 'format'):
        return decode_compressed(message.data, message.format)
    return decode_raw(
        message.encoding, message.height, message.width, message.step, message.data,
        bool(message.is_bigendian),
    )  # fmt: skip


def _scene_at(timeline: Timeline, stamp_ns: int, rgb: np.ndarray) -> _Scene:
    ego, plan = timeline.ego.at(stamp_ns), timeline.plan_at(stamp_ns)
    if plan is not None and stamp_ns - plan.published_ns > SILENT_AFTER_NS:
        plan = None
    positions = headings = None
    driven = np.zeros((0, 3))
    if ego is not None:
        ahead = timeline.ego.times_ns - stamp_ns
        driven = ego.to_base(timeline.ego.positions_m[(ahead >= 0) & (ahead <= 4e9)])
        in_base = plan and len(plan.time_s) >= 2 and timeline.plan_in_base(plan, ego)
        if in_base:
            positions, headings = in_base
    return _Scene(
        rgb, ego, plan, (stamp_ns - plan.t0_ns) / 1e9 if plan else 0.0, positions, headings,
        driven, timeline.description_at(stamp_ns),
    )  # fmt: skip


def _still_rank(scene: _Scene, progress: float) -> float:
    """Prefer frames of about two fifths of the way with a plan of their own and words."""
    shown = 0 if scene.plan is None else 2 if scene.plan.status is PlanStatus.NOMINAL else 1
    return 10 * shown + 5 * bool(scene.description) + 1 - abs(progress - 0.4)


def _scaled(camera: Pinhole, width: int, height: int) -> Pinhole:
    x, y = width / camera.width, height / camera.height
    return Pinhole(
        width, height, camera.fx * x, camera.fy * y, (camera.cx + 0.5) * x - 0.5,
        (camera.cy + 0.5) * y - 0.5, camera.rotation_base, camera.position_base_m,
    )  # fmt: skip


class _Painter:
    """Paints frames of one video, for a camera in the size of the video's picture."""

    def __init__(self, camera: Pinhole, note: str) -> None:
        self._camera = camera
        self._note = note
        # A panorama may be lower than the inset.
        self._inset_size = INSET_PX[0], max(60, min(INSET_PX[1], camera.height - 32))
        self._small, self._normal, self._bold = (_font(size) for size in (17, 20, 22))

    def paint(self, scene: _Scene) -> np.ndarray:
        size = (self._camera.width, self._camera.height)
        bigger = size[0] > scene.rgb.shape[1]
        picture = cv2.resize(scene.rgb, size, interpolation=cv2.INTER_CUBIC if bigger else
                             cv2.INTER_AREA)  # fmt: skip
        labels = []
        if scene.positions_base_m is not None:
            labels = self._ribbon(picture, scene)
        self._inset(picture, scene)
        canvas = np.zeros((size[1] + PANEL_HEIGHT, size[0], 3), np.uint8)
        canvas[: size[1]] = picture
        canvas[size[1] :] = (18, 22, 28)
        image = Image.fromarray(canvas)
        self._words(ImageDraw.Draw(image), scene, labels)
        return np.asarray(image)

    # -- the plan in the picture ----------------------------------------------------------------

    def _ribbon(self, picture: np.ndarray, scene: _Scene) -> list[tuple[tuple, str]]:
        left, right = _edges(scene)
        colours = _speed_colours(scene.plan.speed_mps)
        layer, mask = picture.copy(), np.zeros(picture.shape[:2], np.uint8)
        for i in range(len(left) - 1):
            quad = np.array([left[i], left[i + 1], right[i + 1], right[i]])
            pixels = self._fixed(self._camera.project_polygon(quad))
            if len(pixels) >= 3:
                cv2.fillPoly(layer, [pixels], colours[i], cv2.LINE_8, 4)
                cv2.fillPoly(mask, [pixels], 255, cv2.LINE_8, 4)
        x, y, width, height = cv2.boundingRect(mask)
        if not width:
            return []  # a standing vehicle's plan lies below the picture
        box = slice(y, y + height), slice(x, x + width)
        # Far quads are narrower than the mask's edge, so it is softened only a little.
        alpha = cv2.GaussianBlur(mask[box], (0, 0), 0.8)[..., None] * np.float32(0.5 / 255)
        picture[box] = picture[box] + (layer[box].astype(np.float32) - picture[box]) * alpha
        for edge in (left, right):
            self._line(picture, edge, (255, 255, 255), 2)
        labels = []
        for time_s in MARKED_TIMES_S:
            if time_s > scene.plan.time_s[-1]:
                continue
            ends = np.array([_at_time(scene.plan.time_s, edge, time_s) for edge in (left, right)])
            self._line(picture, ends, (255, 255, 255), 3)
            [(u, v)], [depth] = self._camera.project(ends[1:])
            if depth > 0.5 and v < picture.shape[0]:
                labels.append(((float(u) + 8, float(v) - 12), f'{time_s:g} s'))
        return labels

    def _line(self, picture, points, rgb, thickness) -> None:
        for a, b in pairwise(points):
            pixels = self._fixed(self._camera.project_polygon(np.array([a, b, b])))
            if len(pixels) >= 2:
                cv2.polylines(picture, [pixels], False, rgb, thickness, cv2.LINE_AA, 4)

    def _fixed(self, pixels: np.ndarray) -> np.ndarray:
        # OpenCV takes 1/16 pixels here; far outside the picture any value draws the same.
        return np.round(np.clip(pixels, -20_000, 20_000) * 16).astype(np.int32)

    # -- from above -----------------------------------------------------------------------------

    def _inset(self, picture: np.ndarray, scene: _Scene) -> None:
        width, height = self._inset_size
        x0, y0 = picture.shape[1] - width - 16, 16
        box = picture[y0 : y0 + height, x0 : x0 + width]
        box[:] = box * 0.25 + np.array([18, 22, 28]) * 0.75
        scale = (height - 40) / INSET_AHEAD_M

        def pixels(points):
            x = width / 2 - points[:, 1] * scale
            y = height - 30 - points[:, 0] * scale
            return np.round(np.stack([x, y], axis=-1) * 16).astype(np.int32)

        for ahead in range(0, int(INSET_AHEAD_M), 10):
            line = pixels(np.array([[ahead, 20.0], [ahead, -20.0]]))
            cv2.polylines(box, [line], False, (58, 66, 78), 1, cv2.LINE_AA, 4)
        if len(scene.driven_base_m) >= 2:
            points = pixels(scene.driven_base_m)
            cv2.polylines(box, [points], False, (235, 235, 235), 1, cv2.LINE_AA, 4)
        if scene.positions_base_m is not None:
            points = pixels(scene.positions_base_m)
            colours = _speed_colours(scene.plan.speed_mps)
            for i in range(len(points) - 1):
                cv2.polylines(box, [points[i : i + 2]], False, colours[i], 3, cv2.LINE_AA, 4)
        body = np.array([[3.4, 0.9], [3.4, -0.9], [-1.0, -0.9], [-1.0, 0.9]])
        cv2.fillPoly(box, [pixels(body)], (220, 224, 230), cv2.LINE_AA, 4)

    # -- words ----------------------------------------------------------------------------------

    def _words(self, draw, scene: _Scene, labels) -> None:
        for (u, v), text in labels:
            outline = {'stroke_width': 2, 'stroke_fill': (0, 0, 0)}
            draw.text((u, v), text, (255, 255, 255), self._normal, **outline)
        status = PlanStatus.WAITING if scene.plan is None else scene.plan.status
        x = self._chip(draw, (16, 16), status.name.replace('_', ' '), STATUS_RGB[status])
        if scene.ego is not None:
            speed = scene.ego.speed_mps
            x = self._chip(draw, (x + 8, 16), f'{speed * 3.6:.0f} km/h  ({speed:.1f} m/s)')
        if scene.plan is not None:
            self._chip(draw, (x + 8, 16), f'plan is {scene.age_s * 1e3:.0f} ms old')
        if self._note:
            self._chip(draw, (16, 58), self._note, (120, 72, 12))
        right = self._camera.width - self._inset_size[0] - 16
        top = 16 + self._inset_size[1]
        draw.text((right + 10, top - 25), 'plan', SPEED_RGB[3], self._small)
        draw.text((right + 54, top - 25), 'driven, 10 m grid', (200, 205, 212), self._small)
        self._panel(draw, scene)

    def _chip(self, draw, corner, text, rgb=(18, 22, 28)) -> float:
        x0, y0, x1, y1 = draw.textbbox((0, 0), text, self._bold)
        box = (corner[0], corner[1], corner[0] + x1 - x0 + 24, corner[1] + 34)
        draw.rounded_rectangle(box, 8, rgb)
        draw.text(
            (box[0] + 12 - x0, box[1] + 17 - (y0 + y1) / 2), text, (255, 255, 255), self._bold
        )
        return box[2]

    def _panel(self, draw, scene: _Scene) -> None:
        top = self._camera.height
        words = ' '.join(scene.description.split()) or '(no scene description yet)'
        draw.text((16, top + 11), 'The model says:', (140, 150, 162), self._small)
        for i, line in enumerate(_wrapped(words, self._normal, self._camera.width - 190)):
            draw.text((168, top + 8 + 29 * i), line, (232, 236, 240), self._normal)


def _wrapped(words: str, font: Any, width_px: float, max_lines: int = 3) -> list[str]:
    """Break the text into lines that fit; what does not fit in the last one is cut off."""
    length = len(words)
    while length > 8:
        lines = textwrap.wrap(words, length, max_lines=max_lines, placeholder=' …')
        if all(font.getlength(line) <= width_px for line in lines):
            return lines
        length -= max(1, length // 20)
    return [words[:8]]


def _edges(scene: _Scene) -> tuple[np.ndarray, np.ndarray]:
    """Return the left and right edge of the ribbon, [N, 3] each, in base."""
    side = np.cross([0.0, 0.0, 1.0], scene.headings_base) * (VEHICLE_WIDTH_M / 2)
    return scene.positions_base_m + side, scene.positions_base_m - side


def _at_time(time_s: np.ndarray, points: np.ndarray, at_s: float) -> list[float]:
    return [float(np.interp(at_s, time_s, axis)) for axis in points.T]


def _speed_colours(speed_mps: np.ndarray) -> list[tuple]:
    channels = [np.interp(speed_mps, SPEED_STOPS_MPS, c) for c in np.array(SPEED_RGB, float).T]
    return [tuple(float(value) for value in rgb) for rgb in zip(*channels, strict=True)]


def _font(size: int) -> Any:
    try:
        return ImageFont.truetype('DejaVuSans.ttf', size)
    except OSError:
        pass
    try:
        return ImageFont.load_default(size)
    except TypeError:  # Pillow before 10.1 has one size
        return ImageFont.load_default()
