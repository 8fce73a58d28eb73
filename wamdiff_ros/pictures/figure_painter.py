"""Pictures of a plan's shapes without RViz: from behind the vehicle, from above, from any camera.

Paints with OpenCV in the order of the shapes, which all lie near the ground, so that nothing has
to be sorted by depth.
"""

from collections.abc import Sequence

import cv2
import numpy as np
from PIL import Image, ImageDraw

from ..pinhole import Pinhole
from ..planning.figure import Kind, Shape
from .overlay_painter import load_font

BACKGROUND_RGB, GRID_RGB = (48, 48, 48), (84, 84, 88)  # as in config/planner.rviz
GRID_M, GRID_REACH_M = 10.0, 100.0
CHASE_PX, ABOVE_PX = (960, 640), (400, 640)
LETTER_PX = (12, 26)  # smallest and largest letters
_SHIFT = 4  # OpenCV takes 1/16 pixels


def chase_camera(width: int = CHASE_PX[0], height: int = CHASE_PX[1]) -> Pinhole:
    """Return a camera behind and above the vehicle, in its base frame, as in planner.rviz."""
    return _looking((-19.0, 0.0, 13.0), (8.0, 0.0, 0.0), (0.0, 0.0, 1.0), width, height, 45.0)


def above_camera(width: int = ABOVE_PX[0], height: int = ABOVE_PX[1]) -> Pinhole:
    """Return a camera high above the vehicle's way ahead; forward is up in its picture."""
    return _looking((16.0, 0.0, 80.0), (16.0, 0.0, 0.0), (1.0, 0.0, 0.0), width, height, 36.0)


def paint_views(shapes: Sequence[Shape]) -> np.ndarray:
    """Return the view from behind and the one from above side by side, uint8 [H, W, 3].

    The shapes are in the base frame.
    """
    views = [paint(ground(camera), shapes, camera) for camera in (chase_camera(), above_camera())]
    return np.concatenate(views, axis=1)


def ground(camera: Pinhole) -> np.ndarray:
    """Return the picture of a bare ground with a grid of 10 m, uint8 [H, W, 3]."""
    picture = np.full((camera.height, camera.width, 3), BACKGROUND_RGB, np.uint8)
    reach = GRID_REACH_M
    for at_m in np.arange(-reach, reach + GRID_M / 2, GRID_M):
        for ends in ([[at_m, -reach, 0], [at_m, reach, 0]], [[-reach, at_m, 0], [reach, at_m, 0]]):
            _line(picture, np.array(ends), camera, GRID_RGB, 1)
    return picture


def paint(picture: np.ndarray, shapes: Sequence[Shape], camera: Pinhole) -> np.ndarray:
    """Return the picture with the shapes in it, as the camera sees them, uint8 [H, W, 3].

    The shapes are in the frame that the camera's pose is in.
    """
    picture = picture.copy()
    for shape in shapes:
        if shape.kind is Kind.TRIANGLES:
            _triangles(picture, shape, camera)
        elif shape.kind is Kind.LINES:
            for ends, rgb in zip(shape.points_m.reshape(-1, 2, 3), shape.rgb[::2], strict=True):
                thickness = max(1, round(shape.size_m * _pixels_per_m(ends, camera)))
                _line(picture, ends, camera, rgb.tolist(), thickness)
    image = Image.fromarray(picture)
    draw = ImageDraw.Draw(image)
    for shape in shapes:
        if shape.kind is Kind.TEXT and len(shape.points_m):
            _text(draw, shape, camera)
    return np.asarray(image)


def _triangles(picture: np.ndarray, shape: Shape, camera: Pinhole) -> None:
    layer, mask = picture.copy(), np.zeros(picture.shape[:2], np.uint8)
    corners = shape.points_m.reshape(-1, 3, 3)
    for points, rgb in zip(corners, shape.rgb.reshape(-1, 3, 3), strict=True):
        pixels = _fixed(camera.project_polygon(points))
        if len(pixels) >= 3:
            cv2.fillPoly(layer, [pixels], rgb.mean(axis=0).tolist(), cv2.LINE_8, _SHIFT)
            cv2.fillPoly(mask, [pixels], 255, cv2.LINE_8, _SHIFT)
    covered = mask > 0
    mixed = shape.alpha * layer[covered] + (1 - shape.alpha) * picture[covered]
    picture[covered] = mixed.astype(np.uint8)


def _line(picture: np.ndarray, ends: np.ndarray, camera: Pinhole, rgb, thickness: int) -> None:
    pixels = _fixed(camera.project_polygon(ends[[0, 1, 1]]))  # cut off at the camera
    if len(pixels) >= 2:
        cv2.polylines(picture, [pixels], False, rgb, thickness, cv2.LINE_AA, _SHIFT)


def _text(draw: ImageDraw.ImageDraw, shape: Shape, camera: Pinhole) -> None:
    [(u, v)], [depth_m] = camera.project(shape.points_m[:1])
    if depth_m <= 0.5:
        return
    size = round(np.clip(shape.size_m * camera.fx / depth_m, *LETTER_PX))
    font = load_font(int(size))
    x0, y0, x1, y1 = draw.multiline_textbbox((0, 0), shape.text, font, align='center')
    # Words too wide for the picture's edge are moved into it.
    x = min(max(u - (x1 - x0) / 2, 4), max(camera.width - (x1 - x0) - 4, 4))
    y = min(max(v - (y1 - y0) / 2, 4), camera.height - (y1 - y0) - 4)
    fill = tuple(int(value) for value in shape.rgb[0])
    outline = {'stroke_width': 2, 'stroke_fill': (0, 0, 0)}
    draw.multiline_text((x - x0, y - y0), shape.text, fill, font, align='center', **outline)


def _pixels_per_m(points: np.ndarray, camera: Pinhole) -> float:
    return camera.fx / max(float(camera.to_optical(points)[:, 2].mean()), 1.0)


def _fixed(pixels: np.ndarray) -> np.ndarray:
    # Far outside the picture any value draws the same.
    return np.round(np.clip(pixels, -20_000, 20_000) * 2**_SHIFT).astype(np.int32)


def _looking(position_m, target_m, up, width: int, height: int, fov_deg: float) -> Pinhole:
    """Return a camera at a place that looks at another; `fov_deg` is of the picture's height."""
    forward = np.subtract(target_m, position_m)
    forward = forward / np.linalg.norm(forward)
    right = np.cross(forward, up)
    right /= np.linalg.norm(right)
    focal = height / 2 / np.tan(np.radians(fov_deg) / 2)
    axes = np.stack([right, np.cross(forward, right), forward], axis=1)
    centre = ((width - 1) / 2, (height - 1) / 2)
    return Pinhole(width, height, focal, focal, *centre, axes, np.array(position_m))
