"""What one run of `wamdiff bench` measured, and how far it is from what was aimed for."""

from dataclasses import dataclass

from .cost import Point
from .ladder import EVERYTHING, Rung
from .limits import Limits
from .machine import Machine
from .profile import Operator
from .stages import Stage
from .tick import Tick

# Ratios that the bundled checkpoint and the published shape are to reach on a CPU.
DECODE_TARGETS = {'nano': 15.1, '2b': 2.3}
QUANTISED_TARGET = {'2b': 3.0}
PREFILL_TARGET = 1.4
FLOOR_TARGET = {'2b': 1.5}
TICK_TARGET_MS = {'nano': 50.0}


@dataclass(frozen=True)
class Workload:
    """What was asked of what."""

    model: str
    size: str  # 'nano', '2b', or 'other' for any other checkpoint
    parameters: int
    dtype: str
    block_size: int
    denoising_steps: int
    unmasking: str
    questions: int
    prompt_tokens: float  # mean
    image_tokens: float
    answer_tokens: int  # budget of each answer
    rounds: int


@dataclass(frozen=True)
class Target:
    """A figure to reach; `at_least` says in which direction."""

    name: str
    wanted: float
    at_least: bool
    reached: float

    @property
    def met(self) -> bool:
        """Whether it was reached."""
        return self.reached >= self.wanted if self.at_least else self.reached <= self.wanted


@dataclass(frozen=True)
class Report:
    """Everything; a section that was not asked for is None."""

    machine: Machine
    workload: Workload
    ladder: list[Rung] | None = None
    limits: Limits | None = None
    stages: list[Stage] | None = None
    cost: dict[str, list[Point]] | None = None
    tick: Tick | None = None
    profile: dict[str, list[Operator]] | None = None

    @property
    def top(self) -> Rung | None:
        """The rung that a planner runs on."""
        return next((r for r in self.ladder or () if r.name.endswith(EVERYTHING)), None)

    @property
    def decode_vs_transformers_ar(self) -> float | None:
        """Tokens per second of the decoder, against transformers' `generate`."""
        return self.top.tokens_per_s_vs_transformers if self.top else None

    @property
    def prefill_vs_transformers(self) -> float | None:
        """Vision and prefill together, against transformers'."""
        return self.top.prefill_vs_transformers if self.top else None

    def targets(self) -> list[Target]:
        """Return the targets of this size that were measured."""
        size, found = self.workload.size, []

        def add(name: str, wanted: float | None, reached: float | None, at_least=True) -> None:
            if wanted is not None and reached is not None:
                found.append(Target(name, wanted, at_least, reached))

        add(
            'decode, tokens per second against transformers',
            DECODE_TARGETS.get(size),
            self.decode_vs_transformers_ar,
        )
        add(
            'prefill with vision against transformers',
            PREFILL_TARGET if size in DECODE_TARGETS else None,
            self.prefill_vs_transformers,
        )
        after = self.ladder[self.ladder.index(self.top) + 1 :] if self.top else []
        others = ('compiled', 'attention')
        quantised = [r.tokens_per_s_vs_transformers for r in after if r.turned_on not in others]
        if quantised and None not in quantised:
            add(
                'the same with the fastest quantisation',
                QUANTISED_TARGET.get(size),
                max(quantised),
            )
        for stage in self.stages or ():
            if stage.name == 'block forward':
                add(
                    'block forward, times its compute floor',
                    FLOOR_TARGET.get(size),
                    stage.seconds / stage.compute_floor_s,
                    at_least=False,
                )
        if self.tick is not None:
            add(
                'planning tick beside a simulator, p99 [ms]',
                TICK_TARGET_MS.get(size),
                self.tick.p99_ms,
                at_least=False,
            )
        return found
