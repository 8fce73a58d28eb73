from dataclasses import replace

import pytest
import torch
from golden_data import features, golden_engine, golden_prompt, prefill

from wamdiff_ros.decoding.block_diffusion import BlockSettings, decode_blocks
from wamdiff_ros.runtime.engine import CAPACITY_STEP, segment_ends
from wamdiff_ros.runtime.kv_cache import KVCache
from wamdiff_ros.runtime.options import PLAIN

REUSE = replace(PLAIN, prefix_reuse=True)
MASKED = torch.ones(1, 8, dtype=torch.bool)


def logits_after(engine, prompt, images):
    reused, _ = engine.prefill([prompt], [images], 16)
    block = torch.full((1, 8), engine.config.mask_token_id)
    return reused, engine.denoise(block, MASKED)


def changed(prompt, index):
    """Return a prompt with another token of text at `index`."""
    ids = list(prompt.token_ids)
    ids[index] = 99
    return replace(prompt, token_ids=tuple(ids))


# P2: images at 8 … 13 and 19 … 26 of 45 tokens, so segments end at 8, 24 and 45.
@pytest.mark.parametrize(
    ('index', 'expected'), [(1, 0), (7, 0), (15, 8), (18, 8), (30, 24), (44, 24), (None, 24)]
)
@pytest.mark.parametrize('fused', (False, True))
def test_whole_segments_before_the_first_difference_are_reused_to_the_last_bit(
    index, expected, fused, tmp_path
):
    options = replace(REUSE, fused_weights=fused)
    engine = golden_engine('A_tied', tmp_path, options=options, block_size=8)
    prompt, names = golden_prompt('P2', engine.config)
    assert segment_ends(prompt, 8) == [8, 24, 45]
    images = features(engine, names)
    before = prompt
    if index is not None:
        before = changed(prompt, index)
    engine.prefill([before], [images], 16)
    engine.commit(torch.full((1, 8), 3))  # an answer in the cache must not be taken for prompt
    reused, warm = logits_after(engine, prompt, images)
    assert reused == expected
    warm_keys = engine._cache.keys[:, :, :, :45].clone()
    engine.reset()
    cold_reused, cold = logits_after(engine, prompt, images)
    assert cold_reused == 0
    assert torch.equal(warm, cold)
    assert torch.equal(warm_keys, engine._cache.keys[:, :, :, :45])


def test_segments_agree_with_one_prefill_over_the_whole_prompt(tmp_path):
    logits = []
    for number, options in enumerate((PLAIN, REUSE)):
        engine = golden_engine('A_tied', tmp_path / str(number), options=options, block_size=8)
        prompt, names = golden_prompt('P2', engine.config)
        logits.append(logits_after(engine, prompt, features(engine, names))[1])
        assert engine.prefill_forwards == (1, 3)[number]
    torch.testing.assert_close(*logits, atol=1e-5, rtol=0)


def test_another_image_behind_the_same_placeholders_is_not_reused(tmp_path):
    engine = golden_engine('A_tied', tmp_path, options=REUSE, block_size=8)
    prompt, names = golden_prompt('P1', engine.config)
    (image,) = features(engine, names)
    dark = engine.encode_image('dark', torch.zeros(24, 1536).numpy(), (1, 4, 6))
    first = prompt.images[0][0]
    engine.prefill([prompt], [[image]], 8)
    reused, warm = logits_after(engine, prompt, [dark])
    assert reused == first // 8 * 8
    engine.reset()
    torch.testing.assert_close(warm, logits_after(engine, prompt, [dark])[1], atol=1e-5, rtol=0)


def test_a_failed_prefill_leaves_no_false_prefix(tmp_path):
    engine = golden_engine('A_tied', tmp_path, options=REUSE, block_size=8)
    prompt, names = golden_prompt('P1', engine.config)
    images = features(engine, names)
    engine.prefill([prompt], [images], 8)
    wrong = engine.encode_image('wrong', torch.zeros(16, 1536).numpy(), (1, 4, 4))
    with pytest.raises(ValueError, match='6 placeholders for an image of 4 tokens'):
        engine.prefill([prompt], [[wrong]], 8)
    reused, warm = logits_after(engine, prompt, images)
    assert reused == 0
    engine.reset()
    torch.testing.assert_close(warm, logits_after(engine, prompt, images)[1])


def test_ticks_of_one_shape_allocate_one_cache(tmp_path):
    engine = golden_engine('A_tied', tmp_path, block_size=8)
    rule = BlockSettings(8, 511, (), 8)
    for name in ('P1', 'P2', 'P3', 'P4') * 3:
        prefill(engine, [name], 24)
        decode_blocks(engine, rule, 24)
    assert engine.cache_allocations == 1
    assert engine._cache.capacity == CAPACITY_STEP


def test_a_prompt_longer_than_the_checkpoint_allows_is_refused(tmp_path):
    engine = golden_engine('A_tied', tmp_path, block_size=8)
    with pytest.raises(ValueError, match='lower max_pixels or max_new_tokens'):
        prefill(engine, ['P2'], 5000)


def test_the_kv_cache_refuses_what_does_not_fit(tmp_path):
    config = golden_engine('A_tied', tmp_path).config.text
    cache = KVCache(config, 1, 16, torch.float32, torch.device('cpu'))
    new = torch.zeros(1, config.num_kv_heads, 12, config.head_dim)
    assert cache.write(0, new, new) == 12
    cache.commit(12)
    with pytest.raises(ValueError, match='24 slots do not fit'):
        cache.write(0, new, new)
    with pytest.raises(ValueError, match='cannot commit 5'):
        cache.commit(5)
    with pytest.raises(ValueError, match='cannot roll back to 13'):
        cache.rollback(13)
