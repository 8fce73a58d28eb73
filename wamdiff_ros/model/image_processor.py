"""Camera images to patches, equal to the Qwen2-VL image processor with Pillow's bicubic filter."""

import math
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from PIL import Image

from .config import CheckpointError, Section, VisionConfig, read_json

MAX_ASPECT_RATIO = 200


@dataclass(frozen=True)
class ImageProcessor:
    """Resizing, normalisation and patch layout of a checkpoint (preprocessor_config.json)."""

    patch_size: int
    temporal_patch_size: int
    merge_size: int
    min_pixels: int
    max_pixels: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]

    @classmethod
    def load(cls, model_dir: Path, vision: VisionConfig) -> 'ImageProcessor':
        """Read preprocessor_config.json and check that it fits the vision tower."""
        section = _section(Path(model_dir))
        for key in ('do_resize', 'do_rescale', 'do_normalize'):
            section.insist(key, True)
        for key in ('do_center_crop', 'do_pad'):
            section.insist(key, False)
        section.insist('resample', int(Image.Resampling.BICUBIC))
        section.insist('rescale_factor', 1 / 255)

        def pixels(key: str, edge: str) -> int:
            """Return the limit, which newer files write as an edge although it is an area."""
            if section.has(key) or not section.has('size'):
                return section.take(key, int)
            return section.section('size').take(edge, int)

        processor = cls(
            patch_size=section.take_size('patch_size'),
            temporal_patch_size=section.take_size('temporal_patch_size'),
            merge_size=section.take_size('merge_size'),
            min_pixels=pixels('min_pixels', 'shortest_edge'),
            max_pixels=pixels('max_pixels', 'longest_edge'),
            mean=_per_channel(section, 'image_mean'),
            std=_per_channel(section, 'image_std'),
        )
        for key, mine, towers in (
            ('patch_size', processor.patch_size, vision.patch_size),
            ('temporal_patch_size', processor.temporal_patch_size, vision.temporal_patch_size),
            ('merge_size', processor.merge_size, vision.spatial_merge_size),
        ):
            if mine != towers:
                raise CheckpointError(
                    f'{section.where(key)} is {mine}, the vision tower has {towers}'
                )
        if not 0 < processor.min_pixels <= processor.max_pixels:
            raise CheckpointError(
                f'{section.where("min_pixels")} {processor.min_pixels} and max_pixels '
                f'{processor.max_pixels} make no sense'
            )
        if not min(processor.std) > 0:
            raise CheckpointError(f'{section.where("image_std")} is {processor.std}')
        return processor

    def with_pixels(self, min_pixels: int, max_pixels: int) -> 'ImageProcessor':
        """Return a copy with other limits of the image area; 0 keeps the checkpoint's own."""
        low, high = min_pixels or self.min_pixels, max_pixels or self.max_pixels
        if low > high:
            raise ValueError(f'min_pixels {low} is above max_pixels {high}')
        return replace(self, min_pixels=low, max_pixels=high)

    def target_size(self, height: int, width: int) -> tuple[int, int]:
        """Return the size [pixels] that an image is resized to.

        Both sides are multiples of patch times merge, the area lies in the limits, and the aspect
        ratio is kept as well as that allows.
        """
        if max(height, width) > MAX_ASPECT_RATIO * min(height, width):
            raise ValueError(f'image of {width}x{height} pixels is too narrow')
        unit = self.patch_size * self.merge_size
        rows, cols = round(height / unit), round(width / unit)
        if rows * cols * unit**2 > self.max_pixels:
            shrink = math.sqrt(height * width / self.max_pixels)
            rows = max(1, math.floor(height / shrink / unit))
            cols = max(1, math.floor(width / shrink / unit))
        elif rows * cols * unit**2 < self.min_pixels:
            grow = math.sqrt(self.min_pixels / (height * width))
            rows = math.ceil(height * grow / unit)
            cols = math.ceil(width * grow / unit)
        return rows * unit, cols * unit

    def grid(self, height: int, width: int) -> tuple[int, int, int]:
        """Return the patch grid (time, height, width) of an image of this size in pixels."""
        rows, cols = self.target_size(height, width)
        return 1, rows // self.patch_size, cols // self.patch_size

    def patches(self, rgb: np.ndarray) -> tuple[np.ndarray, tuple[int, int, int]]:
        """Rgb uint8 [H, W, 3] → patches float32 [grid_h*grid_w, 3*time*patch*patch] and the grid.

        Patches are ordered window by window of merge*merge, as the merger wants them; a single
        image fills all temporal slots of a patch.
        """
        p, m, t = self.patch_size, self.merge_size, self.temporal_patch_size
        grid = self.grid(*rgb.shape[:2])
        _, grid_h, grid_w = grid
        height, width = grid_h * p, grid_w * p
        if (height, width) != rgb.shape[:2]:
            image = Image.fromarray(rgb).resize((width, height), Image.Resampling.BICUBIC)
            rgb = np.asarray(image)
        mean, std = (np.array(v, dtype=np.float64) for v in (self.mean, self.std))
        pixels = (rgb * (1.0 / (255.0 * std)) - mean / std).astype(np.float32)
        windows = pixels.reshape(grid_h // m, m, p, grid_w // m, m, p, 3)
        windows = windows.transpose(0, 3, 1, 4, 6, 2, 5)  # [gh, gw, m, m, 3, p, p]
        windows = np.broadcast_to(
            windows[:, :, :, :, :, None], (grid_h // m, grid_w // m, m, m, 3, t, p, p)
        )
        return windows.reshape(grid_h * grid_w, 3 * t * p * p), grid


def _section(model_dir: Path) -> Section:
    """Open preprocessor_config.json, or its place in the processor_config.json of newer files."""
    file, newer = model_dir / 'preprocessor_config.json', model_dir / 'processor_config.json'
    if not file.exists() and newer.exists():
        return Section(newer, '', read_json(newer)).section('image_processor')
    return Section(file, '', read_json(file))


def _per_channel(section: Section, key: str) -> tuple[float, float, float]:
    values = section.take(key, list)
    if len(values) != 3 or not all(type(v) in (int, float) and math.isfinite(v) for v in values):
        raise CheckpointError(f'{section.where(key)} is {values}, wanted three numbers')
    return tuple(float(v) for v in values)
