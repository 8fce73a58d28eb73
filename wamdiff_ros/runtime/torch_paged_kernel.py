"""Attention over pages in plain torch: what FlashInfer's wrapper computes, from the same arrays.

The reference of the FlashInfer backend, and its stand-in where there is no GPU.
"""

import math

import torch
from torch.nn.functional import scaled_dot_product_attention

from .paged_attention import Kernels


class TorchPagedKernel:
    """The plain counterpart of FlashInfer's wrapper: gathers each request's pages, then SDPA.

    With `size` (requests, indices) it has static buffers as a captured graph needs them: each
    plan must have that many requests and fit into the indices.
    """

    def __init__(self, device: torch.device, size: tuple[int, int] | None):
        self._device = device
        self._size = size
        if size is not None:
            self._indices = torch.zeros(size[1], dtype=torch.int32, device=device)
        self.plans = 0  # how many plans there were

    def plan(
        self,
        qo_indptr,
        paged_kv_indptr,
        paged_kv_indices,
        paged_kv_last_page_len,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim_qk: int,
        page_size: int,
        *,
        causal: bool,
        q_data_type: torch.dtype,
    ) -> None:
        """See PagedKernel.plan."""
        if causal:
            raise ValueError('causal: this kernel shows each query all slots of its request')
        arrays = (qo_indptr, paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len)
        if any(array.dtype != torch.int32 or array.device.type != 'cpu' for array in arrays):
            raise ValueError('plan arrays are int32 on the host')
        requests, count = len(qo_indptr) - 1, len(paged_kv_indices)
        if self._size is None:
            self._indices = paged_kv_indices.to(self._device)
        elif requests != self._size[0] or count > self._size[1]:
            raise ValueError(
                f'{requests} requests with {count} page indices, but this kernel was made for '
                f'{self._size[0]} with up to {self._size[1]}'
            )
        else:
            self._indices[:count].copy_(paged_kv_indices)
        self._queries = qo_indptr.tolist()
        self._spans = paged_kv_indptr.tolist()
        self._last = paged_kv_last_page_len.tolist()
        self._shape = (num_qo_heads, num_kv_heads, head_dim_qk, page_size, q_data_type)
        self.plans += 1

    def run(self, q, paged_kv_cache, *, out=None, lse=None, return_lse=False):
        """See PagedKernel.run."""
        heads, kv_heads, head_dim, page_size, dtype = self._shape
        for name, tensor, wanted in (
            ('q', q, (self._queries[-1], heads, head_dim)),
            ('pages', paged_kv_cache[0], (len(paged_kv_cache[0]), page_size, kv_heads, head_dim)),
        ):
            if tuple(tensor.shape) != wanted or tensor.dtype != dtype:
                raise ValueError(f'{name} is {tensor.dtype} {tuple(tensor.shape)}, not as planned')
        out = torch.empty_like(q) if out is None else out
        lse = q.new_empty(q.shape[:2], dtype=torch.float32) if lse is None else lse
        for request, last in enumerate(self._last):
            rows = slice(*self._queries[request : request + 2])
            pages = self._indices[slice(*self._spans[request : request + 2])]
            key, value = (
                take_slots(cache, pages.long(), last).transpose(0, 1) for cache in paged_kv_cache
            )
            query = q[rows].transpose(0, 1)  # [heads, rows, d]; key, value [kv_heads, slots, d]
            attended = scaled_dot_product_attention(
                query[None], key[None], value[None], enable_gqa=True
            )
            out[rows] = attended[0].transpose(0, 1)
            if return_lse:
                shared = key.float().repeat_interleave(heads // kv_heads, dim=0)
                scores = query.float() @ shared.transpose(1, 2) / head_dim**0.5
                lse[rows] = (scores.logsumexp(dim=-1) / math.log(2)).transpose(0, 1)
        return (out, lse) if return_lse else out


def merge_attention(out, lse, other_out, other_lse) -> None:
    """Merge two partial attentions over different slots, in place of the first one.

    out [rows, heads, d], lse float32 [rows, heads] to base 2. Plain counterpart of FlashInfer's
    merge_state_in_place.
    """
    highest = torch.maximum(lse, other_lse)
    weight, other = torch.exp2(lse - highest), torch.exp2(other_lse - highest)
    total = weight + other
    share = (weight / total)[..., None]
    out.copy_(out.float() * share + other_out.float() * (1 - share))
    lse.copy_(highest + torch.log2(total))


TORCH_KERNELS = Kernels('torch', TorchPagedKernel, merge_attention)


def take_slots(cache: torch.Tensor, pages: torch.Tensor, last_page_len: int) -> torch.Tensor:
    """Cache [pages, page_size, kv_heads, d] → the listed pages' slots [slots, kv_heads, d]."""
    slots = (len(pages) - 1) * cache.shape[1] + last_page_len
    return cache[pages].flatten(0, 1)[:slots]
