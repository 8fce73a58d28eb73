"""Paint one frame of a video: a camera picture, the plan in it, words, a view from above."""

import textwrap
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import cv2
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from ..pinhole import Pinhole
from ..planning.figure import (
    COMPACT_CAR,
    EDGE_RGB,
    SPEED_RGB,
    DrawnPlan,
    Footprint,
    horizon_bars,
    speed_rgb,
)
from ..types import PlanStatus

VIDEO_WIDTH = 1280
PANEL_HEIGHT = 104
STATUS_RGB = {
    PlanStatus.WAITING: (110, 118, 129),
    PlanStatus.NOMINAL: (35, 134, 54),
    PlanStatus.HELD: (187, 128, 9),
    PlanStatus.FALLBACK_STOP: (207, 34, 46),
}
FAULT_RGB = (207, 34, 46)
DRIVEN_RGB, JUDGING_RGB = (235, 235, 235), (63, 185, 80)  # of the driven path
NO_CAMERA_INFO = 'no CameraInfo: a level camera is assumed'
INSET_PX = (220, 300)
INSET_AHEAD_M = 52.0
# Seen from above, in the order of painting: polygons [K, 2] of the base frame, and colours.
Shapes = tuple[tuple[np.ndarray, tuple[int, int, int]], ...]


@dataclass(frozen=True, eq=False)
class Instant:
    """Everything that one frame of the video shows."""

    rgb: np.ndarray  # uint8 [height, width, 3]
    speed_mps: float | None
    plan: DrawnPlan | None  # the one in force, in the base frame of this instant
    driven_base_m: np.ndarray  # [M, 3], the path of the seconds to come
    description: str
    chips: tuple[str, ...] = ()  # further words in the picture's first line
    faults: tuple[str, ...] = ()  # what has gone wrong, in red
    shapes_base_m: Shapes = ()


def scaled(camera: Pinhole, width: int, height: int) -> Pinhole:
    """Return the camera for a picture of another size."""
    x, y = width / camera.width, height / camera.height
    return Pinhole(
        width, height, camera.fx * x, camera.fy * y, (camera.cx + 0.5) * x - 0.5,
        (camera.cy + 0.5) * y - 0.5, camera.rotation_base, camera.position_base_m,
    )  # fmt: skip


def video_camera(camera: Pinhole | None, width: int, height: int) -> Pinhole:
    """Return the camera for the video of pictures of a size, a level one where it is unknown."""
    camera = camera or Pinhole.level(width, height)
    return scaled(camera, VIDEO_WIDTH, round(VIDEO_WIDTH * height / width / 2) * 2)


