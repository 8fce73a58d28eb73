"""Attention over a paged KV cache, planned outside of a forward and free of host work within it.

The kernel is exchangeable: FlashInfer's on a GPU (flashinfer_attention.py), and here a plain one
that reads the same plan arrays, so that all logic around the kernel runs, and is tested, without
a GPU. `PagedAttention.prefill` and `.answer` are the paged counterparts of
`SdpaAttend(cache, block_causal_mask(...))`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from ..model.config import TextConfig
from ..model.text import ALL
from .page_table import (
    SCRATCH_SLOT,
    Chunk,
    LevelPlan,
    PagedSequence,
    PagePool,
    chunks_between,
    plan_levels,
)


class PagedKernel(Protocol):
    """What is used of FlashInfer's BatchPrefillWithPagedKVCacheWrapper, layout NHD."""

    def plan(self, qo_indptr, paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len, *shape,
             causal: bool, q_data_type: torch.dtype) -> None:  # fmt: skip
        """Take int32 arrays on the host (LevelPlan) and heads, kv_heads, head_dim, page_size."""
        ...

    def run(self, q, paged_kv_cache, *, out=None, lse=None, return_lse=False):
        """q [rows, heads, d], pages [pages, page_size, kv_heads, d] → out, or out and lse.

        lse float32 [rows, heads] is the logarithm to base 2 of the softmax's denominator.
        """
        ...


@dataclass(frozen=True)
class Kernels:
    """One attention library: how a kernel is made, and how two partial results are merged.

    `make(device, (requests, indices))` returns a kernel with static buffers for so many requests
    and up to so many page indices, `make(device, None)` one for plans of any size.
    `merge(out, lse, other_out, other_lse)` changes the first two in place.
    """

    name: str
    make: Callable[[torch.device, tuple[int, int] | None], PagedKernel]
    merge: Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], None]


class PagedKVCache:
    """Keys and values [layers, pages, page_size, kv_heads, head_dim]."""

    def __init__(self, config: TextConfig, pool: PagePool, dtype, device):
        shape = (config.num_layers, pool.pages, pool.page_size)
        shape += (config.num_kv_heads, config.head_dim)
        self.keys = torch.zeros(shape, dtype=dtype, device=device)
        self.values = torch.zeros(shape, dtype=dtype, device=device)

    def write(self, layer: int, slots: torch.Tensor, key: torch.Tensor, value: torch.Tensor):
        """Put key and value [n, kv_heads, L, d] into the places `slots` [n*L]."""
        for cache, new in ((self.keys, key), (self.values, value)):
            cache[layer].flatten(0, 1).index_copy_(0, slots, new.transpose(1, 2).flatten(0, 1))

    def gather(self, layer: int, sequence: PagedSequence, end: int):
        """Return keys and values [kv_heads, end, d] of the slots 0 … end-1 of a sequence."""
        segments = [(torch.tensor(s.pages), s.last_page_len) for s in sequence.segments(end)]
        return tuple(
            torch.cat([take_slots(cache[layer], *s) for s in segments]).transpose(0, 1)
            for cache in (self.keys, self.values)
        )


class PagedAttend:
    """Attention of one forward (see model.text.Attend), which is planned before it.

    A static one serves forwards of one shape; its buffers and kernels stay where they are, so
    that a captured graph may hold it. One that is not static takes any shape.
    """

    def __init__(self, cache: PagedKVCache, kernels: Kernels, static: bool):
        self._cache = cache
        self._static = static
        self._all_rows = _Levels(cache, kernels, static)
        self._last_rows = _Levels(cache, kernels, static)  # of the last layer
        self._slots: torch.Tensor | None = None
        self._planned_slots: tuple[int, ...] = ()
        self._fewer_rows_in_last = False

    def plan(
        self,
        heads: int,
        slots: Sequence[int],
        chunks: Sequence[Sequence[Chunk]],
        sequences: Sequence[PagedSequence],
        rows: slice = ALL,
    ) -> None:
        """Say where the next forward writes and what it sees; cheap if that is as before."""
        if tuple(slots) != self._planned_slots:
            new = torch.tensor(slots)
            if self._static and self._slots is not None:
                self._slots.copy_(new)
            else:
                self._slots = new.to(self._cache.keys.device)
            self._planned_slots = tuple(slots)
        self._all_rows.plan(heads, plan_levels(sequences, chunks))
        self._fewer_rows_in_last = rows != ALL
        if self._fewer_rows_in_last:
            wanted = [_chunks_of_rows(own, rows) for own in chunks]
            self._last_rows.plan(heads, plan_levels(sequences, wanted))

    def __call__(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
    ) -> torch.Tensor:
        """See model.text.Attend."""
        self._cache.write(layer, self._slots, key, value)
        last = self._fewer_rows_in_last and layer == self._cache.keys.shape[0] - 1
        levels = self._last_rows if last else self._all_rows
        out = levels.run(layer, query.transpose(1, 2).flatten(0, 1))
        return out.unflatten(0, (query.shape[0], query.shape[2])).transpose(1, 2)


