"""Observation after observation into one session: what is planned from, and what is a new stream.

The node's inference thread and replay both plan through this. Free of ROS and of torch.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from ..observation.not_ready import NotReady
from ..types import Observation, PlanningResult, SceneDescription, StageTimings


class Session(Protocol):
    """What is needed of a `runtime.session.PlanningSession`."""

    backend: str
    model_name: str

    def plan(  # noqa: D102
        self, observation: Observation, deadline_s: float | None
    ) -> PlanningResult: ...

    def describe(  # noqa: D102
        self, observation: Observation, stop: Callable[[], bool]
    ) -> tuple[SceneDescription | None, StageTimings]: ...

    def reset(self) -> None: ...  # noqa: D102


@dataclass(frozen=True, eq=False)
class StreamOutcome:
    """What came of one tick; `observation` and `result` are None when nothing was inferred."""

    observation: Observation | None
    result: PlanningResult | None
    reason: str  # '' with a valid plan
    cleared: str = ''  # why the KV cache was cleared before this inference


class PlanningStream:
    """Plans from each new observation once; for one thread.

    After a gap of more than `max_gap_ns` in what the sensors saw, or a change of an image's size,
    the KV cache is cleared.
    """

    def __init__(self, session: Session, max_gap_ns: int) -> None:
        self._session = session
        self._max_gap_ns = max_gap_ns
        self._last: Observation | None = None
        self._starved = False  # a tick since then had nothing new to plan from

    def reset(self) -> None:
        """Forget the last observation and the KV cache."""
        self._last = None
        self._session.reset()

    def plan(
        self,
        observe: Callable[[int], Observation],
        grid_ns: int,
        deadline_s: float | None = None,
    ) -> StreamOutcome:
        """Plan from `observe(grid_ns)`, which may raise NotReady.

        `deadline_s` of time.monotonic() is when the plan is needed; None: whenever it is done.
        """
        start_ns = time.monotonic_ns()
        try:
            observation = observe(grid_ns)
        except NotReady as not_ready:
            self._starved = True
            return StreamOutcome(None, None, not_ready.reason)
        last = self._last
        if last is not None and observation.t0_ns <= last.t0_ns:
            self._starved = True
            camera = observation.frames[0].camera
            return StreamOutcome(None, None, f'no frame of camera {camera} since the last plan')
        observed_ns = time.monotonic_ns() - start_ns
        if cleared := self._break_in_stream(last, observation):
            self._session.reset()
        # Only what the next comparison needs would do, but one observation is kept either way.
        self._last, self._starved = observation, False
        result = self._session.plan(observation, deadline_s)
        timings = StageTimings((('image_decode', observed_ns), *result.timings.stages_ns))
        return StreamOutcome(observation, replace(result, timings=timings), result.reason, cleared)

    def _break_in_stream(self, last: Observation | None, now: Observation) -> str:
        """Say why `now` does not continue the stream that the KV cache was made from, or ''."""
        if last is None:
            return ''
        gap_ns = now.t0_ns - last.t0_ns
        # Ticks that were skipped because inference is slow are no gap in what the sensors saw.
        if gap_ns > self._max_gap_ns and self._starved:
            return f'no observation for {gap_ns / 1e9:.2f} s'
        for before, after in zip(last.frames, now.frames, strict=True):
            if before.rgb.shape != after.rgb.shape:
                (height0, width0), (height, width) = before.rgb.shape[:2], after.rgb.shape[:2]
                return f'camera {after.camera} changed from {width0}x{height0} to {width}x{height}'
        return ''