class OverlayPainter:
    """Paints frames of one video, for a camera in the size of the video's picture.

    With `judging` the driven path is drawn into the picture too, beside a plan that did not
    drive it.
    """

    def __init__(
        self,
        camera: Pinhole,
        note: str,
        footprint: Footprint = COMPACT_CAR,
        judging: bool = False,
    ) -> None:
        self._camera = camera
        self._note = note
        self._footprint = footprint
        self._judging = judging
        self._driven_rgb = JUDGING_RGB if judging else DRIVEN_RGB
        # A panorama may be lower than the inset.
        self._inset_size = INSET_PX[0], max(60, min(INSET_PX[1], camera.height - 32))
        self._small, self._normal, self._bold = (load_font(size) for size in (17, 20, 22))

    @property
    def frame_size(self) -> tuple[int, int]:
        """Width and height of a frame."""
        return self._camera.width, self._camera.height + PANEL_HEIGHT

    def paint(self, instant: Instant) -> np.ndarray:
        """Return the frame, uint8 [height + PANEL_HEIGHT, width, 3]."""
        size = (self._camera.width, self._camera.height)
        bigger = size[0] > instant.rgb.shape[1]
        picture = cv2.resize(instant.rgb, size, interpolation=cv2.INTER_CUBIC if bigger else
                             cv2.INTER_AREA)  # fmt: skip
        labels = []
        if instant.plan is not None and instant.plan.positions_m is not None:
            labels = self._ribbon(picture, instant)
        if self._judging:
            self._line(picture, instant.driven_base_m, self._driven_rgb, 3)
        self._inset(picture, instant)
        canvas = np.zeros((size[1] + PANEL_HEIGHT, size[0], 3), np.uint8)
        canvas[: size[1]] = picture
        canvas[size[1] :] = (18, 22, 28)
        image = Image.fromarray(canvas)
        self._words(ImageDraw.Draw(image), instant, labels)
        return np.asarray(image)

    # -- the plan in the picture ----------------------------------------------------------------

    def _ribbon(self, picture: np.ndarray, instant: Instant) -> list[tuple[tuple, str]]:
        left, right = instant.plan.edges(self._footprint.width_m)
        colours = speed_rgb(instant.plan.speed_mps).tolist()
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
            self._line(picture, edge, EDGE_RGB[instant.plan.status], 2)
        labels = []
        for time_s, ends in horizon_bars(instant.plan, self._footprint.width_m):
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

    def _inset(self, picture: np.ndarray, instant: Instant) -> None:
        width, height = self._inset_size
        x0, y0 = picture.shape[1] - width - 16, 16
        box = picture[y0 : y0 + height, x0 : x0 + width]
        box[:] = box * 0.25 + np.array([18, 22, 28]) * 0.75
        scale = (height - 40) / INSET_AHEAD_M

        def pixels(points):
            x = width / 2 - points[:, 1] * scale
            y = height - 30 - points[:, 0] * scale
            return np.round(np.stack([x, y], axis=-1) * 16).astype(np.int32)

        for shape, rgb in instant.shapes_base_m:
            cv2.fillPoly(box, [pixels(shape)], rgb, cv2.LINE_AA, 4)
        for ahead in range(0, int(INSET_AHEAD_M), 10):
            line = pixels(np.array([[ahead, 20.0], [ahead, -20.0]]))
            cv2.polylines(box, [line], False, (58, 66, 78), 1, cv2.LINE_AA, 4)
        if len(instant.driven_base_m) >= 2:
            points = pixels(instant.driven_base_m)
            cv2.polylines(box, [points], False, self._driven_rgb, 1, cv2.LINE_AA, 4)
        if instant.plan is not None and instant.plan.positions_m is not None:
            points = pixels(instant.plan.positions_m)
            colours = speed_rgb(instant.plan.speed_mps).tolist()
            for i in range(len(points) - 1):
                cv2.polylines(box, [points[i : i + 2]], False, colours[i], 3, cv2.LINE_AA, 4)
        body = self._footprint.corners_base_m()
        cv2.fillPoly(box, [pixels(body)], (220, 224, 230), cv2.LINE_AA, 4)

    # -- words ----------------------------------------------------------------------------------

    def _words(self, draw, instant: Instant, labels) -> None:
        for (u, v), text in labels:
            outline = {'stroke_width': 2, 'stroke_fill': (0, 0, 0)}
            draw.text((u, v), text, (255, 255, 255), self._normal, **outline)
        status = PlanStatus.WAITING if instant.plan is None else instant.plan.status
        x = self._chip(draw, (16, 16), status.name.replace('_', ' '), STATUS_RGB[status])
        if instant.speed_mps is not None:
            speed = instant.speed_mps
            x = self._chip(draw, (x + 8, 16), f'{speed * 3.6:.0f} km/h  ({speed:.1f} m/s)')
        chips = list(instant.chips)
        if instant.plan is not None:
            chips.insert(0, f'plan is {instant.plan.age_s * 1e3:.0f} ms old')
        for words in chips:
            x = self._chip(draw, (x + 8, 16), words)
        y = 58
        if self._note:
            self._chip(draw, (16, y), self._note, (120, 72, 12))
            y += 42
        for words in instant.faults:
            self._chip(draw, (16, y), words, FAULT_RGB)
            y += 42
        right = self._camera.width - self._inset_size[0] - 16
        top = 16 + self._inset_size[1]
        draw.text((right + 10, top - 25), 'plan', SPEED_RGB[3], self._small)
        draw.text((right + 54, top - 25), 'driven, 10 m grid', self._driven_rgb, self._small)
        self._panel(draw, instant)

    def _chip(self, draw, corner, text, rgb=(18, 22, 28)) -> float:
        x0, y0, x1, y1 = draw.textbbox((0, 0), text, self._bold)
        box = (corner[0], corner[1], corner[0] + x1 - x0 + 24, corner[1] + 34)
        draw.rounded_rectangle(box, 8, rgb)
        draw.text(
            (box[0] + 12 - x0, box[1] + 17 - (y0 + y1) / 2), text, (255, 255, 255), self._bold
        )
        return box[2]

    def _panel(self, draw, instant: Instant) -> None:
        top = self._camera.height
        words = ' '.join(instant.description.split()) or '(no scene description yet)'
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


def load_font(size: int) -> Any:
    """Return a font of that size in pixels, a plain one where there is nothing better."""
    try:
        return ImageFont.truetype('DejaVuSans.ttf', size)
    except OSError:
        pass
    try:
        return ImageFont.load_default(size)
    except TypeError:  # Pillow before 10.1 has one size
        return ImageFont.load_default()
