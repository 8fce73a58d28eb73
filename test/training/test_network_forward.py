import numpy as np
import pytest
import torch
from training_data import records, tiny_checkpoint

from wamdiff_ros.decoding.autoregressive import decode_tokens
from wamdiff_ros.decoding.block_diffusion import BlockSettings, Trace, decode_blocks
from wamdiff_ros.decoding.sampling import Sampling
from wamdiff_ros.model.config import load_config
from wamdiff_ros.model.image_processor import ImageProcessor
from wamdiff_ros.model.tokenizer import Tokenizer
from wamdiff_ros.model.weights import load_network
from wamdiff_ros.planning.prompts import PromptTemplates
from wamdiff_ros.runtime.engine import Engine
from wamdiff_ros.training.batches import Batches, Examples, group_images
from wamdiff_ros.training.block_layout import Layout, lay_out_blocks, lay_out_tokens
from wamdiff_ros.training.network_forward import NetworkForward

CPU = torch.device('cpu')


def load(folder, block_size):
    tiny_checkpoint(folder, block_size, std=0.1)
    config = load_config(folder)
    network = load_network(folder, config, dtype=torch.float32, device=CPU)
    examples = Examples(
        records(4),
        config,
        Tokenizer.load(folder, config),
        ImageProcessor.load(folder, config.vision),
        PromptTemplates.load(folder),
    )
    return network, examples


def prefill(network, example) -> Engine:
    engine = Engine(network)
    features = [
        engine.encode_image(index, patches, grid)
        for index, (patches, grid) in enumerate(zip(example.patches, example.grids, strict=True))
    ]
    engine.prefill([example.prompt], [features], 64)
    return engine


def test_images_of_equal_size_are_encoded_together_as_one_by_one(tmp_path):
    network, examples = load(tmp_path, 8)
    some = [examples.example(i, 'planning', (128, 64)) for i in range(3)]
    patches = torch.from_numpy(np.stack([e.patches[0] for e in some]))
    grid = some[0].grids[0]
    tokens, deepstack = network.vision(patches, grid)
    for row in range(3):
        alone, features = network.vision(patches[row], grid)
        torch.testing.assert_close(tokens[row], alone, rtol=0, atol=1e-5)
        for layer, feature in zip(deepstack, features, strict=True):
            torch.testing.assert_close(layer[row], feature, rtol=0, atol=1e-5)


@pytest.mark.parametrize('fused', (False, True))
def test_training_predicts_what_the_block_decoder_sees(tmp_path, fused):
    """Decode, then lay out the states that decoding went through: the same predictions."""
    network, examples = load(tmp_path, 8)
    config = network.config
    settings = BlockSettings(8, config.mask_token_id, (), 3)
    forward = NetworkForward(network, train_vision=False, fused_attention=fused)
    # Prompts of unequal length in one batch, none of a whole number of blocks.
    chosen = [examples.example(0, 'planning', None), examples.example(1, 'description', None)]
    answers, noisy, seen = [], [], []
    for example in chosen:
        trace = Trace(record=True)
        (answer,) = decode_blocks(prefill(network, example), settings, 24, trace=trace)
        answers.append(list(answer.token_ids))
        first, states, predictions = 0, [], []
        for steps in trace.steps_per_block:
            block, predicted, _ = trace.steps[first + steps - 1]
            states.append(block[0])
            predictions.append(predicted[0][block[0] == config.mask_token_id])
            first += steps
        noisy.append(torch.cat(states)[None].numpy())
        seen.append(torch.cat(predictions))
    noise = [np.ones(n.shape) for n in noisy]
    layout = lay_out_blocks(
        [e.prompt for e in chosen], answers, noisy, noise, 8, config.mask_token_id
    )
    with torch.no_grad():
        logits = forward(layout, group_images(tuple(chosen)))
    logits[:, config.mask_token_id] = -torch.inf
    assert torch.equal(logits.argmax(-1), torch.cat(seen))
    assert len(set(torch.cat(seen).tolist())) > 3


def test_training_predicts_what_the_autoregressive_decoder_says(tmp_path):
    network, examples = load(tmp_path, 1)
    forward = NetworkForward(network, train_vision=False, fused_attention=False)
    chosen = [examples.example(0, 'planning', None), examples.example(1, 'description', None)]
    answers = []
    for example in chosen:
        (answer,) = decode_tokens(prefill(network, example), (), Sampling(), 20)
        answers.append(list(answer.token_ids))
    layout = lay_out_tokens([e.prompt for e in chosen], answers, network.config.eos_token_ids[0])
    with torch.no_grad():
        predicted = forward(layout, group_images(tuple(chosen))).argmax(-1)
    keep = layout.labels != network.config.eos_token_ids[0]
    assert torch.equal(predicted[keep], layout.labels[keep])


def test_a_batch_is_a_function_of_seed_and_step_and_shared_out_among_processes(tmp_path):
    _, examples = load(tmp_path, 8)
    batch, layout = {'planning': 4}, Layout(8, 2)
    whole = Batches(examples, layout, batch, seed=3).step(5)[0]
    again = Batches(examples, layout, batch, seed=3).step(5)[0]
    assert torch.equal(whole.layout.token_ids, again.layout.token_ids)
    other = Batches(examples, layout, batch, seed=4).step(5)[0]
    assert not torch.equal(whole.layout.token_ids, other.layout.token_ids)
    for rank in range(2):
        half = Batches(examples, layout, batch, seed=3, rank=rank, processes=2).step(5)[0]
        assert torch.equal(half.layout.token_ids, whole.layout.token_ids[rank::2])
    with pytest.raises(ValueError, match='cannot be shared by 3 processes'):
        Batches(examples, layout, batch, seed=3, processes=3)


def test_every_record_comes_once_before_any_comes_again(tmp_path):
    _, examples = load(tmp_path, 8)
    batches = Batches(examples, Layout(8), {'planning': 2}, seed=0)
    order = [batches.record_at(place) for place in range(12)]
    assert [sorted(order[i : i + 4]) for i in (0, 4, 8)] == [[0, 1, 2, 3]] * 3
    assert len({tuple(order[i : i + 4]) for i in (0, 4, 8)}) > 1


def test_an_error_while_preparing_a_batch_is_raised_where_it_is_wanted(tmp_path):
    _, examples = load(tmp_path, 8)
    examples.records[2].images['jpg'] = b'no picture'
    batches = Batches(examples, Layout(8), {'planning': 4}, seed=0)
    with pytest.raises(ValueError, match='picture'):
        list(batches.ahead(range(2)))
