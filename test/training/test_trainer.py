import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from accelerate.state import AcceleratorState
from safetensors.torch import load_file
from training_data import records, tiny_checkpoint

from wamdiff_ros import cli
from wamdiff_ros.decoding.unmasking import Unmasking
from wamdiff_ros.model.config import CheckpointError, load_config
from wamdiff_ros.training.recipe import Recipe, RecipeError
from wamdiff_ros.training.shards import ShardWriter
from wamdiff_ros.training.trainer import Trainer


@pytest.fixture(autouse=True)
def _fresh_accelerator():
    AcceleratorState._reset_state(reset_partial_state=True)
    yield
    AcceleratorState._reset_state(reset_partial_state=True)


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp('training')
    tiny_checkpoint(folder / 'init')
    tiny_checkpoint(folder / 'teacher', block_size=4, seed=1)
    with ShardWriter(folder / 'shards' / 'shard-000000.tar') as writer:
        for index, record in enumerate(records(16)):
            writer.write(f'{index:08d}', record)
    return folder


def recipe(folder: Path, output: Path, **changes) -> Recipe:
    values = {
        'kind': 'block',
        'init': folder / 'init',
        'output': output,
        'data': (folder / 'shards',),
        'steps': 6,
        'batch': {'planning': 4, 'description': 2},
        'learning_rate': 1e-3,
        'vision_learning_rate': 1e-3,
        'warm_up_steps': 2,
        'block_size': 8,
        'precision': 'fp32',
    }
    return Recipe(**{**values, **changes})


def train(recipe: Recipe, steps: int | None = None, resume: bool = False) -> dict:
    AcceleratorState._reset_state(reset_partial_state=True)
    trainer = Trainer(recipe)
    if resume:
        trainer.resume()
    saved = trainer.run(steps)
    return load_file(saved / 'training' / 'weights.safetensors')


def assert_equal(left: dict, right: dict):
    assert left.keys() == right.keys()
    for name in left:
        assert torch.equal(left[name], right[name]), name


KINDS = {
    'vision': {
        'kind': 'vision',
        'block_size': 1,
        'batch': {'planning': 6},
        'image_sizes': ((96, 64),),
    },
    'autoregressive': {'kind': 'autoregressive', 'block_size': 1, 'precision': 'bf16'},
    'block': {'noisy_copies': 2},
    'distillation': {'kind': 'distillation', 'on_policy_every': 2, 'precision': 'bf16'},
}


@pytest.mark.parametrize('kind', KINDS)
def test_a_resumed_run_equals_an_uninterrupted_one_bit_for_bit(folder, tmp_path, kind):
    changes = dict(KINDS[kind])
    if kind == 'distillation':
        changes['teacher'] = folder / 'teacher'
    whole = train(recipe(folder, tmp_path / 'whole', **changes))
    parts = recipe(folder, tmp_path / 'parts', **changes)
    train(parts, steps=3)
    assert_equal(train(parts, resume=True), whole)
    start = load_file(folder / 'init' / 'model.safetensors')
    assert not torch.equal(
        whole['network.model.visual.pos_embed.weight'], start['model.visual.pos_embed.weight']
    )


