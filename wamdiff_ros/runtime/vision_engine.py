"""The files of a checkpoint's vision engine: made from its tower, kept in a cache, loaded from it.

One folder per checkpoint holds the ONNX file, the engine, and beside each a JSON that says what it
belongs to. What fits is used, what does not is built again; `wamdiff prebuild` does that ahead of
time.
"""

import copy
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from ..model.image_processor import ImageProcessor
from ..model.vision import VisionTower
from . import onnx_fp8
from .engine_cache import CacheMismatch, insist_on_match, make_private, write_engine, write_key
from .onnx_vision import (
    INPUTS,
    PRECISIONS,
    VisionExportError,
    check_vision,
    export_vision,
    tower_sha256,
    vision_inputs,
)
from .tensorrt_vision import (
    TensorRtVision,
    VisionShapes,
    build_engine,
    insist_on_tensorrt,
    key_here,
)

# Raised when the exporter changes what it writes, so that older files are built again.
EXPORT_FORMAT = 1


@dataclass(frozen=True)
class VisionFiles:
    """The files of one checkpoint's tower in one precision."""

    onnx: Path
    engine: Path
    key: dict  # of the ONNX file

    @classmethod
    def of(
        cls, tower: VisionTower, model_name: str, cache_dir: Path, precision: str
    ) -> 'VisionFiles':
        """Return where the files lie; makes none."""
        digest = tower_sha256(tower)
        folder = cache_dir / f'{model_name}-{digest[:12]}'
        key = {'tower_sha256': digest, 'precision': precision, 'format': EXPORT_FORMAT}
        return cls(folder / f'vision_{precision}.onnx', folder / f'vision_{precision}.engine', key)

    @property
    def weights(self) -> Path:
        """The weights of the ONNX file."""
        return self.onnx.with_name(f'{self.onnx.name}.data')


def load_vision_engine(
    tower: VisionTower,
    processor: ImageProcessor,
    *,
    model_name: str,
    cache_dir: Path,
    precision: str = 'fp16',
    images: int = 1,
    progress: Callable[[str], None] = lambda text: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> TensorRtVision:
    """Return what encodes images in place of the tower, in the calling thread.

    Builds what is missing. Raises TensorRtUnavailable, TensorRtError, VisionExportError, OSError,
    or LoadCancelled.
    """
    insist_on_tensorrt(precision)
    files = VisionFiles.of(tower, model_name, cache_dir, precision)
    provide_onnx(files, tower, processor, progress=progress)
    shapes = shapes_of(processor, images)
    engine = provide_engine(files, tower, shapes, progress=progress, cancelled=cancelled)
    vision = TensorRtVision(engine, tower, shapes, precision)
    progress('warming up the vision engine')
    for patches, grid in sample_images(tower, processor):
        vision(patches.to(tower.pos_embed.weight.device), grid)  # the first call sets things up
    torch.cuda.synchronize()
    return vision


def provide_onnx(
    files: VisionFiles,
    tower: VisionTower,
    processor: ImageProcessor,
    *,
    calibration: Sequence[np.ndarray] = (),
    progress: Callable[[str], None] = lambda text: None,
) -> float | None:
    """Make sure of the ONNX file; returns its deviation from the tower if it was made now.

    `calibration`: RGB images uint8 [H, W, 3] for fp8. Raises VisionExportError.
    """
    precision = files.key['precision']
    try:
        insist_on_match(files.onnx, files.key, (files.weights,))
        if not len(calibration):
            return None
    except FileNotFoundError:
        pass
    except CacheMismatch as error:
        progress(str(error))
    if precision == 'fp8' and not len(calibration):
        raise VisionExportError(
            f'{files.onnx}: fp8 has to be calibrated with images of the cameras; build it ahead '
            'with wamdiff prebuild --precision fp8 --calibration FOLDER'
        )
    make_private(files.onnx.parent)
    with tempfile.TemporaryDirectory(dir=files.onnx.parent) as folder:
        made = Path(folder, files.onnx.name)
        progress(f'exporting {files.onnx.name}')
        if precision == 'fp8':
            plain = Path(folder, 'fp16.onnx')
            export_vision(tower, plain, 'fp16')
            progress(f'calibrating with {len(calibration)} images')
            feeds = _feeds(tower, processor, calibration)
            onnx_fp8.quantise(plain, made, onnx_fp8.measure_inputs(plain, feeds))
        else:
            export_vision(tower, made, precision)
        progress(f'comparing {files.onnx.name} with torch')
        samples = list(sample_images(tower, processor))
        samples += [_patches(processor, rgb) for rgb in calibration[:4]]
        deviation = check_vision(tower, made, precision, samples)
        made.with_name(f'{made.name}.data').replace(files.weights)
        made.replace(files.onnx)
    write_key(files.onnx, files.key, (files.weights,))
    return deviation


def provide_engine(
    files: VisionFiles,
    tower: VisionTower,
    shapes: VisionShapes,
    *,
    progress: Callable[[str], None] = lambda text: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> bytes:
    """Return the engine for this machine, from the cache if it fits, or else built now."""
    key = key_here(files.onnx, shapes, files.key['precision'])
    try:
        insist_on_match(files.engine, key)
        return files.engine.read_bytes()
    except FileNotFoundError:
        pass
    except CacheMismatch as error:
        progress(str(error))
    engine = build_engine(files.onnx, tower, shapes, progress=progress, cancelled=cancelled)
    write_engine(files.engine, engine, key)
    return engine


def shapes_of(processor: ImageProcessor, images: int) -> VisionShapes:
    """Return the shapes of an engine that takes every image of the processor, `images` at once.

    It is tuned for the largest area: cameras have more pixels than that and are resized to it.
    """
    window = processor.merge_size**2
    patch = processor.patch_size**2
    least = -(-processor.min_pixels // (patch * window)) * window
    most = max(least, processor.max_pixels // (patch * window) * window)
    return VisionShapes(least, most, most, images)


def sample_images(
    tower: VisionTower, processor: ImageProcessor
) -> Iterator[tuple[torch.Tensor, tuple[int, int, int]]]:
    """Yield patches [p, dim] of noise and their grids: a wide, a square and a small image.

    Small ones where the checkpoint allows it: they are also encoded on a CPU.
    """
    generator = torch.Generator().manual_seed(0)
    dim = tower.patch_embed.proj.weight[0].numel()
    for height, width in ((288, 512), (384, 384), (1, 1)):
        grid = processor.grid(height, width)
        patches = torch.rand(grid[1] * grid[2], dim, generator=generator) * 2 - 1
        yield patches, grid


def _feeds(tower: VisionTower, processor: ImageProcessor, images: Sequence[np.ndarray]):
    tower = copy.deepcopy(tower).to('cpu')
    dtype, _ = PRECISIONS['fp8']
    for rgb in images:
        patches, grid = _patches(processor, rgb)
        inputs = vision_inputs(tower, patches[None], grid, dtype)
        yield {name: tensor.numpy() for name, tensor in zip(INPUTS, inputs, strict=True)}


def _patches(processor: ImageProcessor, rgb: np.ndarray):
    patches, grid = processor.patches(rgb)
    return torch.from_numpy(patches), grid
