"""Which records a training step takes."""

import pytest
from training_data import records, tiny_checkpoint

from wamdiff_ros.model.config import load_config
from wamdiff_ros.model.image_processor import ImageProcessor
from wamdiff_ros.model.tokenizer import Tokenizer
from wamdiff_ros.planning.prompts import PromptTemplates
from wamdiff_ros.training.batches import Batches, Examples
from wamdiff_ros.training.block_layout import Layout


@pytest.fixture(scope='module')
def examples(tmp_path_factory):
    folder = tiny_checkpoint(tmp_path_factory.mktemp('batches') / 'tiny')
    config = load_config(folder)
    return Examples(
        records(8),
        config,
        Tokenizer.load(folder, config),
        ImageProcessor.load(folder, config.vision),
        PromptTemplates.load(folder),
    )


def test_records_that_hold_an_emphasised_object_are_drawn_so_many_times_as_often(examples):
    layout = Layout(block_size=1)
    batches = Batches(
        examples, layout, {'planning': 8}, seed=3, emphasis={'cyclist': 3, 'animal': 2}
    )
    drawn = [batches.record_at(place) for place in range(16)]
    # Every other record of training_data holds all objects.
    assert sorted(drawn) == [0, 0, 0, 1, 2, 2, 2, 3, 4, 4, 4, 5, 6, 6, 6, 7]


def test_a_thing_in_the_picture_is_emphasised_by_its_kind(examples):
    layout = Layout(block_size=1)
    batches = Batches(examples, layout, {'planning': 8}, seed=3, emphasis={'red': 2, 'amber': 5})
    # Every other record of training_data shows a red light, none an amber one.
    drawn = sorted(batches.record_at(place) for place in range(12))
    assert drawn == [0, 1, 1, 2, 3, 3, 4, 5, 5, 6, 7, 7]
