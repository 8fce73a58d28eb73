"""What daylight, fog and rain do to colours: light on surfaces, the sky, and drops on the picture.

The light falls on whole triangles once, when a mesh is made, so that a frame costs nothing more.
"""

from dataclasses import dataclass

import cv2
import numpy as np

from .meshes import Mesh
from .scene import Weather

HAZE_PER_M = 0.0012  # the clearest air
SKY_RADIUS_M = 100.0  # drawn behind everything: any radius will do
CLEAR_SKY_M = 150.0  # how much of the fog lies straight above
STREAKS = 70  # in heavy rain, in a picture of 512 x 256
NOISE_SIGMA = 9.0  # of the pixel values, in heavy rain
VERTEX = np.dtype([('position', '<f4', 3), ('rgba', 'u1', 4)])

# Noon and dusk; factors of the colour of a surface, then sRGB of the sky.
SUN = (np.array([0.60, 0.57, 0.52]), np.array([0.24, 0.13, 0.08]))
AMBIENT = (np.array([0.56, 0.59, 0.63]), np.array([0.46, 0.45, 0.50]))
ZENITH = (np.array([84.0, 140.0, 212.0]), np.array([34.0, 42.0, 84.0]))
HORIZON = (np.array([200.0, 216.0, 230.0]), np.array([150.0, 118.0, 116.0]))
OVERCAST = (np.array([186.0, 190.0, 194.0]), np.array([84.0, 86.0, 98.0]))
SUNSET = np.array([255.0, 168.0, 96.0])


