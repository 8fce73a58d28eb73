from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from training_data import records, tiny_checkpoint

from wamdiff_ros.decoding.block_diffusion import decode_blocks
from wamdiff_ros.decoding.unmasking import Unmasking
from wamdiff_ros.model.config import load_config
from wamdiff_ros.model.image_processor import ImageProcessor
from wamdiff_ros.model.tokenizer import Tokenizer
from wamdiff_ros.model.weights import load_network
from wamdiff_ros.planning.prompts import PromptTemplates
from wamdiff_ros.runtime.engine import Engine
from wamdiff_ros.training.batches import Batches, Examples
from wamdiff_ros.training.block_layout import Layout, fill_answer
from wamdiff_ros.training.on_policy import OnPolicy
from wamdiff_ros.training.recipe import Recipe

SIZE = 8


@pytest.fixture
def student(tmp_path):
    tiny_checkpoint(tmp_path, SIZE, std=0.1)
    config = load_config(tmp_path)
    network = load_network(tmp_path, config, dtype=torch.float32, device=torch.device('cpu'))
    examples = Examples(
        records(6),
        config,
        Tokenizer.load(tmp_path, config),
        ImageProcessor.load(tmp_path, config.vision),
        PromptTemplates.load(tmp_path),
    )
    (batch,) = Batches(examples, Layout(SIZE), {'planning': 5}, seed=0).step(0)
    recipe = Recipe(
        kind='distillation',
        teacher=Path('teacher'),
        init=tmp_path,
        output=tmp_path,
        data=(tmp_path,),
        steps=1,
        batch={'planning': 5},
        learning_rate=1e-3,
        block_size=SIZE,
        noisy_copies=2,
        on_policy_every=1,
        on_policy_steps=3,
    )
    return network, batch, OnPolicy(recipe, network, torch.float32)


@pytest.mark.parametrize('unmasking', (Unmasking.STATIC, Unmasking.DYNAMIC))
def test_prompts_decoded_together_get_the_answers_that_they_get_alone(student, unmasking):
    network, batch, on_policy = student
    on_policy._settings = replace(on_policy._settings, unmasking=unmasking)
    answers, _ = on_policy.decode(batch)
    longest = max(len(e.answer) + 1 for e in batch.examples)
    assert len(set(map(tuple, answers))) > 1
    for example, together in zip(batch.examples, answers, strict=True):
        engine = Engine(network)
        image = engine.encode_image(0, example.patches[0], example.grids[0])
        engine.prefill([example.prompt], [[image]], longest)
        (alone,) = decode_blocks(engine, on_policy._settings, longest)
        ids = list(alone.token_ids)
        if alone.finished:
            ids = fill_answer(ids, network.config.eos_token_ids[0], SIZE)
        assert together == ids


@pytest.mark.parametrize('unmasking', Unmasking)
def test_the_student_learns_from_states_that_its_decoding_went_through(student, unmasking):
    network, batch, on_policy = student
    on_policy._settings = replace(on_policy._settings, unmasking=unmasking)
    answers, states = on_policy.decode(batch)
    layout = on_policy.lay_out(batch, 4, np.random.default_rng(0))
    mask = network.config.mask_token_id
    for row, (example, answer) in enumerate(zip(batch.examples, answers, strict=True)):
        start = len(example.prompt)
        size = len(answer)
        ids = layout.token_ids[row]
        assert ids[start : start + size].tolist() == answer
        for copy in (1, 2):
            noisy = ids[start + copy * size : start + (copy + 1) * size].view(-1, SIZE)
            for block, seen in zip(noisy.tolist(), states, strict=False):
                assert any(block == step[row].tolist() for step in seen)
                assert mask in block
    assert layout.teacher_visible is not None


def test_decoding_follows_the_students_weights(student):
    network, batch, on_policy = student
    before, _ = on_policy.decode(batch)
    with torch.no_grad():
        network.text.embed_tokens.weight.copy_(network.text.embed_tokens.weight.roll(1, 0))
    after, _ = on_policy.decode(batch)
    assert before != after
