"""How fast an answer has to be decoded to be there at its deadline: measured, not assumed.

A pace is asked before every forward (decoding.Pace), so the time between two questions is what a
forward costs, choosing included. Costs are kept per shape over the ticks of a session.
"""

from collections import deque
from collections.abc import Callable, Hashable

WINDOW = 16  # newest measurements per shape
SPIKES = 2  # of these the slowest, which say more about the machine than about the forward


class Costs:
    """What each shape of forward takes: nearly the slowest of its newest measurements."""

    def __init__(self):
        self._measured: dict[Hashable, deque[int]] = {}

    def note(self, shape: Hashable, spent_ns: int) -> None:
        """Take note of one measurement."""
        self._measured.setdefault(shape, deque(maxlen=WINDOW)).append(spent_ns)

    def estimate_ns(self, shape: Hashable) -> int:
        """Return what a forward of this shape may take; 0 if it has never run."""
        measured = sorted(self._measured.get(shape, ()))
        if not measured:
            return 0
        return measured[-1 - SPIKES] if len(measured) > 2 * SPIKES else measured[-1]


class DeadlinePace:
    """The pace of one answer; see decoding.Pace. Shapes are numbers of blocks in a forward."""

    def __init__(
        self,
        costs: Costs,
        clock_ns: Callable[[], int],
        deadline_ns: int,
        expected_blocks: int,
        at_once: bool,
    ):
        """deadline_ns: of `clock_ns`; expected_blocks: how long the answer will likely be.

        `at_once`: the rest of an answer may be filled in from one forward. Otherwise each block
        gets a forward, however late that is.
        """
        self._costs = costs
        self._clock_ns = clock_ns
        self._deadline_ns = deadline_ns
        self._expected = expected_blocks
        self._at_once = at_once
        self.filled_at_once = False
        self._begun = 0  # blocks
        self._running: tuple[int, int] | None = None  # shape and start of the forward in progress

    def blocks_at_once(self, left: int) -> int:
        """See decoding.Pace."""
        now_ns = self._now_ns()
        needed = min(left, max(1, self._expected - self._begun))
        before = 1 if self._begun else 0  # the clean block that the forward commits
        count = 1
        late = now_ns + self._cost_ns(before, needed) > self._deadline_ns
        if late and needed > 1 and self._at_once:
            count, self.filled_at_once = needed, True
        self._begun += count
        self._running = (before + count, now_ns)
        return count

    def another_step(self, left: int) -> bool:
        """See decoding.Pace."""
        now_ns = self._now_ns()
        needed = min(left, max(0, self._expected - self._begun))
        wanted_ns = self._costs.estimate_ns(1) + self._cost_ns(1, needed)
        fits = now_ns + wanted_ns <= self._deadline_ns
        if fits:
            self._running = (1, now_ns)
        return fits

    def is_over(self) -> bool:
        """Return whether the deadline has passed, for decoders that know no blocks."""
        return self._now_ns() >= self._deadline_ns

    def end(self) -> None:
        """Take note of the last forward."""
        self._now_ns()

    def _cost_ns(self, before: int, blocks: int) -> int:
        """Return what `blocks` blocks cost at one forward each."""
        if not blocks:
            return 0
        first, other = self._costs.estimate_ns(before + 1), self._costs.estimate_ns(2)
        return first + (blocks - 1) * other

    def _now_ns(self) -> int:
        now_ns = self._clock_ns()
        if self._running is not None:
            shape, start_ns = self._running
            self._costs.note(shape, now_ns - start_ns)
            self._running = None
        return now_ns
