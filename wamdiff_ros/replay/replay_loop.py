"""The node's planning loop over a recording: every inference is ready at its tick's deadline.

The reference for what is decided when is `ros/planning_loop.py`; the parts are the same.
"""

import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..observation.synchronizer import Synchronizer
from ..parameters import Parameters
from ..planning.publication import Publication, PublicationPolicy
from ..recordings.recording import Recording
from ..runtime.stream import PlanningStream, Session, StreamOutcome
from ..types import Command, EgoState, PlanStatus, SceneDescription, StageTimings
from .feed import Feed


@dataclass(frozen=True, eq=False)
class ReplayedTick:
    """What came of one grid instant."""

    tick: int  # 0, 1, 2, …
    grid_ns: int
    now_ns: int  # of publication
    outcome: StreamOutcome  # of this tick's own inference
    publication: Publication
    reason: str  # '' when NOMINAL
    command: Command
    ego: EgoState | None  # newest one at publication
    description: SceneDescription | None  # made at this tick
    describe_timings: StageTimings
    world: dict[str, Any] | None  # a simulator's ground truth, the newest one


class ReplayLoop:
    """Plans over `recording` from `start_ns` to `end_ns`; the session is reset first.

    `counters` holds what happened, by the names of the node's diagnostics, once the ticks are
    through; `failure` is the traceback of the first inference that raised.
    """

    def __init__(
        self,
        session: Session,
        parameters: Parameters,
        recording: Recording,
        start_ns: int,
        end_ns: int,
    ) -> None:
        self._session = session
        self._parameters = parameters
        self._worlds = recording.worlds
        self._world = 0  # how many of them are stamped up to now
        self._deadline_ns = round(parameters.deadline_s * 1e9)
        # The first picture is seen at the first instant from its stamp on, and so is the last.
        period_ns = parameters.period_ns
        first, last = (-(-time_ns // period_ns) * period_ns for time_ns in (start_ns, end_ns))
        self._instants = range(first, last + 1, period_ns)
        self._synchronizer = Synchronizer(parameters)
        self._stream = PlanningStream(session, round(parameters.max_plan_age_s * 1e9))
        self._policy = PublicationPolicy(parameters)
        self._feed = Feed(recording, self._synchronizer, parameters, self._reset)
        self._cleared = ''  # why the stream was reset, until there is a plan again
        self._describe_from_ns = 0
        self._events: Counter[str] = Counter()
        self.failure = ''

    def __len__(self) -> int:
        return len(self._instants)

    def ticks(self) -> Iterator[ReplayedTick]:
        """Yield every tick, in order; to be gone through once."""
        self._stream.reset()
        for tick, grid_ns in enumerate(self._instants):
            yield self._tick(tick, grid_ns)

    @property
    def counters(self) -> dict[str, int]:
        """Counters by name, of buffers and of the loop."""
        buffers = self._synchronizer.counters()
        counts = {name: value for name, value in buffers.items() if isinstance(value, int)}
        names = ('rejected_answers', 'rejected_plans', 'failed_inferences', 'stream_resets')
        return {**counts, **{name: self._events[name] for name in names}}

    @property
    def undecodable(self) -> list[str]:
        """Why pictures could not be decoded, a sentence for each camera."""
        counters = {name: b.counters() for name, b in self._synchronizer.frames.items()}
        return [
            f'camera {name}: {counted.last_error} ({counted.undecodable} pictures)'
            for name, counted in counters.items()
            if counted.undecodable
        ]

    @property
    def refused(self) -> Counter[str]:
        """Messages that a buffer did not take, by the reason."""
        return self._feed.refused

    def _tick(self, tick: int, grid_ns: int) -> ReplayedTick:
        self._feed.until(grid_ns)
        command = self._synchronizer.command
        outcome = self._plan(grid_ns)
        self._take(outcome, tick)
        description, describe_timings = self._describe(outcome, grid_ns)
        now_ns = grid_ns + self._deadline_ns
        self._feed.until(now_ns)
        ego = self._synchronizer.ego.newest_before(now_ns)
        publication = self._policy.decide(tick, now_ns, ego, '')
        if publication.status is PlanStatus.NOMINAL:
            self._cleared = ''
        reason = publication.reason
        if publication.status is PlanStatus.WAITING and self._cleared:
            reason = f'{reason} (stream reset: {self._cleared})'
        while self._world < len(self._worlds) and self._worlds[self._world][0] <= grid_ns:
            self._world += 1
        world = self._worlds[self._world - 1][1] if self._world else None
        return ReplayedTick(
            tick, grid_ns, now_ns, outcome, publication, reason, command, ego, description,
            describe_timings, world,
        )  # fmt: skip

    def _plan(self, grid_ns: int) -> StreamOutcome:
        try:
            return self._stream.plan(self._synchronizer.observe, grid_ns)
        except Exception as error:  # a failed tick, as in the node; the replay goes on
            self._note_failure()
            return StreamOutcome(None, None, f'inference failed: {type(error).__name__}: {error}')

    def _take(self, outcome: StreamOutcome, tick: int) -> None:
        if outcome.cleared:
            self._note_reset(outcome.cleared)
        if outcome.result is not None and outcome.result.plan is not None:
            if self._policy.accept(outcome.result.plan, tick):
                self._events['rejected_plans'] += 1
        else:
            self._events['rejected_answers'] += outcome.result is not None
            self._policy.reject(outcome.reason, tick)

    def _describe(
        self, outcome: StreamOutcome, grid_ns: int
    ) -> tuple[SceneDescription | None, StageTimings]:
        period_s = self._parameters.description_period_s
        due = period_s > 0 and grid_ns >= self._describe_from_ns
        if not due or outcome.observation is None:
            return None, StageTimings()
        next_ns = grid_ns + round(period_s * 1e9)
        try:
            description, timings = self._session.describe(outcome.observation, lambda: False)
        except Exception:  # a description less, as in the node
            self._note_failure()
            self._describe_from_ns = next_ns
            return None, StageTimings()
        if description is not None:
            self._describe_from_ns = next_ns
        return description, timings

    def _note_failure(self) -> None:
        self._events['failed_inferences'] += 1
        self.failure = self.failure or traceback.format_exc()
        self._stream.reset()  # the cache may hold half a forward

    def _reset(self, reason: str) -> None:
        """Clear buffers, plan and KV cache: the odometry does not go on."""
        self._note_reset(reason)
        self._synchronizer.reset()
        self._policy.reset()
        self._stream.reset()
        self._describe_from_ns = 0

    def _note_reset(self, reason: str) -> None:
        self._events['stream_resets'] += 1
        self._cleared = reason
