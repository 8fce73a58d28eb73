"""Recipes start from a checkpoint as `transformers` writes a Qwen3-VL."""

import json

import pytest
import torch
from accelerate.state import AcceleratorState
from safetensors.torch import load_file
from training_data import records, tiny_checkpoint

from wamdiff_ros.model.config import CheckpointError, load_config
from wamdiff_ros.training.recipe import Recipe
from wamdiff_ros.training.trainer import Trainer

transformers = pytest.importorskip('transformers', reason='writes the checkpoint')


@pytest.fixture(autouse=True)
def _fresh_accelerator():
    AcceleratorState._reset_state(reset_partial_state=True)
    yield
    AcceleratorState._reset_state(reset_partial_state=True)


@pytest.fixture(scope='module')
def qwen(tmp_path_factory):
    """A tiny random Qwen3-VL, saved by transformers, with the words of the nano tokenizer."""
    nano = tiny_checkpoint(tmp_path_factory.mktemp('nano'))
    ours = json.loads((nano / 'config.json').read_text())
    text = dict(ours['text_config'], model_type='qwen3_vl_text')
    text['rope_parameters'] = {**text.pop('rope_scaling'), 'rope_theta': text.pop('rope_theta')}
    ids = {k: v for k, v in ours.items() if k.endswith('token_id') and k != 'mask_token_id'}
    config = transformers.Qwen3VLConfig(
        text_config=dict(text, eos_token_id=ids['eos_token_id']),
        vision_config=dict(ours['vision_config'], model_type='qwen3_vl_vision'),
        tie_word_embeddings=True,
        **ids,
    )
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp('qwen')
    transformers.Qwen3VLForConditionalGeneration(config).save_pretrained(folder)
    for name in ('tokenizer.json', 'preprocessor_config.json', 'prompts.json'):
        (folder / name).write_bytes((nano / name).read_bytes())
    assert load_config(folder).family == 'qwen3_vl'
    return folder, ours['mask_token_id']


def recipe(init, output, **changes):
    values = {
        'kind': 'block',
        'block_size': 8,
        'steps': 2,
        'batch': {'planning': 2},
        'learning_rate': 1e-3,
        'precision': 'fp32',
    }
    return Recipe(**{'init': init, 'output': output, 'data': (init,), **values, **changes})


def test_adapting_qwen_to_blocks_makes_a_block_diffusion_checkpoint(qwen, tmp_path):
    folder, mask = qwen
    with pytest.raises(CheckpointError, match='mask_token_id is missing'):
        Trainer(recipe(folder, tmp_path / 'out'), records(2))
    saved = Trainer(recipe(folder, tmp_path / 'out', mask_token_id=mask), records(2)).run()
    config = load_config(saved)
    assert (config.family, config.block_size, config.mask_token_id) == ('wam_diff2', 8, mask)
    assert load_file(saved / 'model.safetensors').keys() == (
        load_file(folder / 'model.safetensors').keys()
    )


def test_qwen_fine_tuned_token_by_token_stays_qwen(qwen, tmp_path):
    folder, _ = qwen
    saved = Trainer(
        recipe(folder, tmp_path / 'out', kind='autoregressive', block_size=1), records(2)
    ).run()
    assert load_config(saved).family == 'qwen3_vl'
    # Still what transformers reads.
    model = transformers.Qwen3VLForConditionalGeneration.from_pretrained(saved)
    trained = load_file(saved / 'model.safetensors')['model.language_model.norm.weight']
    assert torch.equal(model.model.language_model.norm.weight.to(trained.dtype), trained)
