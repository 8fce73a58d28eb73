"""Paged attention over the plan arrays against SDPA over the contiguous cache."""

import pytest
import torch
from golden_data import features, golden_engine, golden_prompt, prefill
from hypothesis import given, settings
from hypothesis import strategies as st

from wamdiff_ros.model.config import TextConfig
from wamdiff_ros.model.text import TextTower
from wamdiff_ros.runtime.attention import SdpaAttend, block_causal_mask
from wamdiff_ros.runtime.kv_cache import KVCache
from wamdiff_ros.runtime.paged_attention import PagedAttention
from wamdiff_ros.runtime.torch_paged_kernel import TORCH_KERNELS, merge_attention

CPU = torch.device('cpu')
CONFIG = TextConfig(
    vocab_size=50, hidden_size=24, intermediate_size=32, num_layers=3, num_heads=6,
    num_kv_heads=2, head_dim=8, rms_norm_eps=1e-6, rope_theta=1e4, mrope_section=(2, 1, 1),
    max_position=256,
)  # fmt: skip


def tower():
    torch.manual_seed(0)
    return TextTower(CONFIG).eval().requires_grad_(False)


def paged(batch=1, **options):
    options = {'forks': 0, 'fork_capacity': 0, 'page_size': 4, **options}
    return PagedAttention(CONFIG, batch, 96, torch.float32, CPU, TORCH_KERNELS, **options)


def embedded(seed, batch, start, count):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(batch, start + count, CONFIG.hidden_size, generator=generator)
    positions = torch.arange(start, start + count).expand(3, batch, -1)
    return x[:, start:], positions


def contiguous(batch=1):
    return KVCache(CONFIG, batch, 96, torch.float32, CPU)


def close(a, b):
    torch.testing.assert_close(a, b, atol=1e-5, rtol=0)


def assert_same_cache(attention, cache, length):
    for layer in range(CONFIG.num_layers):
        for row, sequence in enumerate(attention.sequences):
            key, value = attention.cache.gather(layer, sequence, length)
            close(key, cache.keys[layer, row, :, :length])
            close(value, cache.values[layer, row, :, :length])


@settings(max_examples=40)
@given(
    start=st.integers(0, 5),
    count=st.integers(1, 30),
    block=st.integers(1, 8),
    page_size=st.integers(1, 9),
)
def test_block_causal_prefill_with_reuse_equals_sdpa(start, count, block, page_size):
    network, attention, cache = tower(), paged(page_size=page_size), contiguous()
    start *= block
    length = start + count
    x, positions = embedded(1, 1, 0, length)
    for first, end in ((0, start), (start, length)):
        if first < end:
            new = slice(first, end)
            mask = block_causal_mask(first, end, block, torch.tensor([end]))
            wanted = network(x[:, new], positions[:, :, new], SdpaAttend(cache, mask))
            cache.commit(end - first)
            attend = attention.prefill(first, [end], block)
            close(network(x[:, new], positions[:, :, new], attend), wanted)
            attention.commit([end - first])
    assert_same_cache(attention, cache, length)


def test_prompts_of_unequal_length_never_see_padding():
    network, attention = tower(), paged(batch=3)
    lengths = [13, 5, 10]
    x, positions = embedded(1, 3, 0, 13)
    hidden = network(x, positions, attention.prefill(0, lengths, 4))
    attention.commit(lengths)
    block, block_positions = embedded(2, 3, 0, 4)
    offsets = torch.tensor(lengths)[None, :, None]
    answer = network(block, block_positions + offsets, attention.answer([4]))
    for row, length in enumerate(lengths):
        alone, own = paged(), slice(row, row + 1)
        x_alone, positions_alone = x[own, :length], positions[:, own, :length]
        wanted = network(x_alone, positions_alone, alone.prefill(0, [length], 4))
        close(hidden[own, :length], wanted)
        alone.commit([length])
        wanted = network(block[own], block_positions[:, own] + length, alone.answer([4]))
        close(answer[own], wanted)


