"""How answers are masked in training."""

from pathlib import Path

import numpy as np
import pytest
import torch

from wamdiff_ros.decoding.unmasking import Unmasking, choose_slots
from wamdiff_ros.model.config import load_config
from wamdiff_ros.model.tokenizer import Tokenizer
from wamdiff_ros.training import noise
from wamdiff_ros.training.block_layout import Layout
from wamdiff_ros.training.noise import Noise

MASK = 99
ANSWER = list(range(4 * 8))


def blocks_of(config: Noise, times: int = 200) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    pairs = [config.add(ANSWER, random) for _ in range(times)]
    noisy, levels = (np.concatenate([p[i].reshape(-1, 8) for p in pairs]) for i in range(2))
    return noisy == MASK, levels


def test_noise_levels_are_spread_evenly_over_the_blocks():
    for seed in range(20):
        levels = np.sort(noise.stratified_noise(8, np.random.default_rng(seed)))
        assert np.allclose(np.diff(levels), 1 / 8)
        assert 0 < levels[0] <= 1 / 8 and levels[-1] <= 1


@pytest.mark.parametrize('share', (0.0, 0.4, 1.0))
def test_a_share_of_noisy_blocks_is_fully_masked(share):
    masked, levels = blocks_of(Noise(Layout(8, 2, fully_masked=share), MASK))
    assert np.mean(masked.all(axis=1) & (levels[:, 0] == 1)) == pytest.approx(share, abs=0.05)


def test_what_is_masked_in_turn_is_what_decoding_meets():
    # Slots 2 and 6 are punctuation: sure from the start, so never left masked.
    content = np.ones(100, bool)
    content[[t for t in ANSWER if t % 8 in (2, 6)]] = False
    masked, levels = blocks_of(Noise(Layout(8, 2, in_turn=1.0), MASK, content))
    assert masked.any(axis=1).all() and not masked.all(axis=1).all()
    shown = masked[~masked.all(axis=1)]
    assert not shown[:, [2, 6]].any()
    # The first slot waits for nothing.
    assert not shown[:, 0].any()
    assert np.allclose(levels, masked.mean(axis=1, keepdims=True))


def test_a_step_of_the_rule_leads_from_nothing_to_what_is_masked_in_turn(monkeypatch):
    monkeypatch.setattr(noise, 'MOST_STEPS', 1)
    monkeypatch.setattr(noise.np, 'sqrt', np.ones_like)  # every slot of content is unsure
    content = np.random.default_rng(1).random((50, 8)) < 0.6
    left, waits = noise.masked_in_turn(content, np.random.default_rng(0))
    masked = torch.ones(content.shape, dtype=torch.bool)
    confidence = torch.from_numpy(np.where(content, 0.0, 1.0))
    chosen = choose_slots(Unmasking.LEADING, 0.5, confidence, masked, 0).numpy()
    going = ~left.all(axis=1)
    assert 10 < going.sum() < 40  # the others are met before the first step
    assert (left[going] == ~chosen[going]).all()
    # Two slots behind an unsure one wait for it; the first that is left waits for nothing.
    assert not (waits & ~left).any()
    assert all(
        not row[masked.argmax()] for row, masked in zip(waits[going], left[going], strict=True)
    )
    assert waits.any()


def test_slots_that_wait_count_for_less_and_only_in_blocks_masked_in_turn():
    content = np.ones(100, bool)
    for in_turn, found in ((0.0, {1.0}), (1.0, {0.25, 1.0})):
        layout = Layout(8, 2, in_turn=in_turn, waiting_weight=0.25)
        weights = Noise(layout, MASK, content).add(ANSWER, np.random.default_rng(0))[2]
        assert set(weights.reshape(-1)) == found


def test_digits_letters_and_signs_are_content_and_punctuation_is_not():
    model_dir = Path(__file__).parents[2] / 'models/nano'
    config = load_config(model_dir)
    tokenizer = Tokenizer.load(model_dir, config)
    content = noise.content_tokens(tokenizer, config.text.vocab_size)
    assert content.shape == (config.text.vocab_size,)
    for text, wanted in (('7', True), ('+', True), ('a', True), ('.', False), (',', False)):
        assert content[tokenizer.encode(text)].tolist() == [wanted], text
