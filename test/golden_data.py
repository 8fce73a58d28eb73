"""Figures of the reference implementation and the tiny checkpoints that they were made with."""

import json
from functools import cache
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file

from wamdiff_ros.model.chat import Prompt, prompt_from_ids
from wamdiff_ros.model.config import ModelConfig, load_config
from wamdiff_ros.model.image_processor import ImageProcessor
from wamdiff_ros.model.weights import load_network
from wamdiff_ros.runtime.engine import Engine, ImageFeatures
from wamdiff_ros.runtime.options import PLAIN, EngineOptions

GOLDEN = Path(__file__).parent / 'golden'
VARIANTS = ('A_tied', 'B_untied')


def checkpoint(variant: str, tmp_path: Path, **fields) -> Path:
    """Copy a golden checkpoint's config, with other `fields`, beside a link to its weights."""
    folder = tmp_path / variant
    folder.mkdir(parents=True)
    config = json.loads((GOLDEN / variant / 'config.json').read_text())
    config.update({'block_size': 8, **fields})
    (folder / 'config.json').write_text(json.dumps(config))
    (folder / 'model.safetensors').symlink_to(GOLDEN / variant / 'model.safetensors')
    return folder


@cache
def inputs() -> dict[str, torch.Tensor]:
    return load_file(GOLDEN / 'inputs.safetensors')


@cache
def prompt_specs() -> dict:
    return json.loads((GOLDEN / 'inputs.json').read_text())['prompts']


@cache
def generate_cases() -> list[dict]:
    return json.loads((GOLDEN / 'generate.json').read_text())


@cache
def traces() -> dict[str, np.ndarray]:
    with np.load(GOLDEN / 'generate_trace.npz') as file:
        return dict(file)


def image_processor() -> ImageProcessor:
    values = json.loads((GOLDEN / 'inputs.json').read_text())['image_processor']
    return ImageProcessor(
        patch_size=values['patch_size'],
        temporal_patch_size=values['temporal_patch_size'],
        merge_size=values['merge_size'],
        min_pixels=values['min_pixels'],
        max_pixels=values['max_pixels'],
        mean=tuple(values['mean']),
        std=tuple(values['std']),
    )


def grid(image: str) -> tuple[int, int, int]:
    return tuple(inputs()[f'{image}.grid_thw'][0].tolist())


def golden_prompt(name: str, config: ModelConfig) -> tuple[Prompt, list[str]]:
    """Return a single golden prompt and the names of its images."""
    images = prompt_specs()[name]['images']
    ids = inputs()[f'{name}.input_ids'][0].tolist()
    return prompt_from_ids(ids, [grid(image) for image in images], config), images


def golden_engine(
    variant: str,
    tmp_path: Path,
    norm_scale: float = 1.0,
    options: EngineOptions = PLAIN,
    **fields,
) -> Engine:
    """Load a golden checkpoint; `norm_scale` makes its random weights confident."""
    folder = checkpoint(variant, tmp_path, **fields)
    config = load_config(folder)
    network = load_network(folder, config, dtype=torch.float32, device=torch.device('cpu'))
    network.text.norm.weight.data *= norm_scale
    return Engine(network, options)


def features(engine: Engine, images: list[str]) -> list[ImageFeatures]:
    return [
        engine.encode_image(image, inputs()[f'{image}.pixel_values'].numpy(), grid(image))
        for image in images
    ]


def prefill(engine: Engine, names: list[str], new_tokens: int, **options):
    """Prefill golden prompts, which may be of unequal length."""
    prompts, images = zip(*(golden_prompt(name, engine.config) for name in names), strict=True)
    return engine.prefill(
        prompts, [features(engine, row) for row in images], new_tokens, **options
    )
