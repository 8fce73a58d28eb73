"""The vision tower as a TensorRT engine; one thread builds, loads and calls it.

Not yet run on a GPU. What it is built from is compared with the tower in onnxruntime
(onnx_vision.py). For TensorRT 10.3 and newer, 11 among them: networks are strongly typed, so that
precision is what the ONNX file says.
"""

import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from ..model.vision import VisionTower
from ..model.weights import LoadCancelled
from .engine_cache import engine_key
from .onnx_vision import INPUTS, PRECISIONS, file_sha256, output_names, vision_inputs

MINIMUM_VERSION = (10, 3)
WORKSPACE_BYTES = 2 * 2**30
FP8_CAPABILITY = (8, 9)


class TensorRtUnavailable(ValueError):
    """TensorRT was asked for and cannot serve; the message says why and what to do."""


class TensorRtError(RuntimeError):
    """TensorRT failed; the message says at what, its log why."""


@dataclass(frozen=True)
class VisionShapes:
    """Which inputs an engine takes, and which it is tuned for."""

    least_patches: int
    usual_patches: int
    most_patches: int
    most_images: int


def unavailable(precision: str) -> str | None:
    """Return why no engine can be built or run here, or None if one can."""
    if not torch.cuda.is_available():
        return 'torch finds no CUDA device'
    try:
        import tensorrt
    except ImportError as error:
        return f'{error}; pip install -r requirements/gpu.txt, on Jetson it is part of JetPack'
    if _version(tensorrt.__version__) < MINIMUM_VERSION:
        return f'TensorRT is {tensorrt.__version__}, wanted 10.3 or newer'
    capability = torch.cuda.get_device_capability()
    if precision == 'fp8' and capability < FP8_CAPABILITY:
        return f'FP8 needs compute capability 8.9, this GPU has {capability[0]}.{capability[1]}'
    return None


def insist_on_tensorrt(precision: str, device: torch.device | None = None) -> None:
    """Raise TensorRtUnavailable with the reason if no engine can be built or run here.

    `device` is the network's, which has to be the engine's.
    """
    reason = unavailable(precision)
    if device is not None and device.type != 'cuda':
        reason = f'the network is on {device.type}, an engine needs a CUDA device'
    if reason is not None:
        raise TensorRtUnavailable(f'vision_backend: tensorrt is wanted, but {reason}')


def key_here(onnx_file: Path, shapes: VisionShapes, precision: str) -> dict:
    """Return the key of an engine for this GPU and this TensorRT, made from `onnx_file`."""
    import tensorrt

    return engine_key(
        tensorrt=tensorrt.__version__,
        gpu=torch.cuda.get_device_name(),
        compute_capability=torch.cuda.get_device_capability(),
        onnx_sha256=file_sha256(onnx_file, onnx_file.with_name(f'{onnx_file.name}.data')),
        shapes=asdict(shapes),
        precision=precision,
    )


def build_engine(
    onnx_file: Path,
    tower: VisionTower,
    shapes: VisionShapes,
    *,
    progress: Callable[[str], None] = lambda text: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> bytes:
    """Return the serialised engine for this GPU; takes minutes.

    Raises TensorRtError, and LoadCancelled soon after `cancelled` turns true.
    """
    import tensorrt as trt

    class Monitor(trt.IProgressMonitor):
        """Asks between the builder's steps whether to go on."""

        def phase_start(self, phase_name, parent_phase, num_steps):
            pass

        def phase_finish(self, phase_name):
            pass

        def step_complete(self, phase_name, step):
            return not cancelled()

    # Named, so that they live for as long as the builder may call them.
    monitor, logger = Monitor(), trt.Logger(trt.Logger.WARNING)
    builder = trt.Builder(logger)
    # TensorRT 10 has to be told, 11 knows nothing else.
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = trt.OnnxParser(network, logger)
    progress(f'TensorRT reads {onnx_file.name}')
    if not parser.parse_from_file(str(onnx_file)):
        errors = '; '.join(str(parser.get_error(i)) for i in range(parser.num_errors))
        raise TensorRtError(f'{onnx_file}: TensorRT {trt.__version__} cannot read it: {errors}')
    config = builder.create_builder_config()
    config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, WORKSPACE_BYTES)
    profile = builder.create_optimization_profile()
    for name, low, usual, high in profile_shapes(tower, shapes):
        profile.set_shape(name, low, usual, high)
    config.add_optimization_profile(profile)
    config.progress_monitor = monitor
    progress('TensorRT builds the vision engine, which takes minutes')
    engine = builder.build_serialized_network(network, config)
    if cancelled():
        raise LoadCancelled
    if engine is None:
        raise TensorRtError(
            f'{onnx_file}: TensorRT {trt.__version__} built no engine; see its log'
        )
    return bytes(engine)


