"""The prefix KV cache in pages, and attention over it that is planned outside of a forward.

PagedCache has the interface of KVCache, and makes the Attend of each forward. The kernel is
exchangeable: FlashInfer's on a GPU (flashinfer_attention.py), or a plain one that reads the same
plan arrays (torch_paged_kernel.py), so that all logic around the kernel runs, and is tested,
without a GPU.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from ..model.config import TextConfig
from .page_table import (
    SCRATCH_SLOT,
    Chunk,
    LevelPlan,
    PagedSequence,
    PagePool,
    chunks_between,
    plan_levels,
)

PAGE_SIZE = 16


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


class PagedCache:
    """Keys and values [layers, pages, page_size, kv_heads, head_dim] of `batch` sequences.

    To its user a KVCache: slots fill up from the front, equally many in all sequences, a forward
    writes behind the committed ones. Padding behind shorter prompts is counted and never stored.
    """

    def __init__(
        self,
        config: TextConfig,
        batch: int,
        capacity: int,
        dtype: torch.dtype,
        device: torch.device,
        kernels: Kernels,
        page_size: int = PAGE_SIZE,
    ):
        self.heads, self.batch, self.capacity = config.num_heads, batch, capacity
        self.kernels = kernels
        self.pool = PagePool(1 + batch * -(-capacity // page_size), page_size)
        shape = (config.num_layers, self.pool.pages, page_size)
        shape += (config.num_kv_heads, config.head_dim)
        self.keys = torch.zeros(shape, dtype=dtype, device=device)
        self.values = torch.zeros(shape, dtype=dtype, device=device)
        self.sequences = [PagedSequence(self.pool) for _ in range(batch)]
        self.length = 0  # committed slots, those of the prefix and padding included
        self.prefix: PagedCache | None = None
        self._forks: PagedCache | None = None  # what stands on this one
        self._reserved = [0] * batch  # by the last forward, in each sequence
        self._attends: dict[tuple, PagedAttend] = {}

    @property
    def largest_pool(self) -> int:
        """Number of pages of the larger of this cache and its prefix."""
        return max(self.pool.pages, 0 if self.prefix is None else self.prefix.pool.pages)

    def fork(self, answers: 'PagedCache') -> 'PagedCache':
        """Let `answers` go on from the committed slots of this cache of one prompt."""
        if self.batch != 1 or self.prefix is not None:
            raise ValueError(f'a cache of {self.batch} prompts, forked or not, cannot be forked')
        self._let_go_of_forks()
        for sequence in answers.sequences:
            sequence.free()
        answers.sequences = self.sequences[0].fork(answers.batch, answers.pool)
        answers.prefix, answers.length = self, self.length
        self._forks = answers
        return answers

    def commit(self, count: int) -> None:
        """Keep the first `count` slots that the last forward wrote."""
        if not 0 <= count <= max(self._reserved):
            raise ValueError(f'cannot commit {count} slots of {max(self._reserved)} written')
        for sequence, reserved in zip(self.sequences, self._reserved, strict=True):
            sequence.commit(min(count, reserved))
        self._reserved = [max(0, reserved - count) for reserved in self._reserved]
        self.length += count

    def clear(self) -> None:
        """Forget everything, and what is in the pages: no mask hides a NaN from attention."""
        self._let_go_of_forks()
        self._start_anew()  # a fork's prefix may have been replaced, and frees it no more
        self.keys.zero_()
        self.values.zero_()

    def rollback(self, length: int) -> None:
        """Forget everything from slot `length` on, and the forks."""
        self._let_go_of_forks()
        if length and any(sequence.length != self.length for sequence in self.sequences):
            raise ValueError(f'cannot roll back prompts of unequal length to {length}, only to 0')
        for sequence in self.sequences:
            sequence.rollback(length)
        self.length, self._reserved = length, [0] * self.batch

    def prompt_attend(
        self,
        start: int,
        end: int,
        block_size: int,
        lengths: Sequence[int],
        rows: slice = slice(None),
        *,
        static: bool = False,
    ) -> 'PagedAttend':
        """Plan the slots start … end-1 of prompts, in chunks of `block_size` counted from 0.

        `lengths` are those of the whole prompts. What is behind a shorter one is padding: its keys
        go nowhere, its own output means nothing. `rows` are the last layer's queries.
        """
        self._reserved = [max(0, min(end, length) - start) for length in lengths]
        chunks = [
            [
                Chunk(chunk.queries, min(chunk.end, length))
                for chunk in chunks_between(start, end, block_size)
            ]
            for length in lengths
        ]
        last = [_chunks_of_rows(own, rows) for own in chunks]
        return self._attend('prompt', chunks, last, end - start, static)

    def blocks_attend(
        self,
        groups: Sequence[tuple[int, int]],
        last: Sequence[tuple[int, int]],
        *,
        static: bool = False,
    ) -> 'PagedAttend':
        """Plan answer blocks behind the committed slots, as BlocksAttend takes them."""
        tokens = sum(count for count, _ in groups)
        self._reserved = [tokens] * self.batch

        def chunks(pairs: Sequence[tuple[int, int]]) -> list[list[Chunk]]:
            return [
                [Chunk(count, sequence.length + end - self.length) for count, end in pairs]
                for sequence in self.sequences
            ]

        return self._attend('blocks', chunks(groups), chunks(last), tokens, static)

    def _attend(self, kind, chunks, last, tokens: int, static: bool) -> 'PagedAttend':
        """Return a planned Attend; all forwards of a kind share one unless it is static."""
        slots = []
        for sequence, count in zip(self.sequences, self._reserved, strict=True):
            slots += sequence.reserve(count) + [SCRATCH_SLOT] * (tokens - count)
        key = (kind,)
        if static:
            queries = [tuple(c.queries for own in part for c in own) for part in (chunks, last)]
            key = (kind, self.prefix is not None, *queries)
        if key not in self._attends:
            self._attends[key] = PagedAttend(self, static)
        attend = self._attends[key]
        attend.plan(slots, plan_levels(self.sequences, chunks), plan_levels(self.sequences, last))
        return attend

    def _let_go_of_forks(self) -> None:
        forks, self._forks = self._forks, None
        if forks is not None:
            forks._start_anew()

    def _start_anew(self) -> None:
        """Give all pages back, and stand on no prefix."""
        for sequence in self.sequences:
            sequence.free()
        self.sequences = [PagedSequence(self.pool) for _ in range(self.batch)]
        self.prefix, self.length, self._reserved = None, 0, [0] * self.batch


class PagedAttend:
    """Attention of one forward (see model.text.Attend), which is planned before it.

    A static one serves forwards of one shape; its buffers and kernels stay where they are, so
    that a captured graph may hold it. One that is not static takes any shape.
    """

    def __init__(self, cache: PagedCache, static: bool):
        self._cache = cache
        self._static = static
        self._levels = _Levels(cache, static)
        self._last_levels = _Levels(cache, static)  # of the last layer, if it has fewer queries
        self._slots: torch.Tensor | None = None
        self._planned_slots: list[int] = []

    def plan(self, slots: list[int], levels: list[LevelPlan], last: list[LevelPlan]) -> None:
        """Say where the next forward writes and what it sees; cheap if that is as before."""
        if slots != self._planned_slots:
            new = torch.tensor(slots)
            if self._static and self._slots is not None:
                self._slots.copy_(new)
            else:
                self._slots = new.to(self._cache.keys.device)
            self._planned_slots = slots
        self._levels.plan(levels)
        self._last_levels.plan([] if last == levels else last)

    def __call__(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
    ) -> torch.Tensor:
        """See model.text.Attend."""
        cache = self._cache
        for pages, new in ((cache.keys, key), (cache.values, value)):
            pages[layer].flatten(0, 1).index_copy_(
                0, self._slots, new.transpose(1, 2).flatten(0, 1)
            )
        if query.shape[2] == 0:  # only keys and values are wanted
            return query
        levels = self._levels if query.shape[2] == key.shape[2] else self._last_levels
        out = levels.run(layer, query.transpose(1, 2).flatten(0, 1))
        return out.unflatten(0, (query.shape[0], query.shape[2])).transpose(1, 2)


class _Levels:
    """One kernel per level of a plan, and what they have planned."""

    def __init__(self, cache: PagedCache, static: bool):
        self._cache = cache
        self._static = static
        self._plans: list[LevelPlan] = []
        self._kernels: list[PagedKernel] = []

    def plan(self, plans: list[LevelPlan]) -> None:
        if plans == self._plans:
            return
        cache = self._cache
        for plan in plans[len(self._kernels) :]:
            requests = len(plan.last_page_len)
            # In a request each page is there at most once.
            size = (requests, requests * cache.largest_pool) if self._static else None
            self._kernels.append(cache.kernels.make(cache.keys.device, size))
        _, _, page_size, kv_heads, head_dim = cache.keys.shape
        for kernel, plan in zip(self._kernels, plans, strict=False):
            arrays = (plan.qo_indptr, plan.indptr, plan.indices, plan.last_page_len)
            kernel.plan(
                *(torch.tensor(array, dtype=torch.int32) for array in arrays),
                cache.heads,
                kv_heads,
                head_dim,
                page_size,
                causal=False,
                q_data_type=cache.keys.dtype,
            )
        self._plans = plans

    def run(self, layer: int, query: torch.Tensor) -> torch.Tensor:
        """Query [rows, heads, d] → output of that shape."""
        cache = self._cache
        pages = cache.keys[layer], cache.values[layer]
        if len(self._plans) == 1:
            return self._kernels[0].run(query, pages)
        prefix = cache.prefix.keys[layer], cache.prefix.values[layer]
        shared, own = self._kernels
        out, lse = own.run(query, pages, return_lse=True)
        cache.kernels.merge(out, lse, *shared.run(query, prefix, return_lse=True))
        return out


def _chunks_of_rows(chunks: Sequence[Chunk], rows: slice) -> list[Chunk]:
    """Return the chunks of those queries only that `rows` picks."""
    ends = [chunk.end for chunk in chunks for _ in range(chunk.queries)][rows]
    return [Chunk(ends.count(end), end) for end in dict.fromkeys(ends)]