@dataclass(frozen=True, eq=False)
class Lighting:
    """The light of one weather."""

    direction: np.ndarray  # to the sun, in map
    sun: np.ndarray  # [3]
    ambient: np.ndarray  # [3]
    zenith: np.ndarray  # [3], 0 … 255
    horizon: np.ndarray  # [3], 0 … 255; the fog has this colour too
    fog_per_m: float

    @classmethod
    def of(cls, weather: Weather) -> 'Lighting':
        """Return the light of this weather."""

        def mix(pair: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
            return pair[1] + (pair[0] - pair[1]) * weather.daylight

        clouds = max(weather.rain, min(1.0, weather.fog_per_m / 0.015)) * 0.85
        elevation = np.radians(12 + 43 * weather.daylight)
        azimuth = weather.sun_azimuth_rad
        horizontal = np.cos(elevation)
        return cls(
            np.array(
                [horizontal * np.cos(azimuth), horizontal * np.sin(azimuth), np.sin(elevation)]
            ),
            mix(SUN) * (1 - clouds),
            mix(AMBIENT) + mix(SUN) * clouds * 0.4,
            mix(ZENITH) + (mix(OVERCAST) - mix(ZENITH)) * clouds,
            mix(HORIZON) + (mix(OVERCAST) - mix(HORIZON)) * clouds,
            HAZE_PER_M + weather.fog_per_m,
        )

    def vertices(self, mesh: Mesh) -> np.ndarray:
        """Return the lit corners of a mesh as VERTEX [3 T]."""
        normals = mesh.normals()
        facing = np.maximum(normals @ self.direction.astype(np.float32), 0)[:, None]
        upward = (0.8 + 0.2 * normals[:, 2])[:, None]  # the sky is above
        light = self.ambient.astype(np.float32) * upward + self.sun.astype(np.float32) * facing
        light[mesh.glow] = 1
        colours = np.clip(mesh.colours * light, 0, 255)
        out = np.empty((len(colours), 3), VERTEX)
        out['position'] = mesh.corners_m
        out['rgba'][..., :3] = np.rint(colours)[:, None]
        out['rgba'][..., 3] = 255
        return out.reshape(-1)

    def veiled(self, vertices: np.ndarray, depth_m: np.ndarray) -> np.ndarray:
        """Return VERTEX [N] as seen through the fog from depths [N]."""
        air = np.exp(np.maximum(depth_m, 0) * np.float32(-self.fog_per_m))[:, None]
        horizon = self.horizon.astype(np.float32)
        out = vertices.copy()
        out['rgba'][:, :3] = horizon + 0.5 + (vertices['rgba'][:, :3] - horizon) * air
        return out

    def sky_dome(self) -> np.ndarray:
        """Return bands of sky around the eye as VERTEX."""
        elevations = np.radians([-4.0, 0.0, 2.0, 5.0, 10.0, 18.0, 30.0, 50.0, 90.0])
        elevation, azimuth = np.meshgrid(elevations, np.linspace(0, 2 * np.pi, 25), indexing='ij')
        level = np.cos(elevation)
        directions = np.stack(
            [level * np.cos(azimuth), level * np.sin(azimuth), np.sin(elevation)], axis=-1
        )
        colours = self.sky(elevation, azimuth)
        vertices = np.empty(elevation.shape, VERTEX)
        vertices['position'] = directions * SKY_RADIUS_M
        vertices['rgba'][..., :3] = np.rint(np.clip(colours, 0, 255))
        vertices['rgba'][..., 3] = 255
        a, b, c, d = vertices[:-1, :-1], vertices[:-1, 1:], vertices[1:, 1:], vertices[1:, :-1]
        return np.stack([a, b, c, a, c, d], axis=-1).reshape(-1)

    def sky(self, elevation_rad: np.ndarray, azimuth_rad: np.ndarray) -> np.ndarray:
        """Return the sky's colour [..., 3] in these directions, 0 … 255."""
        height = np.maximum(np.sin(elevation_rad), 0.0)[..., None]
        colour = self.horizon + (self.zenith - self.horizon) * height**0.5
        towards = np.cos(azimuth_rad - np.arctan2(self.direction[1], self.direction[0]))
        sunset = np.maximum(towards, 0)[..., None] ** 3 * np.exp(-5 * height)
        low_sun = np.clip(1.2 - 2 * self.direction[2], 0, 1) * self.sun[0] / SUN[1][0]
        colour = colour + (SUNSET - colour) * np.minimum(sunset * low_sun, 1) * 0.7
        fog = 1 - np.exp(-(self.fog_per_m - HAZE_PER_M) * CLEAR_SKY_M / np.maximum(height, 0.05))
        return colour + (self.horizon - colour) * fog


class RainOnLens:
    """Streaks, washed-out colours and sensor noise; the same for the same frame of a weather."""

    def __init__(self, weather: Weather) -> None:
        self._rain = weather.rain
        self._seed = weather.noise_seed
        self._noise = np.zeros((0, 0, 3), np.int16)

    def apply(self, rgb: np.ndarray, frame_number: int, camera_index: int) -> np.ndarray:
        """Return the picture as the camera sees it through this rain; without rain as it was."""
        if self._rain <= 0:
            return rgb
        height, width = rgb.shape[:2]
        random = np.random.default_rng((self._seed, frame_number, camera_index))
        grey = cv2.cvtColor(cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB)
        wash = 0.4 * self._rain
        picture = cv2.addWeighted(rgb, 1 - wash, grey, wash, 0)
        self._draw_streaks(picture, random)
        return cv2.add(picture, self._crop_of_noise(height, width, random), dtype=cv2.CV_8U)

    def _draw_streaks(self, picture: np.ndarray, random: np.random.Generator) -> None:
        height, width = picture.shape[:2]
        count = round(STREAKS * self._rain * width * height / (512 * 256))
        x, y, length = random.random((3, count)) * [[width], [height], [1]]
        length = (0.03 + 0.07 * length) * height
        start = np.stack([x, y], axis=1)
        end = start + np.stack([-0.12 * length, length], axis=1)
        lines = np.rint(np.stack([start, end], axis=1)).astype(np.int32)
        streaks = picture.copy()
        cv2.polylines(streaks, list(lines), False, (205, 210, 215), 1)
        cv2.addWeighted(picture, 0.65, streaks, 0.35, 0, dst=picture)

    def _crop_of_noise(self, height: int, width: int, random: np.random.Generator) -> np.ndarray:
        margin = 64  # fresh noise for each frame costs more than rendering it
        if self._noise.shape != (height + margin, width + margin, 3):
            noise = np.random.default_rng(self._seed).standard_normal(
                (height + margin, width + margin, 3), np.float32
            )
            self._noise = np.rint(noise * NOISE_SIGMA * self._rain).astype(np.int16)
        top, left = random.integers(margin, size=2)
        return self._noise[top : top + height, left : left + width]
