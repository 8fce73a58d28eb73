"""The FlashInfer backend: who is refused, its calls, and on a GPU the same as SDPA."""

import inspect

import pytest
import torch

from wamdiff_ros.model.config import TextConfig
from wamdiff_ros.runtime import flashinfer_attention
from wamdiff_ros.runtime.attention import BlocksAttend, SdpaAttend, block_causal_mask
from wamdiff_ros.runtime.flashinfer_attention import (
    FlashInferUnavailable,
    flashinfer_kernels,
    graph_buffers,
    refusal,
)
from wamdiff_ros.runtime.kv_cache import KVCache
from wamdiff_ros.runtime.paged_attention import PagedCache

CUDA = torch.device('cuda')


def text_config(**fields):
    values = {
        'vocab_size': 50, 'hidden_size': 256, 'intermediate_size': 256, 'num_layers': 2,
        'num_heads': 6, 'num_kv_heads': 2, 'head_dim': 64, 'rms_norm_eps': 1e-6,
        'rope_theta': 1e4, 'mrope_section': (12, 10, 10), 'max_position': 4096,
    }  # fmt: skip
    return TextConfig(**{**values, **fields})


@pytest.mark.parametrize(
    ('fields', 'dtype', 'reason'),
    [
        ({'head_dim': 32}, torch.bfloat16, 'head_dim is 32, its kernels have 64, 128, 256'),
        ({'num_heads': 10}, torch.bfloat16, '5 query heads share a key head'),
        ({}, torch.float32, 'the network is float32, its kernels have float16, bfloat16'),
        ({}, torch.bfloat16, 'the network is on cpu, its kernels need a CUDA device'),
    ],
)
def test_what_flashinfer_cannot_run_is_refused_with_the_reason(fields, dtype, reason):
    config = text_config(**fields)
    assert reason in refusal(config, dtype, torch.device('cpu'))
    with pytest.raises(FlashInferUnavailable, match='flashinfer is wanted, but'):
        flashinfer_kernels(config, dtype, torch.device('cpu'))


def test_the_calls_fit_the_installed_flashinfer():
    flashinfer = pytest.importorskip('flashinfer', reason='FlashInfer is not installed')
    wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper
    constructor = inspect.signature(wrapper.__init__)
    for size in (None, (3, 40)):
        buffers = graph_buffers(torch.device('cpu'), size)
        constructor.bind(None, torch.empty(16, dtype=torch.uint8), 'NHD', **buffers)
    array = torch.zeros(2, dtype=torch.int32)
    plan = inspect.signature(wrapper.plan).bind(
        None, array, array, array, array, 6, 2, 64, 16, causal=False, q_data_type=torch.bfloat16
    )
    names = ('num_qo_heads', 'num_kv_heads', 'head_dim_qk', 'page_size')
    assert [plan.arguments[name] for name in names] == [6, 2, 64, 16]
    inspect.signature(wrapper.run).bind(None, array, (array, array), return_lse=True)
    inspect.signature(flashinfer.merge_state_in_place).bind(array, array, array, array)


def test_graph_buffers_have_the_sizes_that_a_plan_needs():
    assert graph_buffers(torch.device('cpu'), None) == {}
    buffers = graph_buffers(torch.device('cpu'), (3, 40))
    assert buffers.pop('use_cuda_graph')
    assert {name: len(tensor) for name, tensor in buffers.items()} == {
        'qo_indptr_buf': 4,
        'paged_kv_indptr_buf': 4,
        'paged_kv_indices_buf': 40,
        'paged_kv_last_page_len_buf': 3,
    }
    assert all(tensor.dtype == torch.int32 for tensor in buffers.values())


# -- on a GPU ---------------------------------------------------------------------------------


@pytest.fixture
def kernels():
    if not torch.cuda.is_available():
        pytest.skip('no CUDA device')
    reason = flashinfer_attention.refusal(text_config(), torch.bfloat16, CUDA)
    if reason is not None:
        pytest.skip(f'FlashInfer: {reason}')
    return flashinfer_kernels(text_config(), torch.bfloat16, CUDA)


def random_heads(heads, length, seed, batch=1):
    generator = torch.Generator('cuda').manual_seed(seed)
    shape = (batch, heads, length, 64)
    return torch.randn(shape, generator=generator, device=CUDA, dtype=torch.bfloat16)