def test_denoising_commit_and_the_folded_commit_equal_sdpa():
    network, attention, cache = tower(), paged(), contiguous()
    x, positions = embedded(1, 1, 0, 11)
    network(x, positions, attention.prefill(0, [11], 4))
    attention.commit([11])
    mask = block_causal_mask(0, 11, 4, torch.tensor([11]))
    network(x, positions, SdpaAttend(cache, mask))
    cache.commit(11)
    for step in range(3):  # of one block: nothing is kept
        block, _ = embedded(10 + step, 1, 0, 4)
        positions = torch.arange(11, 15).expand(3, 1, -1)
        wanted = network(block, positions, SdpaAttend(cache, None))
        close(network(block, positions, attention.answer([4])), wanted)
    # The clean block and the first denoising of the next one, of which only the second is read.
    both, _ = embedded(20, 1, 0, 8)
    positions = torch.arange(11, 19).expand(3, 1, -1)
    mask = torch.ones(1, 1, 8, 19, dtype=torch.bool)
    mask[:, :, :4, 15:] = False
    rows = slice(4, 8)
    wanted = network(both, positions, SdpaAttend(cache, mask))[:, rows]
    attend = attention.answer([4, 4], rows)
    close(network(both, positions, attend, rows=rows), wanted)
    attention.commit([4])
    cache.commit(4)
    assert_same_cache(attention, cache, 15)


@pytest.mark.parametrize('length', [8, 11])
def test_rollouts_on_one_prefix_equal_rollouts_on_copies_of_it(length):
    """Whether the prompt fills its last page or not; the rollouts share every page of it."""
    network = tower()
    attention = paged(forks=3, fork_capacity=8)
    x, positions = embedded(1, 1, 0, length)
    network(x, positions, attention.prefill(0, [length], 4))
    attention.commit([length])
    (prompt,) = attention.sequences
    used = attention.pool.free_pages
    attention.fork(3)
    assert attention.pool.free_pages == used
    copies = contiguous(3)
    mask = block_causal_mask(0, length, 4, torch.tensor([length] * 3))
    network(x.expand(3, -1, -1), positions.expand(-1, 3, -1), SdpaAttend(copies, mask))
    copies.commit(length)
    for number in range(2):
        block, _ = embedded(number, 3, 0, 4)
        start = length + 4 * number
        places = torch.arange(start, start + 4).expand(3, 3, -1)
        wanted = network(block, places, SdpaAttend(copies, None))
        close(network(block, places, attention.answer([4])), wanted)
        copies.commit(4)
        attention.commit([4] * 3)
    assert_same_cache(attention, copies, length + 8)
    attention.join()
    assert attention.sequences == [prompt]
    assert attention.pool.free_pages == used
    attention.rollback(4)  # the prefix is free to change again


def test_a_forward_of_the_same_shape_keeps_its_buffers_and_plans_only_what_changed():
    attention = paged()
    attention.prefill(0, [9], 4)
    attention.commit([9])
    first = attention.answer([4])
    kernel = first._all_rows._level_kernels[0]
    slots, indices = first._slots.data_ptr(), kernel._indices.data_ptr()
    assert attention.answer([4]) is first
    assert kernel.plans == 1, 'a second denoising step sees what the first one saw'
    attention.commit([4])
    assert attention.answer([4]) is first
    assert kernel.plans == 2
    assert (first._slots.data_ptr(), kernel._indices.data_ptr()) == (slots, indices)
    assert kernel is first._all_rows._level_kernels[0]


def test_prompts_of_many_lengths_share_one_kernel():
    attention = paged()
    for length in range(1, 20):
        attention.rollback(0)
        attention.prefill(0, [length], 4)
    assert len(attention._attends) == 1


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
    x, positions, deepstack = engine._embed_prompts(
        prompts, [features(engine, row) for row in images], 0, max(lengths)
    )
    attention = PagedAttention(
        engine.config.text, 3, max(lengths) + 8, torch.float32, CPU, TORCH_KERNELS
    )
    network = engine.network
    hidden = network.text(x, positions, attention.prefill(0, lengths, 8), deepstack)
    for row, length in enumerate(lengths):
        close(network.head(hidden)[row, :length], logits[row, :length])
    attention.commit(lengths)
    masked = torch.full((3, 8), engine.config.mask_token_id)
    wanted = engine.denoise(masked, torch.ones(3, 8, dtype=torch.bool))
    places = torch.tensor([prompt.next_position for prompt in prompts])[:, None] + torch.arange(8)
    block = network.text.embed_tokens(masked)
    hidden = network.text(block, places.expand(3, -1, -1), attention.answer([8]))
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