def test_two_processes_train_what_one_process_trains(folder, tmp_path):
    values = recipe(folder, tmp_path / 'one', steps=3, noisy_copies=2)
    file = tmp_path / 'recipe.yaml'
    file.write_text(json.dumps(values.to_json() | {'output': 'two'}))
    alone = train(values)
    command = ['-m', 'accelerate.commands.launch', '--cpu', '--num_processes=2']
    command += ['--num_machines=1', '--mixed_precision=no', '--dynamo_backend=no']
    command += ['--main_process_port=0', '--num_cpu_threads_per_process=1']
    command += ['-m', 'wamdiff_ros.cli', 'train', str(file)]
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, *command],
        cwd=root,
        env={**os.environ, 'PYTHONPATH': str(root)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    together = load_file(tmp_path / 'two' / 'latest' / 'training' / 'weights.safetensors')
    for name, tensor in alone.items():
        torch.testing.assert_close(together[name], tensor, rtol=0, atol=2e-5, msg=name)


def test_a_frozen_vision_tower_keeps_its_weights_while_language_learns(folder, tmp_path):
    after = train(recipe(folder, tmp_path / 'out', vision_learning_rate=0.0, steps=2))
    before = load_file(folder / 'init' / 'model.safetensors')
    for name, tensor in before.items():
        changed = not torch.equal(after[f'network.{name}'], tensor)
        assert changed != name.startswith('model.visual'), name


def test_samples_in_micro_batches_give_the_same_step(folder, tmp_path):
    whole = train(recipe(folder, tmp_path / 'whole', steps=2))
    parts = train(recipe(folder, tmp_path / 'parts', steps=2, micro_batch=2))
    for name, tensor in whole.items():
        torch.testing.assert_close(parts[name], tensor, rtol=0, atol=2e-5, msg=name)


def test_a_checkpoint_says_what_it_was_trained_with(folder, tmp_path):
    train(
        recipe(
            folder,
            tmp_path / 'out',
            steps=2,
            denoising_steps=3,
            confidence_threshold=0.4,
            unmasking='leading',
        )
    )
    latest = tmp_path / 'out' / 'latest'
    config = load_config(latest)
    assert config.block_size == 8 and config.mask_token_id is not None
    assert (config.denoising_steps, config.confidence_threshold) == (3, 0.4)
    assert config.unmasking is Unmasking.LEADING
    assert load_file(latest / 'model.safetensors')['model.language_model.norm.weight'].dtype == (
        torch.bfloat16
    )
    state = json.loads((latest / 'training' / 'state.json').read_text())
    assert state['step'] == 2 and state['recipe']['kind'] == 'block'
    for name in ('tokenizer.json', 'prompts.json', 'preprocessor_config.json'):
        assert (latest / name).read_bytes() == (folder / 'init' / name).read_bytes()


def test_only_the_newest_checkpoints_are_kept(folder, tmp_path):
    train(recipe(folder, tmp_path / 'out', steps=4, checkpoint_every=1, keep_checkpoints=2))
    kept = sorted(path.name for path in (tmp_path / 'out').glob('step_*'))
    assert kept == ['step_000003', 'step_000004']
    assert (tmp_path / 'out' / 'latest').resolve().name == 'step_000004'


def test_a_run_is_not_resumed_under_another_recipe(folder, tmp_path):
    first = recipe(folder, tmp_path / 'out', steps=2)
    train(first, steps=1)
    with pytest.raises(RecipeError, match=r'learning_rate is 0.01, but .* 0.001'):
        train(replace(first, learning_rate=0.01), resume=True)


def test_a_run_that_diverges_ends_before_it_overwrites_a_good_checkpoint(folder, tmp_path):
    with pytest.raises(FloatingPointError, match='lower learning_rate'):
        train(recipe(folder, tmp_path / 'out', learning_rate=1e30, log_every=1, warm_up_steps=0))
    assert not list((tmp_path / 'out').glob('step_*'))


def test_the_command_does_not_overwrite_a_run_unasked(folder, tmp_path, capsys):
    file = tmp_path / 'recipe.yaml'
    values = recipe(folder, tmp_path / 'out', steps=2).to_json()
    file.write_text(json.dumps(values))
    assert cli.main(['train', str(file), '--steps', '1']) == 0
    AcceleratorState._reset_state(reset_partial_state=True)
    assert cli.main(['train', str(file)]) == 1
    assert 'choose --resume or --fresh' in capsys.readouterr().err
    AcceleratorState._reset_state(reset_partial_state=True)
    assert cli.main(['train', str(file), '--resume']) == 0
    assert (tmp_path / 'out' / 'latest').resolve().name == 'step_000002'


def test_a_teacher_that_does_not_fit_is_refused(folder, tmp_path):
    common = {'kind': 'distillation', 'steps': 1}
    with pytest.raises(RecipeError, match='autoregressive'):
        Trainer(recipe(folder, tmp_path, teacher=folder / 'init', **common))
    with pytest.raises(RecipeError, match='does not divide'):
        Trainer(recipe(folder, tmp_path, teacher=folder / 'teacher', **common, block_size=6))


def test_a_checkpoint_without_a_mask_token_cannot_be_adapted_to_blocks(folder, tmp_path):
    init = tmp_path / 'init'
    init.mkdir()
    for path in (folder / 'init').iterdir():
        (init / path.name).write_bytes(path.read_bytes())
    config = json.loads((init / 'config.json').read_text())
    del config['mask_token_id']
    (init / 'config.json').write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match='mask_token_id is missing'):
        Trainer(recipe(folder, tmp_path / 'out', init=init))
