import pytest
import torch
from golden_data import features, golden_engine, golden_prompt, prefill

from wamdiff_ros.decoding.block_diffusion import BlockSettings, decode_blocks
from wamdiff_ros.model.chat import prompt_from_ids
from wamdiff_ros.runtime.engine import CAPACITY_STEP
from wamdiff_ros.runtime.kv_cache import KVCache

MASKED = torch.ones(1, 8, dtype=torch.bool)


def logits_after(engine, prompt, images):
    reused, _ = engine.prefill([prompt], [images], 16)
    block = torch.full((1, 8), engine.config.mask_token_id)
    return reused, engine.denoise(block, MASKED)


def changed(prompt, index, config, grids):
    ids = list(prompt.token_ids)
    ids[index] = 99
    return prompt_from_ids(ids, grids, config)


@pytest.mark.parametrize(('index', 'expected'), [(1, 0), (35, 32), (44, 40), (None, 40)])
def test_whole_blocks_before_the_first_difference_are_reused_and_nothing_else(
    index, expected, tmp_path
):
    engine = golden_engine('A_tied', tmp_path, block_size=8)
    prompt, names = golden_prompt('P2', engine.config)
    images = features(engine, names)
    if index is not None:
        grids = [(1, 4, 6), (1, 8, 4)]
        other = changed(prompt, index, engine.config, grids)
    else:
        other = prompt
    engine.prefill([prompt], [images], 16)
    engine.commit(torch.full((1, 8), 3))  # an answer in the cache must not be taken for prompt
    reused, warm = logits_after(engine, other, images)
    assert reused == expected
    engine.reset()
    cold_reused, cold = logits_after(engine, other, images)
    assert cold_reused == 0
    torch.testing.assert_close(warm, cold, atol=1e-5, rtol=0)


def test_another_image_behind_the_same_placeholders_is_not_reused(tmp_path):
    engine = golden_engine('A_tied', tmp_path, block_size=8)
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
    engine = golden_engine('A_tied', tmp_path, block_size=8)
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
