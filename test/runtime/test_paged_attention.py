"""Paged attention over the plan arrays against SDPA over the contiguous cache."""

import pytest
import torch
from golden_data import features, golden_engine, golden_prompt, prefill
from hypothesis import given, settings
from hypothesis import strategies as st

from wamdiff_ros.model.config import TextConfig
from wamdiff_ros.model.text import TextTower
from wamdiff_ros.runtime.attention import BlocksAttend, SdpaAttend, block_causal_mask
from wamdiff_ros.runtime.kv_cache import KVCache
from wamdiff_ros.runtime.paged_attention import PagedCache
from wamdiff_ros.runtime.torch_paged_kernel import TORCH_KERNELS, merge_attention, take_slots

CPU = torch.device('cpu')
CONFIG = TextConfig(
    vocab_size=50, hidden_size=24, intermediate_size=32, num_layers=3, num_heads=6,
    num_kv_heads=2, head_dim=8, rms_norm_eps=1e-6, rope_theta=1e4, mrope_section=(2, 1, 1),
    max_position=256,
)  # fmt: skip


def tower():
    torch.manual_seed(0)
    return TextTower(CONFIG).eval().requires_grad_(False)


def paged(batch=1, capacity=96, page_size=4):
    return PagedCache(CONFIG, batch, capacity, torch.float32, CPU, TORCH_KERNELS, page_size)


def embedded(seed, batch, start, count):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(batch, start + count, CONFIG.hidden_size, generator=generator)
    positions = torch.arange(start, start + count).expand(3, batch, -1)
    return x[:, start:], positions


def contiguous(batch=1):
    return KVCache(CONFIG, batch, 96, torch.float32, CPU)


def close(a, b):
    torch.testing.assert_close(a, b, atol=1e-5, rtol=0)


def gathered(cache, layer, row):
    """Return keys and values [kv_heads, slots, d] that a sequence has for itself."""
    segment = cache.sequences[row].segments(cache.length)[-1]
    pages = torch.tensor(segment.pages)
    return [
        take_slots(part[layer], pages, segment.last_page_len).transpose(0, 1)
        for part in (cache.keys, cache.values)
    ]


def assert_same_cache(cache, wanted):
    """Compare the slots that the two caches have for themselves; pages hold what slots hold."""
    for layer in range(CONFIG.num_layers):
        keys, values = wanted.own(layer, wanted.length)
        for row in range(cache.batch):
            key, value = gathered(cache, layer, row)
            close(key, keys[row])
            close(value, values[row])


def sdpa_prompt(network, cache, x, positions, start, end, block):
    """Prefill the slots start … end-1 of the contiguous cache."""
    new = slice(start, end)
    mask = block_causal_mask(start, end, block, torch.tensor([end] * cache.batch))
    hidden = network(x[:, new], positions[:, :, new], SdpaAttend(cache, mask))
    cache.commit(end - start)
    return hidden


def paged_prompt(network, cache, x, positions, start, end, block, **options):
    new = slice(start, end)
    attend = cache.prompt_attend(start, end, block, [end] * cache.batch, **options)
    hidden = network(x[:, new], positions[:, :, new], attend)
    cache.commit(end - start)
    return hidden


@settings(max_examples=40)
@given(
    start=st.integers(0, 5),
    count=st.integers(1, 30),
    block=st.integers(1, 8),
    page_size=st.integers(1, 9),
    static=st.booleans(),
)
def test_block_causal_prefill_with_reuse_equals_sdpa(start, count, block, page_size, static):
    network, cache, contiguous_cache = tower(), paged(page_size=page_size), contiguous()
    start *= block
    x, positions = embedded(1, 1, 0, start + count)
    for first, end in ((0, start), (start, start + count)):
        if first < end:
            arguments = (x, positions, first, end, block)
            wanted = sdpa_prompt(network, contiguous_cache, *arguments)
            close(paged_prompt(network, cache, *arguments, static=static), wanted)
    assert_same_cache(cache, contiguous_cache)


def test_prompts_of_unequal_length_never_see_padding():
    network, cache = tower(), paged(3)
    lengths = [13, 5, 10]
    x, positions = embedded(1, 3, 0, 13)
    hidden = network(x, positions, cache.prompt_attend(0, 13, 4, lengths))
    cache.commit(13)
    assert [sequence.length for sequence in cache.sequences] == lengths, 'padding is not stored'
    block, block_positions = embedded(2, 3, 0, 4)
    offsets = torch.tensor(lengths)[None, :, None]
    pairs = [(4, 17)]
    answer = network(block, block_positions + offsets, cache.blocks_attend(pairs, pairs))
    for row, length in enumerate(lengths):
        alone, own, pairs = paged(), slice(row, row + 1), [(4, length + 4)]
        prompt = x[own, :length], positions[:, own, :length]
        close(hidden[own, :length], paged_prompt(network, alone, *prompt, 0, length, 4))
        attend = alone.blocks_attend(pairs, pairs)
        close(answer[own], network(block[own], block_positions[:, own] + length, attend))
    with pytest.raises(ValueError, match='prompts of unequal length to 4, only to 0'):
        cache.rollback(4)
    cache.rollback(0)


