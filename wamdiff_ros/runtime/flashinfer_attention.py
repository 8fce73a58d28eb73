"""FlashInfer's attention kernels for PagedAttention, on CUDA devices.

A denoising block of B queries over a paged prefix is one non-causal request of
BatchPrefillWithPagedKVCacheWrapper, and so is each chunk of a block-causal prompt: no mask, so
that Hopper's kernels (which refuse custom masks) serve as well. `plan` runs on the host, outside
of captured graphs, from lengths that the host knows; captured graphs read the static buffers that
it fills. Not yet run on a GPU; what is around the kernels is tested with TorchPagedKernel, and
the calls against FlashInfer's signatures where it is installed.
"""

import torch

from ..model.config import TextConfig
from .paged_attention import Kernels, PagedKernel

# FlashInfer's advice. All kernels of an engine share it: they run one after another on one stream,
# and it holds partial results of one run only. What a plan keeps is in buffers of each kernel.
WORKSPACE_BYTES = 128 * 2**20
# What the prefill kernels are instantiated for (FlashInfer 0.7.4).
HEAD_DIMS = (64, 128, 256)
GROUP_SIZES = (1, 2, 3, 4, 6, 8, 16)
DTYPES = (torch.float16, torch.bfloat16)
MINIMUM_CAPABILITY = (8, 0)


class FlashInferUnavailable(ValueError):
    """FlashInfer was asked for and cannot serve; the message says why and what to do."""


def refusal(config: TextConfig, dtype: torch.dtype, device: torch.device) -> str | None:
    """Return why FlashInfer cannot run this network there, or None if it can."""
    if config.head_dim not in HEAD_DIMS:
        return f'head_dim is {config.head_dim}, its kernels have {_words(HEAD_DIMS)}'
    group = config.num_heads // config.num_kv_heads
    if group not in GROUP_SIZES:
        return f'{group} query heads share a key head, its kernels have {_words(GROUP_SIZES)}'
    if dtype not in DTYPES:
        return f'the network is {_name(dtype)}, its kernels have {_words(map(_name, DTYPES))}'
    if device.type != 'cuda':
        return f'the network is on {device.type}, its kernels need a CUDA device'
    capability = torch.cuda.get_device_capability(device)
    if capability < MINIMUM_CAPABILITY:
        return (
            f'the GPU has compute capability {capability[0]}.{capability[1]}, wanted 8.0 or more'
        )
    try:
        import flashinfer  # noqa: F401
    except ImportError as error:
        return f'{error}; pip install -r requirements/gpu.txt'
    return None


def flashinfer_kernels(config: TextConfig, dtype: torch.dtype, device: torch.device) -> Kernels:
    """Return FlashInfer's kernels, or raise FlashInferUnavailable with the reason."""
    reason = refusal(config, dtype, device)
    if reason is not None:
        raise FlashInferUnavailable(f'attention: flashinfer is wanted, but {reason}')
    import flashinfer

    workspace = torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device=device)

    def make(device: torch.device, size: tuple[int, int] | None) -> PagedKernel:
        buffers = graph_buffers(device, size)
        return flashinfer.BatchPrefillWithPagedKVCacheWrapper(workspace, 'NHD', **buffers)

    return Kernels('flashinfer', make, flashinfer.merge_state_in_place)


def graph_buffers(device: torch.device, size: tuple[int, int] | None) -> dict:
    """Return the constructor's arguments for a kernel that captured graphs may hold."""
    if size is None:
        return {}
    requests, indices = size

    def buffer(length: int) -> torch.Tensor:
        return torch.zeros(length, dtype=torch.int32, device=device)

    return {
        'use_cuda_graph': True,
        'qo_indptr_buf': buffer(requests + 1),
        'paged_kv_indptr_buf': buffer(requests + 1),
        'paged_kv_indices_buf': buffer(indices),
        'paged_kv_last_page_len_buf': buffer(requests),
    }


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix('torch.')


def _words(values) -> str:
    return ', '.join(map(str, values))
