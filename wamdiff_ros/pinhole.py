"""The pinhole camera on the vehicle: projects points of the base frame into the image.

Pixel coordinates have the centre of the top left pixel at (0, 0). Knows no lens distortion.
"""

from dataclasses import dataclass

import numpy as np

# Axes of the optical frame (x right, y down, z forward) as columns in base (x forward, y left,
# z up), for a camera that looks straight ahead (REP-103).
OPTICAL_AXES_BASE = np.array([[0.0, 0.0, 1.0], [-1.0, 0.0, 0.0], [0.0, -1.0, 0.0]])
NEAR_M = 0.1


@dataclass(frozen=True, eq=False)
class Pinhole:
    """Intrinsics [pixels] and the pose of the optical frame in the base frame."""

    width: int
    height: int
    fx: float
    fy: float
    cx: float
    cy: float
    rotation_base: np.ndarray  # [3, 3], optical axes as columns in base
    position_base_m: np.ndarray  # [3]

    @classmethod
    def level(
        cls,
        width: int,
        height: int,
        horizontal_fov_deg: float = 60.0,
        height_m: float = 1.5,
        forward_m: float = 1.5,
    ) -> 'Pinhole':
        """Return a camera that looks level straight ahead, with square pixels."""
        focal = width / 2 / np.tan(np.radians(horizontal_fov_deg) / 2)
        return cls(
            width, height, focal, focal, (width - 1) / 2, (height - 1) / 2,
            OPTICAL_AXES_BASE, np.array([forward_m, 0.0, height_m]),
        )  # fmt: skip

    def to_optical(self, points_base_m: np.ndarray) -> np.ndarray:
        """Return points [N, 3] of the base frame in the optical frame."""
        return (np.asarray(points_base_m) - self.position_base_m) @ self.rotation_base

    def project(self, points_base_m: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return pixels [N, 2] and depth [N] [m]; pixels mean nothing where depth is <= 0."""
        optical = self.to_optical(points_base_m)
        return self._pixels(optical), optical[:, 2]

    def project_polygon(self, points_base_m: np.ndarray) -> np.ndarray:
        """Return the pixels [M, 2] of a polygon [N, 3], cut off at the near plane; M may be 0."""
        optical = self.to_optical(points_base_m)
        kept = []
        for a, b in zip(optical, np.roll(optical, -1, axis=0), strict=True):
            if a[2] >= NEAR_M:
                kept.append(a)
            if (a[2] >= NEAR_M) != (b[2] >= NEAR_M):  # the edge crosses the plane
                kept.append(a + (b - a) * (NEAR_M - a[2]) / (b[2] - a[2]))
        return self._pixels(np.array(kept).reshape(-1, 3))

    def rays_base(self) -> np.ndarray:
        """Return the direction of every pixel in the base frame, [height, width, 3], depth 1."""
        u, v = np.meshgrid(np.arange(self.width), np.arange(self.height))
        optical = np.stack(
            [(u - self.cx) / self.fx, (v - self.cy) / self.fy, np.ones(u.shape)], axis=-1
        )
        return optical @ self.rotation_base.T

    def _pixels(self, optical: np.ndarray) -> np.ndarray:
        depth = np.where(np.abs(optical[:, 2]) < 1e-9, 1e-9, optical[:, 2])
        return np.stack(
            [
                self.cx + self.fx * optical[:, 0] / depth,
                self.cy + self.fy * optical[:, 1] / depth,
            ],
            axis=-1,
        )