class _Levels:
    """One kernel per level of a plan, and what they have planned."""

    def __init__(self, cache: PagedKVCache, kernels: Kernels, static: bool):
        self._cache = cache
        self._kernels = kernels
        self._static = static
        self._plans: list[LevelPlan] = []
        self._level_kernels: list[PagedKernel] = []

    def plan(self, heads: int, plans: list[LevelPlan]) -> None:
        if plans == self._plans:
            return
        for level in range(len(self._level_kernels), len(plans)):
            self._level_kernels.append(self._make(plans[level]))
        keys = self._cache.keys
        _, _, page_size, kv_heads, head_dim = keys.shape
        for kernel, plan in zip(self._level_kernels, plans, strict=False):
            arrays = (plan.qo_indptr, plan.indptr, plan.indices, plan.last_page_len)
            kernel.plan(
                *(torch.tensor(array, dtype=torch.int32) for array in arrays),
                heads,
                kv_heads,
                head_dim,
                page_size,
                causal=False,
                q_data_type=keys.dtype,
            )
        self._plans = plans

    def _make(self, plan: LevelPlan) -> PagedKernel:
        device, pages = self._cache.keys.device, self._cache.keys.shape[1]
        if not self._static:
            return self._kernels.make(device, None)
        requests = len(plan.last_page_len)
        return self._kernels.make(device, (requests, requests * pages))  # each page at most once

    def run(self, layer: int, query: torch.Tensor) -> torch.Tensor:
        """Query [rows, heads, d] → output of that shape."""
        pages = self._cache.keys[layer], self._cache.values[layer]
        *shared, own = self._level_kernels[: len(self._plans)]
        if not shared:
            return own.run(query, pages)
        out, lse = own.run(query, pages, return_lse=True)
        for kernel in shared:
            self._kernels.merge(out, lse, *kernel.run(query, pages, return_lse=True))
        return out


class PagedAttention:
    """The paged KV cache of a batch, and an Attend for each forward; lives in one thread.

    Like KVCache it counts committed slots: a forward writes behind them, `commit` counts in.
    """

    def __init__(
        self,
        config: TextConfig,
        batch: int,
        capacity: int,
        dtype: torch.dtype,
        device: torch.device,
        kernels: Kernels,
        *,
        forks: int = 0,
        fork_capacity: int = 0,
        page_size: int = 16,
    ):
        pages = 1 + batch * -(-capacity // page_size) + forks * -(-fork_capacity // page_size)
        self.config = config
        self.pool = PagePool(pages, page_size)
        self.cache = PagedKVCache(config, self.pool, dtype, device)
        self.sequences = [PagedSequence(self.pool) for _ in range(batch)]
        self._kernels = kernels
        self._attends: dict[tuple | None, PagedAttend] = {}

    def prefill(
        self,
        start: int,
        lengths: Sequence[int],
        block_size: int,
        rows: slice = ALL,
        *,
        static: bool = False,
    ) -> PagedAttend:
        """Plan prompts whose slots from `start` on are new, in chunks of `block_size` from 0.

        All rows have the length of the longest prompt. What is behind a shorter one is padding:
        it is written nowhere, and its own output means nothing.
        """
        longest = max(lengths)
        chunks, slots = [], []
        for sequence, length in zip(self.sequences, lengths, strict=True):
            places = sequence.reserve(length - start)
            slots += places + [SCRATCH_SLOT] * (longest - length)
            chunks.append(
                [
                    Chunk(chunk.queries, min(chunk.end, length))
                    for chunk in chunks_between(start, longest, block_size)
                ]
            )
        return self._attend(slots, chunks, rows, static)

    def answer(self, blocks: Sequence[int], rows: slice = ALL) -> PagedAttend:
        """Plan blocks of so many tokens behind the committed slots, each seeing all before it."""
        chunks, slots = [], []
        for sequence in self.sequences:
            slots += sequence.reserve(sum(blocks))
            end = sequence.length
            own = []
            for count in blocks:
                end += count
                own.append(Chunk(count, end))
            chunks.append(own)
        return self._attend(slots, chunks, rows, static=True)

    def commit(self, counts: Sequence[int]) -> None:
        """Keep the first `counts[i]` slots that the last forward wrote for sequence i."""
        for sequence, count in zip(self.sequences, counts, strict=True):
            sequence.commit(count)

    def rollback(self, length: int) -> None:
        """Forget everything from slot `length` on, in all sequences."""
        for sequence in self.sequences:
            sequence.rollback(length)

    def fork(self, count: int) -> None:
        """Go on with `count` sequences on each one that there is; nothing is copied."""
        self.sequences = [fork for sequence in self.sequences for fork in sequence.fork(count)]

    def join(self) -> None:
        """Free all forks and go on with the sequences that they stand on."""
        prefixes = list(dict.fromkeys(fork.prefix for fork in self.sequences))
        if None in prefixes:
            raise ValueError('there is no fork to free')
        for fork in self.sequences:
            fork.free()
        self.sequences = prefixes

    def _attend(self, slots, chunks, rows: slice, static: bool) -> PagedAttend:
        """Return the Attend of this shape, planned; prompts share one unless it is static."""
        key = None
        if static:
            depth = len(self.sequences[0].segments(chunks[0][0].end))
            shape = tuple(tuple(chunk.queries for chunk in own) for own in chunks)
            key = (depth, shape, (rows.start, rows.stop, rows.step))
        if key not in self._attends:
            self._attends[key] = PagedAttend(self.cache, self._kernels, static)
        attend = self._attends[key]
        attend.plan(self.config.num_heads, slots, chunks, self.sequences, rows)
        return attend


def _chunks_of_rows(chunks: Sequence[Chunk], rows: slice) -> list[Chunk]:
    """Return the chunks of those queries only that `rows` picks."""
    ends = [chunk.end for chunk in chunks for _ in range(chunk.queries)][rows]
    picked = dict.fromkeys(ends, 0)
    for end in ends:
        picked[end] += 1
    return [Chunk(count, end) for end, count in picked.items()]


def take_slots(cache: torch.Tensor, pages: torch.Tensor, last_page_len: int) -> torch.Tensor:
    """Cache [pages, page_size, kv_heads, d] → the listed pages' slots [slots, kv_heads, d]."""
    slots = (len(pages) - 1) * cache.shape[1] + last_page_len
    return cache[pages].flatten(0, 1)[:slots]
