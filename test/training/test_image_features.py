"""Features of a frozen vision tower that are kept instead of computed in every step."""

from dataclasses import replace

import pytest
import torch
from accelerate.state import AcceleratorState
from training_data import records, tiny_checkpoint

from wamdiff_ros.training.recipe import Recipe, RecipeError
from wamdiff_ros.training.records import RecordError
from wamdiff_ros.training.shards import ShardWriter
from wamdiff_ros.training.trainer import Trainer

FROZEN = {'vision_learning_rate': 0.0, 'image_sizes': ((128, 64),)}


@pytest.fixture(autouse=True)
def _fresh_accelerator():
    AcceleratorState._reset_state(reset_partial_state=True)
    yield
    AcceleratorState._reset_state(reset_partial_state=True)


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp('features')
    tiny_checkpoint(folder / 'init')
    tiny_checkpoint(folder / 'other', seed=1)
    with ShardWriter(folder / 'shards' / 'shard-000000.tar') as writer:
        for index, record in enumerate(records(16)):
            writer.write(f'{index:08d}', record)
    return folder


def recipe(folder, output, **changes) -> Recipe:
    values = {
        'kind': 'block',
        'init': folder / 'init',
        'output': output,
        'data': (folder / 'shards',),
        'steps': 1,
        'batch': {'planning': 4, 'description': 2},
        'learning_rate': 1e-3,
        'block_size': 8,
        'precision': 'fp32',
    }
    return Recipe(**{**values, **changes})


def losses(trainer: Trainer) -> list[float]:
    batches = trainer.batches.step(0)
    with torch.no_grad():
        return [sum(trainer.losses(batch).values()).item() for batch in batches]


def test_kept_features_give_the_losses_of_the_tower(folder, tmp_path):
    plain = recipe(folder, tmp_path / 'plain', **FROZEN)
    kept = replace(plain, image_features=tmp_path / 'features')
    assert losses(Trainer(kept)) == pytest.approx(losses(Trainer(plain)), rel=1e-3)


def several_frames(record, count):
    """Return the record with `count` frames of other brightness before its own."""
    (data,) = record.images.values()
    earlier = [next(iter(one.images.values())) for one in records(count, seed=5)]
    names = [f'front-{ago}.jpg' for ago in range(count, 0, -1)]
    images = dict(zip(names, earlier, strict=True)) | {'front.jpg': data}
    return replace(record, images=images)


def test_a_window_has_features_of_all_its_frames(folder, tmp_path):
    with ShardWriter(tmp_path / 'data' / 'shard-000000.tar') as writer:
        for index, record in enumerate(records(6)):
            writer.write(f'{index:08d}', several_frames(record, 2))
    plain = recipe(
        folder, tmp_path / 'plain', data=(tmp_path / 'data',), window_frames=3, **FROZEN
    )
    kept = replace(plain, image_features=tmp_path / 'features')
    trainer = Trainer(kept)
    assert losses(trainer) == pytest.approx(losses(Trainer(plain)), rel=1e-3)
    shown = {
        len(e.prompt.images) for s in range(8) for b in trainer.batches.step(s) for e in b.examples
    }
    assert shown == {1, 2, 3}, 'sometimes fewer, as while the window fills'
    assert trainer.config_json['window_frames'] == 3
    assert trainer.config_json['window_interval_s'] == 0.1


def test_a_recipe_without_a_window_sees_only_the_newest_frame(folder, tmp_path):
    for name, frames in (('one', 0), ('three', 2)):
        with ShardWriter(tmp_path / name / 'shard-000000.tar') as writer:
            for index, record in enumerate(records(6)):
                writer.write(f'{index:08d}', several_frames(record, frames))
    found = [
        losses(Trainer(recipe(folder, tmp_path / 'run', data=(tmp_path / name,), **FROZEN)))
        for name in ('one', 'three')
    ]
    assert found[0] == found[1]


def test_records_without_enough_frames_are_refused_by_name(folder, tmp_path):
    trainer = Trainer(recipe(folder, tmp_path / 'run', window_frames=3, **FROZEN))
    with pytest.raises(RecordError, match=r"\['jpg'\] hold no [23] frames .* --frames"):
        trainer.batches.step(0)


def test_they_are_computed_once_and_again_for_another_tower(folder, tmp_path):
    first = recipe(folder, tmp_path / 'run', image_features=tmp_path / 'features', **FROZEN)
    Trainer(first)
    (file,) = (tmp_path / 'features').glob('*/*.npy')
    made_ns = file.stat().st_mtime_ns
    Trainer(first)
    assert file.stat().st_mtime_ns == made_ns
    Trainer(replace(first, init=folder / 'other'))
    assert len([*(tmp_path / 'features').glob('*/*.npy')]) == 2


def test_new_shards_are_added_to_them(folder, tmp_path):
    with ShardWriter(tmp_path / 'more' / 'shard-000000.tar') as writer:
        for index, record in enumerate(records(3, seed=7)):
            writer.write(f'{index:08d}', record)
    both = recipe(folder, tmp_path / 'run', image_features=tmp_path / 'features', **FROZEN)
    both = replace(both, data=(*both.data, tmp_path / 'more'))
    features = Trainer(both).batches.examples.features
    alone = replace(both, data=(tmp_path / 'more',))
    torch.testing.assert_close(features[16], Trainer(alone).batches.examples.features[0])


@pytest.mark.parametrize(
    'change',
    [{'vision_learning_rate': 1e-3}, {'image_sizes': ()}, {'image_sizes': ((64, 64),) * 2}],
)
def test_a_tower_that_is_trained_or_sees_many_sizes_is_refused(folder, tmp_path, change):
    with pytest.raises(RecipeError, match='image_features wants a frozen vision tower'):
        recipe(folder, tmp_path, **{**FROZEN, 'image_features': tmp_path, **change})


def test_a_shard_that_was_made_anew_under_its_name_is_computed_again(folder, tmp_path):
    def make(seed):
        with ShardWriter(tmp_path / 'data' / 'shard-000000.tar') as writer:
            writer.write('00000000', records(1, seed)[0])
        run = recipe(folder, tmp_path / 'run', image_features=tmp_path / 'features', **FROZEN)
        run = replace(run, data=(tmp_path / 'data',))
        return Trainer(run).batches.examples.features[0]

    assert not torch.equal(make(1), make(2))
