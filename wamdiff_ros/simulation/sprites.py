"""Trees and bushes, painted once and pasted at any size: RGBA pictures of what grows here."""

import cv2
import numpy as np

SIZE_PX = (256, 320)  # width, height of the largest level


def tree(rng: np.random.Generator, conifer: bool) -> list[np.ndarray]:
    """Return one tree as float32 RGBA levels, each half as large as the one before."""
    width, height = SIZE_PX
    rgba = np.zeros((height, width, 4), np.float32)
    trunk = np.array([96, 78, 62], np.float32) * rng.uniform(0.8, 1.1)
    _polygon(rgba, [(121, 150), (135, 150), (139, 319), (117, 319)], trunk)
    hue = np.array([rng.uniform(68, 104), rng.uniform(104, 128), rng.uniform(48, 66)])
    if conifer:
        _conifer(rgba, rng, hue * 0.8)
    else:
        _crown(rgba, rng, hue)
    return _levels(rgba)


def bush(rng: np.random.Generator) -> list[np.ndarray]:
    """Return a low bush as float32 RGBA levels."""
    width, height = SIZE_PX
    rgba = np.zeros((height, width, 4), np.float32)
    hue = np.array([rng.uniform(80, 112), rng.uniform(112, 130), rng.uniform(50, 66)])
    for _ in range(190):
        x = 128 + rng.uniform(-1, 1) * 112
        y = 318 - rng.uniform() * 130 * max(0.0, 1 - ((x - 128) / 118) ** 2)
        light = 0.55 + 0.5 * (318 - y) / 100 + 0.12 * (128 - x) / 128
        _disc(rgba, (x, min(y, 306)), rng.uniform(9, 17), hue * light * rng.uniform(0.9, 1.1))
    return _levels(rgba)


def paste(image: np.ndarray, levels, foot_px, width_px: float, haze: float, haze_rgb) -> None:
    """Draw the sprite `width_px` wide, standing on `foot_px` (x, y), into a float RGB image."""
    level = min(int(max(0.0, np.log2(SIZE_PX[0] / max(width_px, 1.0)))), len(levels) - 1)
    sprite = levels[level]
    scale = width_px / sprite.shape[1]
    left = foot_px[0] - width_px / 2
    top = foot_px[1] - sprite.shape[0] * scale
    x0, y0 = max(0, int(left) - 1), max(0, int(top) - 1)
    x1 = min(image.shape[1], int(left + width_px) + 2)
    y1 = min(image.shape[0], int(foot_px[1]) + 2)
    if x0 >= x1 or y0 >= y1:
        return
    matrix = np.array([[scale, 0, left - x0], [0, scale, top - y0]], np.float32)
    moved = cv2.warpAffine(sprite, matrix, (x1 - x0, y1 - y0), flags=cv2.INTER_LINEAR)
    alpha = moved[..., 3:]
    # Colours are premultiplied by alpha, and so is the haze that lies in front of them.
    colour = moved[..., :3] * (1 - haze) + alpha * (haze * np.asarray(haze_rgb, np.float32))
    image[y0:y1, x0:x1] = image[y0:y1, x0:x1] * (1 - alpha) + colour


def _crown(rgba, rng, hue) -> None:
    discs = []
    for _ in range(420):
        angle, radius = rng.uniform(0, 2 * np.pi), np.sqrt(rng.uniform())
        x = 128 + np.cos(angle) * radius * 104
        y = 116 + np.sin(angle) * radius * 98
        light = 0.62 + 0.34 * (128 - y) / 110 + 0.16 * (128 - x) / 110 + rng.normal(0, 0.06)
        discs.append((light, (x, y), rng.uniform(8, 18)))
    for light, centre, radius in sorted(discs, key=lambda disc: disc[0]):
        _disc(rgba, centre, radius, hue * (0.45 + 0.75 * max(light, 0.1)))


def _conifer(rgba, rng, hue) -> None:
    for i in range(10):
        y = 290 - i * 26
        half = 84 * (1 - i / 9.6)
        for _ in range(26):
            x = 128 + rng.uniform(-1, 1) * half
            light = 0.62 + 0.05 * i + 0.2 * (128 - x) / 128 + rng.normal(0, 0.06)
            tip = y + rng.uniform(-6, 12) + abs(x - 128) * 0.14
            points = [(x - 15, tip), (x + 15, tip + 3), (x + (128 - x) * 0.7, tip - 52)]
            _polygon(rgba, points, hue * light)


def _disc(rgba, centre, radius, colour) -> None:
    point = tuple(round(value * 16) for value in centre)
    value = (*(float(c) for c in colour), 1.0)
    cv2.circle(rgba, point, int(radius * 16), value, -1, cv2.LINE_8, 4)


def _polygon(rgba, points, colour) -> None:
    cv2.fillPoly(
        rgba, [np.array(points, np.int32)], (*(float(c) for c in colour), 1.0), cv2.LINE_8
    )


def _levels(rgba) -> list[np.ndarray]:
    rgba[..., :3] *= rgba[..., 3:]
    levels = [cv2.GaussianBlur(rgba, (0, 0), 0.8)]
    while levels[-1].shape[1] > 8:
        level = levels[-1]
        levels.append(
            cv2.resize(level, (level.shape[1] // 2, level.shape[0] // 2), None, 0, 0,
                       cv2.INTER_AREA)
        )  # fmt: skip
    return levels
