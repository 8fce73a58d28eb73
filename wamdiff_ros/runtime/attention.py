"""Attention over the KV cache with torch's scaled_dot_product_attention: the reference backend.

A backend is a cache that makes the `attend` (model.text.Attend) of each forward, which writes the
forward's keys and values behind the committed slots and lets its queries see what they may.
"""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch.nn.functional import scaled_dot_product_attention

from ..model.config import TextConfig
from ..model.network import Network
from .graph_runner import GraphRunner
from .kv_cache import KVCache
from .static_forward import StaticForward


class SdpaCache(KVCache):
    """A KVCache that is attended to with torch's own kernels."""

    visible: torch.Tensor | None = None  # bool [n, 1, 1, capacity], False for padding

    def prompt_attend(
        self,
        start: int,
        end: int,
        block_size: int,
        lengths: Sequence[int],
        rows: slice = slice(None),
    ) -> 'SdpaAttend':
        """Return the attention of the slots start … end-1 of prompts, block-causal in chunks.

        `lengths` are those of the whole prompts; what is behind a shorter one is padding, which
        nobody sees. `rows` are the last layer's queries.
        """
        self.visible = None
        padded = min(lengths) < max(lengths)
        if not padded and start // block_size == (end - 1) // block_size:
            return SdpaAttend(self, None)  # a single chunk sees everything
        device = self.keys.device
        real = torch.tensor(lengths, device=device)
        if padded:
            slots = torch.arange(self.capacity, device=device)
            visible = (slots < real[:, None]) | (slots >= max(lengths))
            self.visible = visible[:, None, None]
        return SdpaAttend(self, block_causal_mask(start, end, block_size, real), rows)

    def blocks_attend(
        self, groups: Sequence[tuple[int, int]], last: Sequence[tuple[int, int]]
    ) -> 'BlocksAttend':
        """Return the attention of answer blocks behind the committed slots; see BlocksAttend."""
        return BlocksAttend(self, groups, last, self.visible)


class AttentionBackend(Protocol):
    """One way to keep keys and values and to attend to them."""

    name: str

    def cache(
        self,
        config: TextConfig,
        batch: int,
        capacity: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> SdpaCache:
        """Return an empty cache with the interface of SdpaCache."""
        ...

    def static_forward(self, network: Network, text, cache, runner: GraphRunner) -> StaticForward:
        """Return forwards over `cache` that may be captured; `text` has TextTower's `run`."""
        ...


class SdpaBackend:
    """Torch's own kernels over caches in one piece."""

    name = 'sdpa'
    cache = SdpaCache
    static_forward = StaticForward


class SdpaAttend:
    """Attention of one forward under a mask.

    `mask` is boolean, broadcastable to [n, 1, L, end] (True: visible), or None when everything is.
    `rows` are the queries of the last layer, if it has fewer than L.
    """

    def __init__(self, cache: KVCache, mask: torch.Tensor | None, rows: slice | None = None):
        self._cache = cache
        self._mask, self._rows = mask, rows

    def __call__(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
    ) -> torch.Tensor:
        """See model.text.Attend."""
        end = self._cache.write(layer, key, value)
        if query.shape[2] == 0:  # only keys and values are wanted
            return query
        mask = self._mask
        if mask is not None and query.shape[2] < key.shape[2]:
            mask = mask[:, :, self._rows]
        keys, values = self._cache.own(layer, end)
        return scaled_dot_product_attention(query, keys, values, attn_mask=mask, enable_gqa=True)


class BlocksAttend:
    """Attention of answer blocks: each sees the prefix, the blocks before it and itself.

    A call per block needs no mask. `groups` are (queries, end) of one layer: how many of them, in
    order, see the slots before `end`; `last` are those of the last layer. `visible` is bool
    [n, 1, 1, slots], False for the padding of shorter prompts, or None.
    """

    def __init__(
        self,
        cache: KVCache,
        groups: Sequence[tuple[int, int]],
        last: Sequence[tuple[int, int]],
        visible: torch.Tensor | None = None,
    ):
        self._cache = cache
        self._groups, self._last = groups, last
        self._queries = sum(count for count, _ in groups)
        self._visible = visible

    def __call__(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
    ) -> torch.Tensor:
        """See model.text.Attend."""
        self._cache.write(layer, key, value)
        if query.shape[2] == 0:  # only keys and values are wanted
            return query
        groups = self._groups if query.shape[2] == self._queries else self._last
        if len(groups) == 1:
            return self._attend(layer, query, groups[0][1])
        parts = query.split([count for count, _ in groups], dim=2)
        outs = [
            self._attend(layer, part, end) for part, (_, end) in zip(parts, groups, strict=True)
        ]
        return torch.cat(outs, dim=2)

    def _attend(self, layer: int, query: torch.Tensor, end: int) -> torch.Tensor:
        cache = self._cache
        if cache.prefix is not None:
            return _shared_prefix_attention(query, cache, layer, end)
        keys, values = cache.own(layer, end)
        mask = None if self._visible is None else self._visible[..., :end]
        return scaled_dot_product_attention(query, keys, values, attn_mask=mask, enable_gqa=True)


def _shared_prefix_attention(
    query: torch.Tensor, cache: KVCache, layer: int, end: int
) -> torch.Tensor:
    """Query [n, heads, L, d] over one prefix for all n, and over the own slots of each.

    All queries meet the prefix in one product, in which it is read once; one softmax spans both.
    """
    n, heads, length, d = query.shape
    keys, values = cache.own(layer, end)  # [n, kv_heads, own, d]
    kv_heads = keys.shape[1]
    group = heads // kv_heads
    prefix = slice(cache.first)
    prefix_keys = cache.prefix.keys[layer, 0, :, prefix]  # [kv_heads, P, d]
    prefix_values = cache.prefix.values[layer, 0, :, prefix]
    # Queries of one key head side by side: [n, kv_heads, group * L, d].
    query = query.reshape(n, kv_heads, group * length, d) * d**-0.5
    together = query.transpose(0, 1).reshape(kv_heads, -1, d)
    on_prefix = (together @ prefix_keys.mT).view(kv_heads, n, group * length, -1)
    scores = torch.cat((on_prefix.transpose(0, 1), query @ keys.mT), dim=-1)
    weight = scores.softmax(dim=-1, dtype=torch.float32).to(query.dtype)
    shared = weight[..., prefix].transpose(0, 1).reshape(kv_heads, n * group * length, -1)
    out = (shared @ prefix_values).view(kv_heads, n, group * length, d).transpose(0, 1)
    out = out + weight[..., cache.first :] @ values
    return out.reshape(n, heads, length, d)


def block_causal_mask(start: int, end: int, block_size: int, lengths: torch.Tensor):
    """Return who sees whom in a prompt: bool [n, 1, end-start, end] for the rows start … end-1.

    Chunks of `block_size` count from the prompt's start, the last may be short; a token sees its
    own chunk and all before it (block size 1: causal). Slots at or beyond a prompt's length are
    padding, which no token sees.
    """
    slots = torch.arange(end, device=lengths.device)
    rows = slots[start:]
    visible = slots[None, :] // block_size <= rows[:, None] // block_size  # [rows, end]
    real = slots[None, :] < lengths[:, None]  # [n, end]
    return (visible[None] & real[:, None])[:, None]