def both_prefilled(length):
    network, cache, contiguous_cache = tower(), paged(), contiguous()
    x, positions = embedded(1, 1, 0, length)
    sdpa_prompt(network, contiguous_cache, x, positions, 0, length, 4)
    paged_prompt(network, cache, x, positions, 0, length, 4)
    return network, cache, contiguous_cache


def test_denoising_commit_and_the_folded_commit_equal_sdpa():
    network, cache, contiguous_cache = both_prefilled(11)
    pairs = [(4, 15)]
    for step in range(3):  # of one block: nothing is kept
        block, _ = embedded(10 + step, 1, 0, 4)
        positions = torch.arange(11, 15).expand(3, 1, -1)
        wanted = network(block, positions, SdpaAttend(contiguous_cache, None))
        close(network(block, positions, cache.blocks_attend(pairs, pairs)), wanted)
    # The clean block and the first denoising of the next one, of which only the second is read.
    both, _ = embedded(20, 1, 0, 8)
    positions, rows = torch.arange(11, 19).expand(3, 1, -1), slice(4, 8)
    groups, last = [(4, 15), (4, 19)], [(4, 19)]
    attends = (
        BlocksAttend(contiguous_cache, groups, last),
        cache.blocks_attend(groups, last),
    )
    wanted, mine = (network(both, positions, attend, rows=rows) for attend in attends)
    close(mine, wanted)
    for each in (cache, contiguous_cache):
        each.commit(4)
    assert_same_cache(cache, contiguous_cache)


def test_single_rows_of_a_block_see_what_the_block_sees():
    network, cache, contiguous_cache = both_prefilled(11)
    block, _ = embedded(3, 1, 0, 4)
    positions, rows = torch.arange(11, 15).expand(3, 1, -1), slice(1, 3)
    wanted = network(block, positions, SdpaAttend(contiguous_cache, None))[:, rows]
    attend = cache.blocks_attend([(4, 15)], [(2, 15)])
    close(network(block, positions, attend, rows=rows), wanted)


@pytest.mark.parametrize('length', [8, 11])
def test_rollouts_on_one_prefix_equal_rollouts_over_the_contiguous_cache(length):
    """Whether the prompt fills its last page or not; nothing of the prefix is copied."""
    network, cache, contiguous_cache = both_prefilled(length)
    forks, contiguous_forks = paged(3, 16), contiguous(3)
    free = cache.pool.free_pages, forks.pool.free_pages
    cache.fork(forks)
    contiguous_cache.fork(contiguous_forks)
    assert (cache.pool.free_pages, forks.pool.free_pages) == free
    for number in range(2):
        block, _ = embedded(number, 3, 0, 4)
        start = length + 4 * number
        places, pairs = torch.arange(start, start + 4).expand(3, 3, -1), [(4, start + 4)]
        wanted = network(block, places, BlocksAttend(contiguous_forks, pairs, pairs))
        close(network(block, places, forks.blocks_attend(pairs, pairs)), wanted)
        forks.commit(4)
        contiguous_forks.commit(4)
    assert_same_cache(forks, contiguous_forks)
    again = cache.fork(forks)  # the next tick's rollouts
    assert (again.length, forks.pool.free_pages) == (length, free[1])
    cache.rollback(4)  # the prefix may change again: its forks are forgotten
    assert forks.prefix is None


def test_a_forward_whose_hidden_states_nobody_wants_still_writes_every_layer():
    network, cache, contiguous_cache = tower(), paged(), contiguous()
    x, positions = embedded(1, 1, 0, 9)
    sdpa_prompt(network, contiguous_cache, x, positions, 0, 9, 4)
    none = slice(0, 0)
    attend = cache.prompt_attend(0, 9, 4, [9], none)
    assert network(x, positions, attend, rows=none).shape[1] == 0
    cache.commit(9)
    assert_same_cache(cache, contiguous_cache)


