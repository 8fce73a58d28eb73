"""What a run leaves on disk: checkpoints that the planner can load, and what resuming needs.

    OUTPUT/step_000500/           config.json, model.safetensors (bf16), tokenizer.json, …
    OUTPUT/step_000500/training/  weights and optimiser in float32, state.json
    OUTPUT/latest                 link to the newest
    OUTPUT/log/                   TensorBoard

A checkpoint is written under a temporary name and renamed, so that it is whole or not there.
"""

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from ..model.config import CheckpointError, read_json
from .records import FRAME_INTERVAL_NS

LATEST = 'latest'
NETWORK = 'network.'  # before the names of a network's weights inside the trained module
# Taken over from the checkpoint that a run started from.
COMPANIONS = (
    'tokenizer.json',
    'tokenizer_config.json',
    'preprocessor_config.json',
    'processor_config.json',
    'generation_config.json',
    'chat_template.json',
    'prompts.json',
)
_NAME = re.compile(r'step_(\d{6,})')


def checkpoints(output: Path) -> list[tuple[int, Path]]:
    """Return the checkpoints in `output`, the oldest first, as (step, folder)."""
    if not output.is_dir():
        return []
    found = ((_NAME.fullmatch(path.name), path) for path in output.iterdir())
    return sorted((int(match[1]), path) for match, path in found if match)


def save(
    output: Path,
    step: int,
    init: Path,
    config: dict[str, Any],
    weights: dict[str, torch.Tensor],
    extra: dict[str, torch.Tensor],
    optimizer: dict[str, torch.Tensor],
    state: dict[str, Any],
    keep: int,
) -> Path:
    """Write the checkpoint of `step` and delete all but the newest `keep` (0: keep all).

    `extra` are weights that only training needs, a head that is thrown away afterwards.
    """
    folder = output / f'step_{step:06d}'
    partial = output / f'.{folder.name}.{os.getpid()}.partial'
    (partial / 'training').mkdir(parents=True)
    for name in COMPANIONS:
        if (init / name).is_file():
            shutil.copyfile(init / name, partial / name)
    (partial / 'config.json').write_text(json.dumps(config, indent=1) + '\n')
    published = {name: tensor.to(torch.bfloat16) for name, tensor in weights.items()}
    save_file(published, partial / 'model.safetensors', metadata={'format': 'pt'})
    trained = {f'{NETWORK}{name}': tensor for name, tensor in weights.items()} | extra
    save_file(trained, partial / 'training' / 'weights.safetensors')
    save_file(optimizer, partial / 'training' / 'optimizer.safetensors')
    state = {'step': step, **state}
    (partial / 'training' / 'state.json').write_text(json.dumps(state, indent=1) + '\n')
    if folder.exists():
        shutil.rmtree(folder)
    partial.rename(folder)
    link = output / f'.{LATEST}.{os.getpid()}'
    link.unlink(missing_ok=True)
    link.symlink_to(folder.name)
    link.replace(output / LATEST)
    if keep:
        for _, old in checkpoints(output)[:-keep]:
            shutil.rmtree(old)
    return folder


def load_state(
    folder: Path,
) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor], dict[str, Any]]:
    """Read what `save` wrote: weights, optimiser and state; raises CheckpointError."""
    training = folder / 'training'
    try:
        weights = load_file(training / 'weights.safetensors')
        optimizer = load_file(training / 'optimizer.safetensors')
    except (OSError, SafetensorError) as error:
        raise CheckpointError(
            f'{training}: a run cannot be resumed from here: {error}; start it with --fresh'
        ) from None
    return weights, optimizer, read_json(training / 'state.json')


def trained_config(
    init: Path,
    block_size: int,
    mask_token_id: int | None,
    window_frames: int = 1,
    **decoding: float | str | None,
) -> dict[str, Any]:
    """Return the config.json of a checkpoint trained from `init` at `block_size`.

    `decoding`: denoising_steps, confidence_threshold and unmasking, None where it has no own.
    A qwen3_vl checkpoint becomes wam_diff2 once its blocks are longer than one token; it has no
    mask token of its own, so the recipe has to name one.
    """
    file = Path(init) / 'config.json'
    config = dict(read_json(file))
    if config.get('model_type') == 'qwen3_vl':
        if block_size == 1:
            return config
        generation = init / 'generation_config.json'
        eos = read_json(generation).get('eos_token_id') if generation.exists() else None
        config['model_type'] = 'wam_diff2'
        config['architectures'] = ['WAMDiff2ForConditionalGeneration']
        config['text_config'] = dict(config['text_config'], model_type='wam_diff2_text')
        config['vision_config'] = dict(config['vision_config'], model_type='wam_diff2')
        if config.get('eos_token_id') is None and eos is not None:
            config['eos_token_id'] = eos
    config['block_size'] = block_size
    config.pop('window_frames', None)
    config.pop('window_interval_s', None)
    if window_frames > 1:
        config |= {'window_frames': window_frames, 'window_interval_s': FRAME_INTERVAL_NS / 1e9}
    # What a checkpoint was tuned to at another block size means nothing here.
    for name in ('denoising_steps', 'confidence_threshold', 'unmasking'):
        config.pop(name, None)
        if decoding.get(name) is not None:
            config[name] = decoding[name]
    if mask_token_id is not None:
        config['mask_token_id'] = mask_token_id
    if config.get('mask_token_id') is None and block_size > 1:
        raise CheckpointError(
            f'{file}: mask_token_id is missing; give the recipe one, an embedding row that no '
            'token uses (151671 for Qwen3-VL)'
        )
    return config
