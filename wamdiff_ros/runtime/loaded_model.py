"""From parameters to a checkpoint ready to plan with: engine, words and pixels."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from ..model.config import CheckpointError, load_config
from ..model.image_processor import ImageProcessor
from ..model.tokenizer import Tokenizer
from ..model.weights import load_network
from ..parameters import Parameters
from ..planning.prompts import PromptTemplates
from ..share import share_path
from .device import choose_device, choose_dtype
from .engine import Engine
from .engine_cache import default_cache_dir
from .flashinfer_attention import flashinfer_kernels
from .options import EngineOptions
from .paged_forward import PagedBackend
from .quantisation import Quantisation, options_for, quantise
from .tensorrt_vision import insist_on_tensorrt
from .vision_engine import load_vision_engine

BUNDLED_MODEL = ('models', 'nano')


@dataclass(frozen=True, eq=False)
class LoadedModel:
    """A checkpoint in an engine, and what turns words and pictures into its inputs."""

    name: str  # of its folder
    engine: Engine
    tokenizer: Tokenizer
    processor: ImageProcessor
    templates: PromptTemplates


def load_model(
    parameters: Parameters,
    options: EngineOptions | None = None,
    *,
    progress: Callable[[str], None] = lambda text: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> LoadedModel:
    """Load the checkpoint that `parameters` name; see PlanningSession.load."""
    if parameters.threads:
        torch.set_num_threads(parameters.threads)
    model_dir = Path(parameters.model_dir or share_path(*BUNDLED_MODEL)).expanduser()
    if not model_dir.is_dir():
        raise CheckpointError(f'{model_dir}: no such folder; set model_dir to a checkpoint')
    device = choose_device(parameters.device)
    dtype = choose_dtype(parameters.dtype, device)
    quantisation = Quantisation(
        parameters.language_quantisation,
        parameters.vision_quantisation,
        parameters.head_quantisation,
    )
    config = load_config(model_dir)
    ticks = config.window_interval_s * parameters.rate_hz
    if config.window_frames > 1 and not 0.5 <= ticks <= 1.5:
        raise CheckpointError(
            f'{model_dir}: trained on frames {config.window_interval_s:g} s apart, but '
            f'rate_hz is {parameters.rate_hz:g}; set it to {1 / config.window_interval_s:g}'
        )
    tokenizer = Tokenizer.load(model_dir, config)
    processor = ImageProcessor.load(model_dir, config.vision)
    processor = processor.with_pixels(parameters.min_pixels, parameters.max_pixels)
    templates = PromptTemplates.load(model_dir)
    attention = None
    if parameters.attention == 'flashinfer':
        attention = PagedBackend(flashinfer_kernels(config.text, dtype, device))
    if parameters.vision_backend == 'tensorrt':
        insist_on_tensorrt(parameters.vision_precision, device)
    network = load_network(
        model_dir, config, dtype=dtype, device=device, progress=progress, cancelled=cancelled
    )
    quantise(network, quantisation)
    options = options_for(quantisation, options or EngineOptions(runtime=parameters.runtime))
    vision = None
    if parameters.vision_backend == 'tensorrt':
        vision = load_vision_engine(
            network.vision,
            processor,
            model_name=model_dir.resolve().name,
            cache_dir=Path(parameters.cache_dir or default_cache_dir()).expanduser(),
            precision=parameters.vision_precision,
            images=len(parameters.cameras),
            progress=progress,
            cancelled=cancelled,
        )
    engine = Engine(network, options, attention=attention, vision=vision, progress=progress)
    return LoadedModel(model_dir.resolve().name, engine, tokenizer, processor, templates)
