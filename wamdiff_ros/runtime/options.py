"""Which of the engine's faster paths run: each can be turned off, and off is the plain reference.

Measuring turns them on one after another; tests compare each with the plain path.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class EngineOptions:
    """Switches of the engine; the defaults are what a planner runs."""

    # Whole chunks of the prompt that are equal to those of the last one stay in the KV cache.
    prefix_reuse: bool = True
    # The last layer computes only the rows whose hidden states are read.
    last_rows: bool = True
    # One matrix for query, key and value, and one for gate and up, instead of five.
    fused_weights: bool = True
    # On a CPU a packed copy of the fused matrices and of the head, see products.py.
    packed_weights: bool = True
    # A block is committed in the forward that first denoises the next one.
    folded_commit: bool = True
    # How forwards run: `eager`, `graph` (captured or compiled per shape), or `auto`.
    runtime: str = 'auto'

    def __post_init__(self):
        if self.runtime not in RUNTIMES:
            raise ValueError(f'runtime: {self.runtime!r} is not one of {", ".join(RUNTIMES)}')


RUNTIMES = ('auto', 'eager', 'graph')
# The reference: everything off.
PLAIN = EngineOptions(
    prefix_reuse=False,
    last_rows=False,
    fused_weights=False,
    packed_weights=False,
    folded_commit=False,
    runtime='eager',
)
