"""What is shown of a record when it becomes a training sample."""

from dataclasses import replace

import numpy as np
import pytest
from training_data import records, tiny_checkpoint

from wamdiff_ros.model.config import load_config
from wamdiff_ros.model.image_processor import ImageProcessor
from wamdiff_ros.model.tokenizer import Tokenizer
from wamdiff_ros.planning.prompts import PromptTemplates
from wamdiff_ros.training.batches import Batches, Examples, Layout


@pytest.fixture(scope='module')
def examples(tmp_path_factory):
    folder = tiny_checkpoint(tmp_path_factory.mktemp('batches') / 'tiny')
    config = load_config(folder)
    some = [replace(record, acceleration_base_mps2=(-2.5, 1.5)) for record in records(8)]
    return Examples(
        some,
        config,
        Tokenizer.load(folder, config),
        ImageProcessor.load(folder, config.vision),
        PromptTemplates.load(folder),
    ), Tokenizer.load(folder, config)


def questions(examples, tokenizer, share):
    layout = Layout(block_size=1)
    batches = Batches(examples, layout, {'planning': 8}, seed=3, hide_acceleration=share)
    return [tokenizer.decode(e.prompt.token_ids) for b in batches.step(0) for e in b.examples]


def test_a_hidden_acceleration_is_forward_only_and_keeps_its_place(examples):
    shown, hidden = (questions(*examples, share) for share in (0.0, 1.0))
    for with_it, without in zip(shown, hidden, strict=True):
        assert '(-02.5,+01.5)' in with_it
        assert without == with_it.replace('(-02.5,+01.5)', '(+00.0,+01.5)')


def test_half_of_the_samples_hide_it_the_same_ones_every_time(examples):
    first, again = (questions(*examples, 0.5) for _ in range(2))
    assert first == again
    assert 0 < np.sum(['-02.5' in question for question in first]) < 8


def test_records_that_hold_an_emphasised_object_are_drawn_so_many_times_as_often(examples):
    layout = Layout(block_size=1)
    batches = Batches(
        examples[0], layout, {'planning': 8}, seed=3, emphasis={'cyclist': 3, 'animal': 2}
    )
    drawn = [batches.record_at(place) for place in range(16)]
    # Every other record of training_data holds all objects.
    assert sorted(drawn) == [0, 0, 0, 1, 2, 2, 2, 3, 4, 4, 4, 5, 6, 6, 6, 7]
