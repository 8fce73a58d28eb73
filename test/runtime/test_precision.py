"""What runs in half precision, and that no more is computed than somebody reads."""

import pytest
import torch
from golden_data import VARIANTS, checkpoint, prefill

from wamdiff_ros.decoding.block_diffusion import BlockSettings, decode_blocks
from wamdiff_ros.decoding.sampling import Sampling, sample
from wamdiff_ros.model.config import load_config
from wamdiff_ros.model.weights import load_network
from wamdiff_ros.runtime.engine import Engine

MASKED = torch.ones(1, 8, dtype=torch.bool)


def engine_in(dtype, variant, folder):
    config = load_config(folder)
    return Engine(load_network(folder, config, dtype=dtype, device=torch.device('cpu')))


def logits_of_two_blocks(engine):
    """Return prefill logits, and those of a masked block before and after a commit."""
    _, prompt = prefill(engine, ['P2'], 16, all_logits=True)
    block = torch.full((1, 8), engine.config.mask_token_id)
    first = engine.denoise(block, MASKED)
    engine.commit(torch.arange(8)[None])
    return torch.cat((prompt[0], first, engine.denoise(block, MASKED)))


# Weights and activations are rounded to 8 or 11 bits: after 4 layers, logits of standard deviation
# 2 are off by 0.04 or 0.005 on average, and by up to nine times that.
@pytest.mark.parametrize(('dtype', 'mean'), [(torch.bfloat16, 0.08), (torch.float16, 0.01)])
@pytest.mark.parametrize('variant', VARIANTS)
def test_half_precision_agrees_with_float32(variant, dtype, mean, tmp_path):
    folder = checkpoint(variant, tmp_path)
    exact = logits_of_two_blocks(engine_in(torch.float32, variant, folder))
    half = logits_of_two_blocks(engine_in(dtype, variant, folder))
    assert half.dtype == torch.float32
    off = (half - exact).abs()
    assert off.mean() < mean and off.max() < 10 * mean


def test_confidences_in_bfloat16_are_not_rounded_to_bfloat16(tmp_path):
    engine = engine_in(torch.bfloat16, 'A_tied', checkpoint('A_tied', tmp_path))
    prefill(engine, ['P2'], 8)
    logits = engine.denoise(torch.full((1, 8), engine.config.mask_token_id), MASKED)
    _, confidence = sample(logits, Sampling(), None)
    expected = logits.double().softmax(-1).max(-1).values
    torch.testing.assert_close(confidence.double(), expected, atol=1e-6, rtol=0)
    assert not torch.equal(confidence, confidence.bfloat16().float())


def test_padded_prompts_in_half_precision_stay_finite(tmp_path):
    engine = engine_in(torch.float16, 'A_tied', checkpoint('A_tied', tmp_path))
    prefill(engine, ['P1', 'P3', 'P4'], 8)
    block = torch.full((3, 8), engine.config.mask_token_id)
    assert engine.denoise(block, MASKED.expand(3, -1)).isfinite().all()


def test_only_masked_slots_go_through_the_head(tmp_path, monkeypatch):
    engine = engine_in(torch.float32, 'A_tied', checkpoint('A_tied', tmp_path))
    head, rows = engine._head, []
    monkeypatch.setattr(engine, '_head', lambda h: rows.append(h.shape[0]) or head(h))
    prefill(engine, ['P2'], 24)
    assert rows == []
    rule = BlockSettings(8, engine.config.mask_token_id, (), 8, confidence_threshold=1.01)
    decode_blocks(engine, rule, 24)
    assert rows == [8, 7, 6, 5, 4, 3, 2, 1] * 3
