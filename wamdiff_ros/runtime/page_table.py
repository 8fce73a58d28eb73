"""Page tables: which pages of a paged KV cache hold a sequence's slots. Knows no device.

A sequence has whole pages of its own and may stand on a prefix that other sequences stand on too.
Forking copies nothing: each fork starts in a page of its own behind the prefix, however full the
prefix's last page is, and attention joins the two (FlashInfer calls that a cascade). Not
responsible for keys and values (see paged_attention).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, pairwise

# This page belongs to nobody: the keys and values of padding are written to its first slot.
SCRATCH_PAGE = 0
SCRATCH_SLOT = 0


class PagePool:
    """The pages 1 … pages-1 of `page_size` slots each, free or in use."""

    def __init__(self, pages: int, page_size: int):
        if pages < 2 or page_size < 1:
            raise ValueError(f'{pages} pages of {page_size} slots: wanted 2 or more of 1 or more')
        self.pages = pages
        self.page_size = page_size
        self._free = list(range(pages - 1, SCRATCH_PAGE, -1))  # the lowest is taken first

    @property
    def free_pages(self) -> int:
        """How many pages nobody uses."""
        return len(self._free)

    def take(self, count: int) -> list[int]:
        """Return `count` pages that nobody uses, or raise and take none."""
        if count > len(self._free):
            raise ValueError(
                f'{count} more pages are needed, {len(self._free)} of {self.pages - 1} are free; '
                'free a sequence or make the cache larger'
            )
        return [self._free.pop() for _ in range(count)]

    def give(self, pages: Sequence[int]) -> None:
        """Take pages back."""
        self._free.extend(reversed(pages))


class PagedSequence:
    """The slots 0 … length-1 of one sequence: a prefix's, then its own."""

    def __init__(
        self, pool: PagePool, prefix: 'PagedSequence | None' = None, prefix_length: int = 0
    ):
        self.pool = pool
        self.prefix = prefix
        self.prefix_length = prefix_length  # of the prefix's slots, those that this one sees
        self.pages: list[int] = []
        self._own = 0  # committed slots of its own
        self._forks: list[PagedSequence] = []
        self._freed = False

    @property
    def length(self) -> int:
        """How many slots are committed, the prefix's among them."""
        return self.prefix_length + self._own

    def reserve(self, count: int) -> list[int]:
        """Return the places (page * page_size + offset) of the `count` slots behind the committed.

        They keep their places until they are committed, or reserved again.
        """
        self._insist_on_use()
        if count < 0:
            raise ValueError(f'cannot reserve {count} slots')
        size = self.pool.page_size
        missing = -(-(self._own + count) // size) - len(self.pages)
        self.pages += self.pool.take(max(0, missing))
        slots = range(self._own, self._own + count)
        return [self.pages[slot // size] * size + slot % size for slot in slots]

    def commit(self, count: int) -> None:
        """Keep the first `count` reserved slots."""
        self._insist_on_use()
        room = len(self.pages) * self.pool.page_size - self._own
        if not 0 <= count <= room:
            raise ValueError(f'cannot commit {count} slots, {room} are reserved')
        self._own += count

    def rollback(self, length: int) -> None:
        """Forget everything from slot `length` on, and give back the pages behind it."""
        self._insist_on_use()
        if not self.prefix_length <= length <= self.length:
            raise ValueError(
                f'cannot roll back to {length} of {self.length} slots'
                + (f', {self.prefix_length} of them shared' if self.prefix_length else '')
            )
        seen = max((fork.prefix_length for fork in self._forks), default=0)
        if length < seen:
            raise ValueError(f'cannot roll back to {length}: a fork sees {seen}; free it first')
        self._own = length - self.prefix_length
        keep = -(-self._own // self.pool.page_size)
        self.pool.give(self.pages[keep:])
        del self.pages[keep:]

    def fork(self, count: int, pool: PagePool | None = None) -> list['PagedSequence']:
        """Return `count` sequences that go on from here, each by itself; copies nothing.

        Their own pages come from `pool`, which may be another one than this sequence's.
        """
        self._insist_on_use()
        if not self.length:
            raise ValueError('cannot fork an empty sequence')
        # An empty fork has no pages to share: its forks stand on what it stands on.
        prefix = self if self._own else self.prefix
        forks = [PagedSequence(pool or self.pool, prefix, self.length) for _ in range(count)]
        prefix._forks += forks
        return forks

    def free(self) -> None:
        """Give all pages back; the sequence cannot be used any more."""
        self._insist_on_use()
        if self._forks:
            raise ValueError(f'{len(self._forks)} forks stand on this sequence; free them first')
        self.pool.give(self.pages)
        self.pages, self._own, self._freed = [], 0, True
        if self.prefix is not None:
            self.prefix._forks.remove(self)

    def segments(self, end: int) -> list['Segment']:
        """Return what a token sees that sees the slots 0 … end-1: one segment per ancestor."""
        before = [] if self.prefix is None else self.prefix.segments(self.prefix_length)
        size = self.pool.page_size
        own = end - self.prefix_length
        if not 0 < own <= len(self.pages) * size:
            raise ValueError(f'slot {end - 1} is not among the own slots of this sequence')
        pages = tuple(self.pages[: -(-own // size)])
        return [*before, Segment(pages, own - (len(pages) - 1) * size)]

    def _insist_on_use(self) -> None:
        if self._freed:
            raise ValueError('this sequence was freed')


@dataclass(frozen=True)
class Segment:
    """Some pages in order, of which the last holds `last_page_len` slots."""

    pages: tuple[int, ...]
    last_page_len: int


@dataclass(frozen=True)
class LevelPlan:
    """One level of attention, in the form of FlashInfer's paged wrappers.

    Request r has the queries qo_indptr[r] … qo_indptr[r+1]-1, which see all slots of the pages
    indices[indptr[r]] … indices[indptr[r+1]-1], the last page up to last_page_len[r].
    """

    qo_indptr: tuple[int, ...]
    indptr: tuple[int, ...]
    indices: tuple[int, ...]
    last_page_len: tuple[int, ...]


@dataclass(frozen=True)
class Chunk:
    """Consecutive queries of one sequence that all see its slots 0 … end-1."""

    queries: int
    end: int


def plan_levels(
    sequences: Sequence[PagedSequence], chunks: Sequence[Sequence[Chunk]]
) -> list[LevelPlan]:
    """Plan one forward: the chunks of each sequence, whose queries follow each other.

    Block-causal attention needs no mask this way: each chunk of B tokens is a request of its own
    over the pages up to its end. The last level holds what each sequence has for itself; the ones
    before it hold shared prefixes, each with the queries of all its neighbouring sequences as one
    request, so that its keys are read once.
    """
    rows = [
        (chunk.queries, sequence.segments(chunk.end))
        for sequence, own in zip(sequences, chunks, strict=True)
        for chunk in own
    ]
    if not rows:
        return []
    depths = {len(segments) for _, segments in rows}
    if len(depths) != 1:
        raise ValueError(f'sequences of one forward share {sorted(depths)} levels, wanted one')
    levels = []
    for level in range(depths.pop()):
        requests = [(queries, segments[level]) for queries, segments in rows]
        if level < len(rows[0][1]) - 1:
            requests = [
                (sum(queries for queries, _ in group), segment)
                for segment, group in (
                    (key, list(group)) for key, group in groupby(requests, key=lambda r: r[1])
                )
            ]
        levels.append(_level_plan(requests))
    return levels


def _level_plan(requests: Sequence[tuple[int, Segment]]) -> LevelPlan:
    return LevelPlan(
        qo_indptr=(0, *accumulate(queries for queries, _ in requests)),
        indptr=(0, *accumulate(len(segment.pages) for _, segment in requests)),
        indices=tuple(page for _, segment in requests for page in segment.pages),
        last_page_len=tuple(segment.last_page_len for _, segment in requests),
    )


def chunks_between(start: int, end: int, size: int, first: int = 0) -> list[Chunk]:
    """Return the chunks of the tokens start … end-1, in chunks of `size` counted from `first`."""
    edges = [start, *range(first + (start - first) // size * size + size, end, size), end]
    return [Chunk(stop - begin, stop) for begin, stop in pairwise(edges) if stop > begin]
