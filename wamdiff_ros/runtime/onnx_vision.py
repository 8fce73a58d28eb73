"""The vision tower as an ONNX file, for any grid of patches and any number of images.

What depends on the grid alone (position embedding and rotations) is an input, so one file and one
engine serve every image size; axes are `images` and a multiple of the merge window. Types are
those of the file: TensorRT takes them as they are (strong typing), and nothing is left for a
builder to choose.
"""

import copy
import hashlib
import logging
import os
import warnings
from collections.abc import Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import nn

from ..model.vision import VisionTower

INPUTS = ('patches', 'position', 'cos', 'sin')
OPSET = 19  # the first with 8-bit floats
# Precision: (type of the weights in the file, largest deviation from the float32 tower that is
# taken for right, relative to the largest output). fp8 is fp16 with 8-bit inputs of the layers.
PRECISIONS = {
    'fp32': (torch.float32, 1e-5),
    'fp16': (torch.float16, 5e-3),
    'fp8': (torch.float16, 1e-1),
}


class VisionExportError(ValueError):
    """The tower could not be exported, or the file does not compute what the tower does."""


class _Exported(nn.Module):
    def __init__(self, tower: VisionTower):
        super().__init__()
        self.tower = tower

    def forward(self, patches, position, cos, sin):
        tokens, deepstack = self.tower.encode(patches, (position, cos, sin))
        return (tokens, *deepstack)


def output_names(tower: VisionTower) -> list[str]:
    """Return the names of the file's outputs: tokens, then the deepstack features in order."""
    return ['tokens', *(f'deepstack_{i}' for i in range(len(tower.deepstack_merger_list)))]


def export_vision(tower: VisionTower, file: Path, precision: str) -> None:
    """Write the tower to `file`, weights beside it in `file`.data; fp8 is written as fp16."""
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise VisionExportError(f'{error}; pip install -r requirements/export.txt') from None
    dtype, _ = PRECISIONS[precision]
    merge = tower.config.spatial_merge_size
    tower = copy.deepcopy(tower).to('cpu', dtype).eval()
    example = torch.zeros(2, 6 * merge**2, tower.patch_embed.proj.weight[0].numel(), dtype=dtype)
    places = tower.places(2 * merge, 3 * merge)
    images = torch.export.Dim('images', min=1, max=64)
    patches = merge**2 * torch.export.Dim('windows', min=1, max=1 << 16)
    with _quiet_exporter():
        torch.onnx.export(
            _Exported(tower),
            (example, *places),
            os.fspath(file),
            dynamo=True,
            verbose=False,
            opset_version=OPSET,
            external_data=True,
            input_names=INPUTS,
            output_names=output_names(tower),
            dynamic_shapes=({0: images, 1: patches}, {0: patches}, {0: patches}, {0: patches}),
        )


@contextmanager
def _quiet_exporter():
    """Hide what the exporter says about itself and about packages that are not needed."""
    logger = logging.getLogger('torch.onnx')
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')
            yield
    finally:
        logger.setLevel(level)


def vision_inputs(tower: VisionTower, patches: torch.Tensor, grid, dtype: torch.dtype):
    """Return the file's inputs for patches [n, p, dim]: the first two in `dtype`."""
    _, height, width = grid
    if patches.shape[1] != height * width:
        raise ValueError(f'{patches.shape[1]} patches do not fill a grid of {grid}')
    position, cos, sin = tower.places(height, width)
    return patches.to(dtype), position.to(dtype), cos, sin


class OnnxVision:
    """The exported tower in onnxruntime on the CPU: the reference of the engines made from it."""

    def __init__(self, tower: VisionTower, file: Path, precision: str):
        try:
            import onnxruntime
        except ImportError as error:
            raise VisionExportError(f'{error}; pip install -r requirements/export.txt') from None
        self._tower = copy.deepcopy(tower).to('cpu', torch.float32)  # for its places
        self._dtype, _ = PRECISIONS[precision]
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        self._session = onnxruntime.InferenceSession(os.fspath(file), options)

    def __call__(self, patches: torch.Tensor, grid):
        """See VisionTower.forward; outputs have the file's type."""
        if patches.dim() == 2:
            tokens, deepstack = self(patches[None], grid)
            return tokens[0], [features[0] for features in deepstack]
        inputs = vision_inputs(self._tower, patches, grid, self._dtype)
        feed = {name: tensor.numpy() for name, tensor in zip(INPUTS, inputs, strict=True)}
        tokens, *deepstack = (torch.from_numpy(out) for out in self._session.run(None, feed))
        return tokens, deepstack


@torch.inference_mode()
def largest_deviation(
    tower: VisionTower, vision, images: Sequence[tuple[torch.Tensor, tuple[int, int, int]]]
) -> float:
    """Compare `vision` with the tower in float32 on patches [p, dim] with their grids.

    Returns the largest difference of any output, relative to that output's largest value.
    """
    largest = 0.0
    reference = copy.deepcopy(tower).to('cpu', torch.float32)
    for patches, grid in images:
        wanted, mine = reference(patches.float(), grid), vision(patches, grid)
        pairs = zip((wanted[0], *wanted[1]), (mine[0], *mine[1]), strict=True)
        for right, value in pairs:
            difference = (right - value.float().cpu()).abs().max() / right.abs().max()
            # A NaN is no small difference.
            largest = max(largest, float(difference) if difference.isfinite() else float('inf'))
    return largest


def check_vision(tower: VisionTower, file: Path, precision: str, images) -> float:
    """Return the file's largest deviation, or raise when that is too large; see above."""
    _, limit = PRECISIONS[precision]
    deviation = largest_deviation(tower, OnnxVision(tower, file, precision), images)
    if deviation > limit:
        raise VisionExportError(
            f'{file}: deviates by {deviation:.2g} from the float32 tower, {precision} may by '
            f'{limit:g}; take a more precise one'
        )
    return deviation


def file_sha256(*files: Path) -> str:
    """Return the digest of the files' contents, one after the other."""
    digest = hashlib.sha256()
    for file in files:
        with open(file, 'rb') as stream:
            while chunk := stream.read(1 << 20):
                digest.update(chunk)
    return digest.hexdigest()


def tower_sha256(tower: VisionTower) -> str:
    """Return the digest of the tower's weights, the same in each type that holds them exactly."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tower.state_dict().items()):
        digest.update(f'{name} {tuple(tensor.shape)}'.encode())
        digest.update(tensor.detach().to('cpu', torch.float32).contiguous().numpy())
    return digest.hexdigest()