def attend_both(attends, queries, batch=1, seed=0):
    """Run two Attends over the same random tokens, in both layers."""
    query, key, value = (
        random_heads(h, queries, seed + i, batch) for i, h in enumerate((6, 2, 2))
    )
    for layer in range(2):
        mine, wanted = (attend(layer, query, key, value) for attend in attends)
        # bfloat16 has 8 bits: outputs are means of values around 1.
        torch.testing.assert_close(mine, wanted, atol=2e-2, rtol=2e-2)


def both_caches(kernels):
    config = text_config()
    return (
        PagedCache(config, 1, 1200, torch.bfloat16, CUDA, kernels),
        KVCache(config, 1, 1200, torch.bfloat16, CUDA),
    )


def prefill_both(cache, contiguous, length):
    mask = block_causal_mask(0, length, 32, torch.tensor([length], device=CUDA))
    attend_both(
        (cache.prompt_attend(0, length, 32, [length]), SdpaAttend(contiguous, mask)), length
    )
    cache.commit(length)
    contiguous.commit(length)


@pytest.mark.gpu
@pytest.mark.parametrize('length', [1, 15, 16, 64, 263, 1000])
def test_flashinfer_equals_sdpa_at_several_lengths(length, kernels):
    cache, contiguous = both_caches(kernels)
    prefill_both(cache, contiguous, length)
    for block in range(3):
        pairs = [(32, cache.length + 32)]
        attends = cache.blocks_attend(pairs, pairs), BlocksAttend(contiguous, pairs, pairs)
        attend_both(attends, 32, seed=block)
        cache.commit(32)
        contiguous.commit(32)
    both = [(32, cache.length + 32), (32, cache.length + 64)]  # a folded commit
    attends = cache.blocks_attend(both, both), BlocksAttend(contiguous, both, both)
    attend_both(attends, 64)


@pytest.mark.gpu
@pytest.mark.parametrize('length', [32, 263])
def test_flashinfer_rollouts_on_one_prefix_equal_sdpa(length, kernels):
    cache, contiguous = both_caches(kernels)
    prefill_both(cache, contiguous, length)
    forks = PagedCache(text_config(), 4, 64, torch.bfloat16, CUDA, kernels)
    contiguous_forks = KVCache(text_config(), 4, 64, torch.bfloat16, CUDA)
    cache.fork(forks)
    contiguous.fork(contiguous_forks)
    pairs = [(32, length + 32)]
    attends = forks.blocks_attend(pairs, pairs), BlocksAttend(contiguous_forks, pairs, pairs)
    attend_both(attends, 32, batch=4)


@pytest.mark.gpu
def test_a_captured_flashinfer_forward_follows_new_plans(kernels):
    """Captured once, replayed at other lengths, equal to eager each time."""
    cache, contiguous = both_caches(kernels)
    graph, static = torch.cuda.CUDAGraph(), None
    for length in (40, 72, 400, 41):
        cache.rollback(0)
        contiguous.rollback(0)
        prefill_both(cache, contiguous, length)
        block = [random_heads(heads, 32, 10 + i) for i, heads in enumerate((6, 2, 2))]
        pairs = [(32, length + 32)]
        attend = cache.blocks_attend(pairs, pairs, static=True)
        if static is None:
            static = [tensor.clone() for tensor in block]
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                attend(0, *static)  # first use compiles and loads kernels
            stream.synchronize()
            with torch.cuda.graph(graph, stream=stream):
                out = attend(0, *static)
        for buffer, tensor in zip(static, block, strict=True):
            buffer.copy_(tensor)
        graph.replay()
        wanted = BlocksAttend(contiguous, pairs, pairs)(0, *block)
        torch.testing.assert_close(out, wanted, atol=2e-2, rtol=2e-2)


@pytest.mark.gpu
def test_a_planned_forward_neither_waits_for_the_device_nor_copies_from_the_host(kernels):
    cache, contiguous = both_caches(kernels)
    prefill_both(cache, contiguous, 263)
    pairs = [(32, 295)]
    attend = cache.blocks_attend(pairs, pairs, static=True)
    block = [random_heads(heads, 32, i) for i, heads in enumerate((6, 2, 2))]
    attend(0, *block)
    torch.cuda.synchronize()
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    ) as profile:
        torch.cuda.set_sync_debug_mode('error')
        try:
            attend(0, *block)
        finally:
            torch.cuda.set_sync_debug_mode('default')
    names = {event.key for event in profile.key_averages()}
    # The profiler itself waits for the device at its end (cudaDeviceSynchronize).
    forbidden = {'cudaMalloc', 'cudaStreamSynchronize', 'cudaEventSynchronize'}
    assert not names & forbidden
    assert not [name for name in names if 'Memcpy HtoD' in name or 'Memcpy DtoH' in name]