def profile_shapes(tower: VisionTower, shapes: VisionShapes):
    """Return (name, least, usual, most) shape of each input of the file."""
    config = tower.config
    sizes = {
        'patches': tower.patch_embed.proj.weight[0].numel(),
        'position': config.hidden_size,
        'cos': config.hidden_size // config.num_heads,
        'sin': config.hidden_size // config.num_heads,
    }
    counts = (shapes.least_patches, shapes.usual_patches, shapes.most_patches)
    rows = []
    for name in INPUTS:
        images = ((1,), (1,), (shapes.most_images,)) if name == 'patches' else ((),) * 3
        rows.append((name, *((*n, p, sizes[name]) for n, p in zip(images, counts, strict=True))))
    return rows


class TensorRtVision:
    """Takes the place of a VisionTower's forward; see there. Every call comes from one thread."""

    def __init__(self, engine: bytes, tower: VisionTower, shapes: VisionShapes, precision: str):
        import tensorrt as trt

        self.name = f'tensorrt {precision}'
        self._thread = threading.get_ident()
        self._tower = tower  # for its places, and for sizes
        self._shapes = shapes
        self._dtype, _ = PRECISIONS[precision]
        self._device = tower.pos_embed.weight.device
        self._logger = trt.Logger(trt.Logger.WARNING)
        self._runtime = trt.Runtime(self._logger)  # the engine needs it for as long as it lives
        self._engine = self._runtime.deserialize_cuda_engine(engine)
        if self._engine is None:
            raise TensorRtError('the vision engine cannot be loaded; see the log of TensorRT')
        self._context = self._engine.create_execution_context()
        self._outputs = output_names(tower)
        # Never the default stream, on which TensorRT adds synchronisation of its own.
        self._stream = torch.cuda.Stream(self._device)
        self._places: dict[tuple[int, int, int], tuple[torch.Tensor, ...]] = {}

    @torch.inference_mode()
    def __call__(self, patches: torch.Tensor, grid: tuple[int, int, int]):
        """See VisionTower.forward; nothing is waited for, outputs have the engine's type."""
        if threading.get_ident() != self._thread:
            raise TensorRtError('the vision engine belongs to the thread that loaded it')
        if patches.dim() == 2:
            tokens, deepstack = self(patches[None], grid)
            return tokens[0], [features[0] for features in deepstack]
        inputs = self._inputs(patches, grid)
        merge = self._tower.config.spatial_merge_size
        shape = (
            patches.shape[0],
            patches.shape[1] // merge**2,
            self._tower.config.out_hidden_size,
        )
        outputs = [
            torch.empty(shape, dtype=self._dtype, device=self._device) for _ in self._outputs
        ]
        current = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(current)
        for name, tensor in zip(INPUTS, inputs, strict=True):
            if not self._context.set_input_shape(name, tuple(tensor.shape)):
                raise TensorRtError(f'the vision engine takes no {name} of {tuple(tensor.shape)}')
            self._context.set_tensor_address(name, tensor.data_ptr())
        for name, tensor in zip(self._outputs, outputs, strict=True):
            self._context.set_tensor_address(name, tensor.data_ptr())
        if not self._context.execute_async_v3(self._stream.cuda_stream):
            raise TensorRtError('the vision engine failed; see the log of TensorRT')
        # Whatever uses or frees these tensors later comes after the engine on this stream.
        current.wait_stream(self._stream)
        return outputs[0], outputs[1:]

    def _inputs(self, patches: torch.Tensor, grid) -> tuple[torch.Tensor, ...]:
        shapes = self._shapes
        count, images = patches.shape[1], patches.shape[0]
        if not shapes.least_patches <= count <= shapes.most_patches or images > shapes.most_images:
            raise ValueError(
                f'{images} images of {count} patches: the vision engine was built for up to '
                f'{shapes.most_images} of {shapes.least_patches} … {shapes.most_patches}; '
                'build it again for these cameras or change max_pixels'
            )
        if grid not in self._places:
            _, *places = vision_inputs(self._tower, patches, grid, self._dtype)
            self._places[grid] = tuple(part.contiguous() for part in places)
        return patches.to(self._dtype).contiguous(), *self._places[grid]


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split('.')[:2])