def test_a_static_forward_keeps_its_buffers_and_plans_only_what_changed():
    _, cache, _ = both_prefilled(9)

    def attend():
        pairs = [(4, cache.length + 4)]
        return cache.blocks_attend(pairs, pairs, static=True)

    first = attend()
    kernel = first._levels._kernels[0]
    places = first._slots.data_ptr(), kernel._indices.data_ptr()
    assert attend() is first
    assert kernel.plans == 1, 'a second denoising step sees what the first one saw'
    cache.commit(4)
    assert attend() is first
    assert kernel.plans == 2
    assert (first._slots.data_ptr(), kernel._indices.data_ptr()) == places
    assert kernel is first._levels._kernels[0]


def test_prompts_of_many_lengths_share_one_kernel():
    cache = paged()
    for length in range(1, 20):
        cache.rollback(0)
        cache.prompt_attend(0, length, 4, [length])
    assert len(cache._attends) == 1


def test_what_was_not_written_cannot_be_committed():
    _, cache, _ = both_prefilled(9)
    cache.blocks_attend([(4, 13)], [(4, 13)])
    with pytest.raises(ValueError, match='cannot commit 5 slots of 4 written'):
        cache.commit(5)
    with pytest.raises(ValueError, match='more pages are needed'):
        cache.blocks_attend([(96, 105)], [(96, 105)])


@given(st.integers(0, 2**31), st.floats(-30, 30))
def test_merging_partial_attentions_equals_attention_over_both(seed, shift):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(5, 2, 9, generator=generator) + shift  # [rows, heads, slots]
    scores[..., 4:] -= shift / 2
    values = torch.randn(9, 3, generator=generator)
    parts = []
    for part in (slice(0, 4), slice(4, 9)):
        lse = scores[..., part].logsumexp(-1) / torch.log(torch.tensor(2.0))
        parts.append((scores[..., part].softmax(-1) @ values[part], lse))
    (out, lse), other = parts
    merge_attention(out, lse, *other)
    close(out, scores.softmax(-1) @ values)
    torch.testing.assert_close(lse * torch.log(torch.tensor(2.0)), scores.logsumexp(-1))


@pytest.mark.parametrize('variant', ['A_tied', 'B_untied'])
def test_the_golden_network_says_the_same_through_pages(variant, tmp_path):
    engine = golden_engine(variant, tmp_path, block_size=8)
    names = ['P2', 'P3', 'P5']
    _, logits = prefill(engine, names, 8, all_logits=True)
    prompts, images = zip(*(golden_prompt(name, engine.config) for name in names), strict=True)
    lengths = [len(prompt) for prompt in prompts]
    longest = max(lengths)
    x, positions, deepstack = engine._embed_prompts(
        prompts, [features(engine, row) for row in images], 0, longest
    )
    cache = PagedCache(engine.config.text, 3, longest + 8, torch.float32, CPU, TORCH_KERNELS)
    network = engine.network
    attend = cache.prompt_attend(0, longest, 8, lengths)
    hidden = network.text(x, positions, attend, deepstack)
    for row, length in enumerate(lengths):
        close(network.head(hidden)[row, :length], logits[row, :length])
    cache.commit(longest)
    masked = torch.full((3, 8), engine.config.mask_token_id)
    wanted = engine.denoise(masked, torch.ones(3, 8, dtype=torch.bool))
    places = torch.tensor([prompt.next_position for prompt in prompts])[:, None] + torch.arange(8)
    pairs = [(8, longest + 8)]
    block = network.text.embed_tokens(masked)
    hidden = network.text(block, places.expand(3, -1, -1), cache.blocks_attend(pairs, pairs))
    close(network.head(hidden).flatten(0, 1), wanted)


def test_the_plain_kernel_refuses_what_was_not_planned():
    kernel = TORCH_KERNELS.make(CPU, (1, 2))
    arrays = [torch.tensor(a, dtype=torch.int32) for a in ([0, 4], [0, 3], [1, 2, 3], [1])]
    options = {'causal': False, 'q_data_type': torch.float32}
    with pytest.raises(ValueError, match=r'1 requests with 3 page indices, but .* up to 2'):
        kernel.plan(*arrays, 6, 2, 8, 4, **options)
    arrays[1:3] = (torch.tensor(a, dtype=torch.int32) for a in ([0, 2], [1, 2]))
    with pytest.raises(ValueError, match='int32 on the host'):
        kernel.plan(*(array.long() for array in arrays), 6, 2, 8, 4, **options)
    kernel.plan(*arrays, 6, 2, 8, 4, **options)
    pages = torch.zeros(3, 4, 2, 8), torch.zeros(3, 4, 2, 8)
    with pytest.raises(ValueError, match='not as planned'):
        kernel.run(torch.zeros(5, 6, 8), pages)
