"""Paint what a camera sees of a country road: ground, sky, plants, posts and a car ahead.

A scene painter, not a world: nothing in here moves by itself or reacts. Deterministic: the same
scene and pose give the same picture.
"""

from dataclasses import dataclass
from itertools import pairwise

import cv2
import numpy as np

from ..pinhole import Pinhole
from . import sprites
from .road import Road

LANE_WIDTH_M = 3.6
HAZE_RGB = np.array([208, 216, 224], np.float32)
HAZE_DISTANCE_M = 420.0
FAR_M = 360.0


@dataclass(frozen=True)
class Plant:
    """A tree or bush that stands at `xy_m`, `width_m` wide; `kind` picks the sprite."""

    xy_m: tuple[float, float]
    width_m: float
    kind: int


@dataclass(frozen=True)
class Car:
    """A car by the pose of the middle of its footprint."""

    x_m: float
    y_m: float
    heading_rad: float
    braking: bool


class Painter:
    """Paints the surroundings of one road through one camera."""

    def __init__(self, road: Road, camera: Pinhole, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self._road, self._camera = road, camera
        self._noise = _noise_tile(rng)
        self._kinds = [sprites.tree(rng, conifer=i % 3 == 2) for i in range(9)]
        self._kinds += [sprites.bush(rng) for _ in range(3)]
        self._plants = _grow_plants(rng, road)
        self._rays = camera.rays_base().astype(np.float32)

    def paint(self, x_m: float, y_m: float, heading_rad: float, cars: list[Car]) -> np.ndarray:
        """Return the uint8 RGB picture [height, width, 3] from base at the pose."""
        pose = (x_m, y_m, heading_rad)
        image = self._paint_sky(heading_rad)
        self._paint_ground(image, pose)
        things = [(distance, draw) for distance, draw in self._things(pose, cars) if distance > 1]
        for _, draw in sorted(things, key=lambda thing: -thing[0]):
            draw(image)
        return np.clip(image + 0.5, 0, 255).astype(np.uint8)

    # -- sky ----------------------------------------------------------------------------------

    def _paint_sky(self, heading_rad: float) -> np.ndarray:
        ray = self._rays
        azimuth = heading_rad + np.arctan2(ray[..., 1], ray[..., 0])
        elevation = ray[..., 2] / np.hypot(ray[..., 0], ray[..., 1])
        up = np.clip(elevation / 0.36, 0, 1)[..., None]
        zenith = np.array([104, 150, 206], np.float32)
        image = (HAZE_RGB + (zenith - HAZE_RGB) * up**0.75).astype(np.float32)
        # Clouds lie on a plane above, so they shrink towards the horizon.
        plane = 0.55 / np.maximum(elevation, 0.02)
        cloud_x, cloud_y = np.cos(azimuth) * plane, np.sin(azimuth) * plane
        cover = self._sample(cloud_x * 9, cloud_y * 9) + 0.55 * self._sample(
            cloud_x * 22 + 31, cloud_y * 22
        )
        cover = np.clip((cover - 0.22) / 0.7, 0, 0.85) * np.clip((elevation - 0.03) / 0.12, 0, 1)
        image += (np.array([246, 247, 249], np.float32) - image) * cover[..., None]
        for rise, rough, colour, offset in (
            (0.052, 0.030, (168, 184, 200), 0.0),
            (0.026, 0.020, (138, 160, 150), 70.0),
        ):
            ridge = rise + rough * self._sample(azimuth * 26 + offset, azimuth * 0 + offset)
            ridge += 0.18 * rough * self._sample(azimuth * 150 + offset, azimuth * 0 + 7)
            inside = np.clip((ridge - elevation) * self._camera.fx + 0.5, 0, 1)[..., None]
            image += (np.array(colour, np.float32) - image) * inside
        return image

    # -- ground -------------------------------------------------------------------------------

    def _paint_ground(self, image: np.ndarray, pose) -> None:
        top = int(np.ceil(self._camera.cy + 0.5))
        ray = self._rays[top:].astype(np.float64)
        reach = self._camera.position_base_m[2] / -ray[..., 2]
        ahead = ray[..., 0] * reach + self._camera.position_base_m[0]
        left = ray[..., 1] * reach
        x, y = _to_world(pose, ahead, left)
        s_ego, _ = self._road.coordinates(
            np.array([pose[0]]), np.array([pose[1]]), np.array([self._s_hint(pose)])
        )
        s, d = self._road.coordinates(x, y, s_ego[0] + np.minimum(ahead, 250.0))
        # How far s and d change from one pixel to the next: the width to smooth edges over.
        blur_d = np.abs(np.gradient(d, axis=0)) + np.abs(np.gradient(d, axis=1)) + 1e-3
        blur_s = np.abs(np.gradient(s, axis=0)) + np.abs(np.gradient(s, axis=1)) + 1e-3
        footprint = reach**2 / self._camera.fx / self._camera.position_base_m[2]

        colour = self._grass(x, y, footprint)
        side = np.abs(d)
        wobble = 0.12 * self._sample(s * 1.3, np.sign(d) * 40.0)
        _blend(colour, (150, 142, 124), _band(side, 0, 4.75 + wobble, blur_d))
        _blend(colour, (0, 0, 0), 0.18 * _band(side, 5.6, 7.2, blur_d + 1.0))
        _blend_rgb(colour, self._asphalt(s, d, footprint), _band(side, 0, 4.05, blur_d))
        paint = (226, 226, 220)
        _blend(colour, paint, 0.93 * _band(side, 3.47, 3.62, blur_d))
        along = np.mod(s, 9.0)
        _blend(colour, paint, 0.93 * _band(side, -0.075, 0.075, blur_d) * _dash(along, blur_s))
        shade = self._shadows(pose)[top:, :, None]
        colour *= 1 - 0.42 * shade
        haze = 1 - np.exp(-reach / HAZE_DISTANCE_M)
        haze = np.where(s < FAR_M + 60, haze, np.maximum(haze, 0.6))
        colour += (HAZE_RGB - colour) * haze[..., None]
        # The hills start in the row of the horizon; a soft border keeps it from flickering.
        image[top:] = colour

    def _grass(self, x, y, footprint) -> np.ndarray:
        patch = self._sample(x * 0.7, y * 0.7)
        tuft = self._sample(x * 5, y * 5) * np.clip(0.5 / footprint, 0, 1)
        blade = self._sample(x * 30, y * 30) * np.clip(0.06 / footprint, 0, 1)
        base = np.array([112, 132, 70], np.float32) + patch[..., None] * np.array([20, 11, 8])
        return (base * (1 + 0.07 * tuft + 0.04 * blade)[..., None]).astype(np.float32)

    def _asphalt(self, s, d, footprint) -> np.ndarray:
        track = np.exp(-(((np.abs(np.abs(d) - LANE_WIDTH_M / 2) - 0.78) / 0.32) ** 2))
        patch = self._sample(s * 0.9, d * 3)
        grain = self._sample(s * 40, d * 40) * np.clip(0.05 / footprint, 0, 1)
        grey = 112 - 9 * track + 4 * patch + 2.5 * grain
        return (grey[..., None] * np.array([1.0, 0.995, 0.985])).astype(np.float32)

    def _shadows(self, pose) -> np.ndarray:
        mask = np.zeros(self._rays.shape[:2], np.uint8)
        angle = np.linspace(0, 2 * np.pi, 14, endpoint=False)
        for plant in self._plants:
            ahead, left = _to_base(pose, *plant.xy_m)
            if 3 < ahead < 140:
                r = plant.width_m * 0.45
                # The sun stands to the left behind the camera: shadows fall to the right.
                ring = [
                    ahead + r * 0.5 + np.cos(angle) * r * 0.7,
                    left - r * 0.9 + np.sin(angle) * r * 1.35,
                    0 * angle,
                ]
                self._fill(mask, np.stack(ring, axis=-1), 255)
        return cv2.GaussianBlur(mask, (0, 0), 1.6).astype(np.float32) / 255

    # -- things that stand on the ground --------------------------------------------------------

    def _things(self, pose, cars):
        for plant in self._plants:
            ahead, left = _to_base(pose, *plant.xy_m)
            if 2.5 < ahead < FAR_M and abs(left) < ahead + 30:
                yield ahead, self._plant_drawer(plant, ahead, left)
        s_here = self._s_hint(pose)
        for s in np.arange(np.ceil(s_here / 25) * 25, s_here + 200, 25):
            for d in (4.55, -4.55):
                x, y, _ = self._road.pose(s, d)
                ahead, left = _to_base(pose, x, y)
                yield ahead, self._post_drawer(ahead, left)
        poles = [_to_base(pose, *self._road.pose(s, 11.0)[:2]) for s in np.arange(-35, 420, 42.0)]
        for here, there in pairwise(poles):
            yield here[0], self._pole_drawer(here, there)
        for car in cars:
            ahead, _ = _to_base(pose, car.x_m, car.y_m)
            yield ahead, self._car_drawer(pose, car, ahead)

    def _plant_drawer(self, plant, ahead, left):
        def draw(image):
            [foot], [depth] = self._camera.project(np.array([[ahead, left, 0.0]]))
            width_px = plant.width_m * self._camera.fx / depth
            haze = 1 - np.exp(-depth / HAZE_DISTANCE_M)
            sprites.paste(image, self._kinds[plant.kind], foot, width_px, haze, HAZE_RGB)

        return draw

    def _post_drawer(self, ahead, left):
        def draw(image):
            for low, high, grey in ((0.0, 1.0, 232), (0.68, 0.86, 52)):
                self._upright(image, ahead, left, low, high, 0.06, (grey, grey, grey - 2))

        return draw

    def _pole_drawer(self, here, there):
        def draw(image):
            self._upright(image, *here, 0.0, 7.5, 0.11, (104, 90, 76))
            arm = [(here[0], here[1] + side, z) for side, z in
                   ((-0.9, 6.9), (0.9, 6.9), (0.9, 7.02), (-0.9, 7.02))]  # fmt: skip
            self._fill(image, np.array(arm), self._hazed((92, 80, 70), here[0]))
            if here[0] < 2 or there[0] < 2:
                return
            t = np.linspace(0, 1, 12)
            for side in (-0.8, 0.8):
                wire = np.stack(
                    [
                        here[0] + (there[0] - here[0]) * t,
                        here[1] + side + (there[1] - here[1]) * t,
                        7.05 - 2.2 * t * (1 - t),
                    ],
                    axis=-1,
                )
                pixels, _ = self._camera.project(wire)
                colour = self._hazed((70, 74, 80), (here[0] + there[0]) / 2 + 60)
                points = np.round(np.clip(pixels, -3000, 3000) * 16).astype(np.int32)
                cv2.polylines(image, [points], False, colour, 1, cv2.LINE_AA, 4)

        return draw

    def _car_drawer(self, pose, car, ahead):
        faces = _car_faces(car.braking)

        def draw(image):
            cos, sin = np.cos(car.heading_rad), np.sin(car.heading_rad)
            drawn = []
            for colour, corners in faces:
                points = np.array(corners, float)
                x = car.x_m + cos * points[:, 0] - sin * points[:, 1]
                y = car.y_m + sin * points[:, 0] + cos * points[:, 1]
                base = np.stack([*_to_base(pose, x, y), points[:, 2]], axis=-1)
                optical = self._camera.to_optical(base)
                normal = np.cross(optical[1] - optical[0], optical[2] - optical[1])
                if normal @ optical.mean(axis=0) < 0:  # faces the camera
                    drawn.append((colour, base))
            for colour, base in drawn:
                self._fill(image, base, self._hazed(colour, ahead))

        return draw

    # -- helpers ------------------------------------------------------------------------------

    def _upright(self, image, ahead, left, low_m, high_m, half_m, colour) -> None:
        corners = [(ahead, left - half_m, low_m), (ahead, left + half_m, low_m),
                   (ahead, left + half_m, high_m), (ahead, left - half_m, high_m)]  # fmt: skip
        self._fill(image, np.array(corners), self._hazed(colour, ahead))

    def _fill(self, image, points_base_m, colour) -> None:
        pixels = self._camera.project_polygon(points_base_m)
        if len(pixels) >= 3:
            points = np.round(np.clip(pixels, -3000, 3000) * 16).astype(np.int32)
            cv2.fillPoly(image, [points], colour, cv2.LINE_8 if image.ndim == 2 else cv2.LINE_AA,
                         4)  # fmt: skip

    def _hazed(self, colour, distance_m) -> tuple:
        haze = 1 - np.exp(-max(distance_m, 0) / HAZE_DISTANCE_M)
        return tuple(float(c + (h - c) * haze) for c, h in zip(colour, HAZE_RGB, strict=True))

    def _s_hint(self, pose) -> float:
        distance = (self._road.x_m - pose[0]) ** 2 + (self._road.y_m - pose[1]) ** 2
        return float(self._road.s_m[np.argmin(distance)])

    def _sample(self, u, v) -> np.ndarray:
        """Return smooth noise in about -1 … 1, with details of about 4 units."""
        size = self._noise.shape[0] - 1
        u = np.mod(np.asarray(u, np.float64), size)
        v = np.mod(np.broadcast_to(np.asarray(v, np.float64), u.shape), size)
        return cv2.remap(self._noise, u.astype(np.float32), v.astype(np.float32),
                         cv2.INTER_LINEAR)  # fmt: skip


def _noise_tile(rng, size=512) -> np.ndarray:
    tile = rng.normal(size=(size, size)).astype(np.float32)
    tiled = np.tile(tile, (3, 3))
    # One more row and column than the period, to interpolate across the seam.
    smooth = cv2.GaussianBlur(tiled, (0, 0), 1.5)[size : 2 * size + 1, size : 2 * size + 1]
    return smooth / (2 * smooth.std())


def _grow_plants(rng, road) -> list[Plant]:
    plants = []
    for s in np.arange(-10, 420, 5.5):
        for side in (1, -1):
            if rng.uniform() < 0.45:
                d = side * rng.uniform(9, 16)
                plants.append(
                    _plant(rng, road, s + rng.uniform(-2, 2), d, bush=rng.uniform() < 0.5)
                )
            for low, high, chance in ((16, 34, 0.75), (34, 80, 0.95)):
                if rng.uniform() < chance:
                    plants.append(
                        _plant(rng, road, s + rng.uniform(-3, 3), side * rng.uniform(low, high))
                    )
    # Nothing grows on the road, wherever it comes back to.
    kept = []
    for plant in plants:
        nearest = np.min((road.x_m - plant.xy_m[0]) ** 2 + (road.y_m - plant.xy_m[1]) ** 2)
        if nearest > 8.0**2:
            kept.append(plant)
    return kept


def _plant(rng, road, s, d, bush=False) -> Plant:
    x, y, _ = road.pose(s, d)
    if bush:
        return Plant((x, y), rng.uniform(2.2, 4.2), int(rng.integers(9, 12)))
    return Plant((x, y), rng.uniform(4.5, 8.5), int(rng.integers(0, 9)))


def _car_faces(braking: bool) -> list[tuple[tuple, list]]:
    """Return (RGB, corners) in the car's frame, in drawing order, seen counter-clockwise."""
    body, dark, glass, tyre = (158, 44, 42), (112, 30, 32), (58, 70, 80), (30, 30, 32)
    lamp = (255, 60, 40) if braking else (150, 24, 24)
    back, front, half = -2.2, 2.2, 0.9

    def quad(x, y0, y1, z0, z1, lean=0.0):
        return [(x, y0, z0), (x, y1, z0), (x + lean, y1, z1), (x + lean, y0, z1)]

    def flank(y, sign):
        lower = [(back, y, 0.32), (front, y, 0.32), (front, y, 0.8), (back, y, 0.92)]
        upper = [(back + 0.35, y * 0.97, 0.92), (1.0, y * 0.97, 0.85),
                 (0.35, y * 0.8, 1.42), (back + 0.75, y * 0.8, 1.42)]  # fmt: skip
        wheels = [[(x - 0.33, y, 0), (x + 0.33, y, 0), (x + 0.33, y, 0.62), (x - 0.33, y, 0.62)]
                  for x in (-1.35, 1.35)]  # fmt: skip
        faces = [(dark, lower), (glass, upper)] + [(tyre, wheel) for wheel in wheels]
        return [(c, points if sign < 0 else points[::-1]) for c, points in faces]

    shadow = [(back - 0.25, 1.05, 0.01), (back - 0.25, -1.25, 0.01),
              (front, -1.25, 0.01), (front, 1.05, 0.01)]  # fmt: skip
    roof = [(back + 0.75, 0.72, 1.42), (back + 0.75, -0.72, 1.42),
            (0.35, -0.72, 1.42), (0.35, 0.72, 1.42)]  # fmt: skip
    faces = [((62, 62, 64), shadow)]
    faces += flank(half, 1) + flank(-half, -1)
    faces += [(tyre, quad(back, y, y - 0.24, 0.0, 0.4)) for y in (0.84, -0.6)]
    faces += [
        ((176, 62, 58), roof),
        (body, quad(back, half, -half, 0.28, 0.95)),
        (body, quad(back, half - 0.02, -half + 0.02, 0.95, 1.42, 0.75)),
        (glass, quad(back + 0.07, half - 0.12, -half + 0.12, 1.0, 1.36, 0.58)),
        ((96, 28, 30), quad(back - 0.03, half, -half, 0.28, 0.45)),
        ((225, 225, 215), quad(back - 0.04, 0.26, -0.26, 0.56, 0.68)),
        (lamp, quad(back - 0.04, 0.86, 0.52, 0.7, 0.86)),
        (lamp, quad(back - 0.04, -0.52, -0.86, 0.7, 0.86)),
    ]
    if braking:
        faces.append((lamp, quad(back + 0.68, 0.2, -0.2, 1.365, 1.4)))
    return faces


def _band(value, low, high, blur) -> np.ndarray:
    """Return how much of a pixel of width `blur` lies in low … high, 0 … 1."""
    upper = np.clip((high - value) / blur + 0.5, 0, 1)
    lower = np.clip((low - value) / blur + 0.5, 0, 1)
    return upper - lower


def _dash(along_m, blur) -> np.ndarray:
    coverage = _band(along_m, 0, 4.0, blur) + _band(along_m, 9.0, 13.0, blur)
    # Once a pixel is longer than the pattern, only the mean of it is left to see.
    mix = np.clip(blur / 4.5 - 1, 0, 1)
    return coverage * (1 - mix) + 4.0 / 9.0 * mix


def _blend(colour, rgb, amount) -> None:
    _blend_rgb(colour, np.array(rgb, np.float32), amount)


def _blend_rgb(colour, rgb, amount) -> None:
    colour += (rgb - colour) * amount[..., None].astype(np.float32)


def _to_base(pose, x_m, y_m):
    cos, sin = np.cos(pose[2]), np.sin(pose[2])
    dx, dy = x_m - pose[0], y_m - pose[1]
    return cos * dx + sin * dy, -sin * dx + cos * dy


def _to_world(pose, ahead_m, left_m):
    cos, sin = np.cos(pose[2]), np.sin(pose[2])
    return pose[0] + cos * ahead_m - sin * left_m, pose[1] + sin * ahead_m + cos * left_m
