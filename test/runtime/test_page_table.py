"""Pages and sequences, over random operations: always a partition, always the same slots."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from wamdiff_ros.runtime.page_table import (
    SCRATCH_PAGE,
    Chunk,
    PagedSequence,
    PagePool,
    chunks_between,
    plan_levels,
)


def places(sequence, end):
    """Return the places of the slots 0 … end-1, as attention would gather them."""
    size = sequence.pool.page_size
    found = []
    for segment in sequence.segments(end):
        *whole, last = segment.pages
        found += [page * size + offset for page in whole for offset in range(size)]
        found += [last * size + offset for offset in range(segment.last_page_len)]
    return found


class PagedSequences(RuleBasedStateMachine):
    """Writes a token of its own into every slot; a model in lists says what must be read."""

    sequences = Bundle('sequences')

    def __init__(self):
        super().__init__()
        self.pool = PagePool(40, 3)
        self.memory = {}
        self.tokens = 0
        self.model = {}  # sequence -> its tokens
        self.forks = {}  # sequence -> its living forks

    @rule(target=sequences)
    def begin(self):
        sequence = PagedSequence(self.pool)
        self.model[sequence], self.forks[sequence] = [], []
        return sequence

    @rule(sequence=sequences, count=st.integers(0, 7), kept=st.integers(0, 7))
    def forward(self, sequence, count, kept):
        if sequence not in self.model:
            return
        try:
            slots = sequence.reserve(count)
        except ValueError as error:
            assert 'more pages are needed' in str(error)
            return
        written = []
        for slot in slots:
            self.tokens += 1
            self.memory[slot] = self.tokens
            written.append(self.tokens)
        if count:
            end = sequence.length + count
            assert [self.memory[s] for s in places(sequence, end)] == [
                *self.model[sequence], *written,
            ]  # fmt: skip
        sequence.commit(min(kept, count))
        self.model[sequence] += written[:kept]

    @rule(sequence=sequences, share=st.floats(0, 1))
    def rollback(self, sequence, share):
        if sequence not in self.model:
            return
        length = int(share * sequence.length)
        seen = [fork.prefix_length for fork in self.forks[sequence]]
        if length < sequence.prefix_length or length < max(seen, default=0):
            with pytest.raises(ValueError, match='cannot roll back'):
                sequence.rollback(length)
            return
        sequence.rollback(length)
        del self.model[sequence][length:]

    @rule(target=sequences, sequence=sequences)
    def fork(self, sequence):
        if sequence not in self.model or not sequence.length:
            return PagedSequence(self.pool)  # nobody looks at it
        free = self.pool.free_pages
        (fork,) = sequence.fork(1)
        assert self.pool.free_pages == free, 'a fork copies nothing'
        self.model[fork], self.forks[fork] = list(self.model[sequence]), []
        self.forks[fork.prefix].append(fork)
        return fork

    @rule(sequence=consumes(sequences))
    def free(self, sequence):
        if sequence not in self.model:
            return
        if self.forks[sequence]:
            with pytest.raises(ValueError, match='free them first'):
                sequence.free()
            return
        sequence.free()
        del self.model[sequence]
        if sequence.prefix is not None:
            self.forks[sequence.prefix].remove(sequence)
        with pytest.raises(ValueError, match='was freed'):
            sequence.reserve(1)

    @invariant()
    def every_sequence_reads_what_it_wrote(self):
        for sequence, tokens in self.model.items():
            assert sequence.length == len(tokens)
            if len(tokens) > sequence.prefix_length:
                read = [self.memory[slot] for slot in places(sequence, len(tokens))]
                assert read == tokens

    @invariant()
    def every_page_has_one_owner(self):
        owned = [page for sequence in self.forks for page in sequence.pages]
        assert len(set(owned)) == len(owned)
        assert SCRATCH_PAGE not in owned
        assert self.pool.free_pages == 39 - len(owned)


TestPagedSequences = PagedSequences.TestCase
TestPagedSequences.settings = settings(max_examples=40)


@given(
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=4),
    block=st.integers(1, 9),
    page_size=st.integers(1, 8),
)
def test_a_plan_shows_each_chunk_the_slots_up_to_its_end(lengths, block, page_size):
    pool = PagePool(200, page_size)
    sequences = [PagedSequence(pool) for _ in lengths]
    for sequence, length in zip(sequences, lengths, strict=True):
        sequence.reserve(length)
    chunks = [chunks_between(0, length, block) for length in lengths]
    (level,) = plan_levels(sequences, chunks)
    flat = [(i, c) for i, (own, _) in enumerate(zip(chunks, lengths, strict=True)) for c in own]
    assert level.qo_indptr[-1] == sum(lengths)
    assert len(level.last_page_len) == len(flat)
    for request, (index, chunk) in enumerate(flat):
        pages = level.indices[level.indptr[request] : level.indptr[request + 1]]
        slots = [p * page_size + o for p in pages for o in range(page_size)]
        slots = slots[: (len(pages) - 1) * page_size + level.last_page_len[request]]
        assert slots == places(sequences[index], chunk.end)
        assert 1 <= level.last_page_len[request] <= page_size


@given(start=st.integers(0, 30), count=st.integers(1, 30), size=st.integers(1, 9))
def test_chunks_are_those_of_the_block_causal_mask(start, count, size):
    chunks = chunks_between(start, start + count, size)
    ends = [chunk.end for chunk in chunks for _ in range(chunk.queries)]
    token_ends = [(token // size + 1) * size for token in range(start, start + count)]
    assert ends == [min(end, start + count) for end in token_ends]


def test_forks_share_one_request_over_their_prefix():
    pool = PagePool(20, 4)
    prompt = PagedSequence(pool)
    prompt.reserve(6)
    prompt.commit(6)
    forks = prompt.fork(3)
    for fork in forks:
        fork.reserve(5)
    shared, own = plan_levels(forks, [[Chunk(5, 11)]] * 3)
    assert shared.qo_indptr == (0, 15)
    assert shared.indices == tuple(prompt.pages)
    assert shared.last_page_len == (2,)
    assert own.qo_indptr == (0, 5, 10, 15)
    assert own.last_page_len == (1, 1, 1)


def test_sequences_with_and_without_a_prefix_are_not_mixed():
    pool = PagePool(20, 4)
    prompt = PagedSequence(pool)
    prompt.reserve(6)
    prompt.commit(6)
    (fork,) = prompt.fork(1)
    fork.reserve(2)
    prompt.reserve(2)
    with pytest.raises(ValueError, match=r'share \[1, 2\] levels'):
        plan_levels([prompt, fork], [[Chunk(2, 8)]] * 2)


def test_a_full_pool_says_what_is_missing_and_takes_nothing():
    pool = PagePool(4, 2)
    sequence = PagedSequence(pool)
    with pytest.raises(ValueError, match='4 more pages are needed, 3 of 3 are free'):
        sequence.reserve(7)
    assert pool.free_pages == 3
    sequence.reserve(6)
    with pytest.raises(ValueError, match='cannot commit 7 slots, 6 are reserved'):
        sequence.commit(7)


def test_a_fork_of_an_untouched_fork_sees_what_that_one_sees():
    pool = PagePool(20, 4)
    prompt = PagedSequence(pool)
    prompt.reserve(6)
    prompt.commit(6)
    (fork,) = prompt.fork(1)
    prompt.reserve(3)
    prompt.commit(3)
    (second,) = fork.fork(1)
    assert (second.prefix, second.length) == (prompt, 6)
    fork.free()
    with pytest.raises(ValueError, match='cannot roll back to 5: a fork sees 6'):
        prompt.rollback(5)
