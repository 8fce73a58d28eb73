"""The one thread that owns the model: it loads it, plans, describes, resets and drops it.

Free of ROS. Requests come through a mailbox with one slot; outcomes go to the request's own
callables, called in this thread. Knows nothing of deadlines: what is too late is for the
publication to judge, and what will never come for the watchdog.
"""

import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

from ..runtime.device_error import device_is_lost
from ..runtime.stream import PlanningStream, Session
from ..types import Observation, PlanningResult, SceneDescription, StageTimings

# Called with a progress sink and with "was the load cancelled?".
Loader = Callable[[Callable[[str], None], Callable[[], bool]], Session]


@dataclass(frozen=True)
class TickRequest:
    """One tick's inference: what to look at, and where the outcome goes."""

    tick: int  # number of the grid instant
    epoch: int  # for the caller to know outcomes from before a reset
    grid_ns: int
    observe: Callable[[int], Observation]  # at grid_ns, or raises NotReady
    deliver: Callable[['TickOutcome | DescriptionOutcome'], None]  # called in the thread
    plan_until_s: float | None = None  # time.monotonic() at which the plan is needed
    describe: bool = False  # a scene description is due
    describe_until_s: float = 0.0  # time.monotonic() at which a description hands over


@dataclass(frozen=True, eq=False)
class TickOutcome:
    """A plan, or why there is none: `result` is None when nothing was inferred."""

    request: TickRequest
    result: PlanningResult | None
    reason: str  # '' with a valid plan
    elapsed_ns: int  # wall time from the start of the tick's work
    traceback: str = ''  # of an exception, for the log
    cleared: str = ''  # why the KV cache was cleared before this inference


@dataclass(frozen=True, eq=False)
class DescriptionOutcome:
    """What the model says at a tick; `reason` when the attempt failed."""

    request: TickRequest
    description: SceneDescription | None
    timings: StageTimings
    reason: str = ''
    traceback: str = ''


@dataclass(frozen=True, eq=False)
class Work:
    """What the thread is at, for people; another one with every sign of life."""

    doing: str
    is_first: bool = False  # it captures or compiles, which takes its time once


class InferenceThread:
    """Starts loading at once; `loaded` resolves to the session's (backend, model name)."""

    def __init__(self, load: Loader, max_gap_ns: int) -> None:
        self.loaded: Future[tuple[str, str]] = Future()
        self.progress = 'starting'  # what loading is doing, for people
        self.work: Work | None = None  # None while there is nothing to do
        self.failures = 0  # ticks in a row that ended with an exception
        self.last_error = ''  # of the newest exception, in one line
        self.lost = False  # after it, only a new process can compute again
        self._load = load
        self._max_gap_ns = max_gap_ns
        self._changed = threading.Condition()
        self._request: TickRequest | None = None
        self._planning: TickRequest | None = None
        self._reset_due = False
        self._closing = False
        # Daemonic: a load stuck in foreign code must not keep the process alive.
        self._thread = threading.Thread(target=self._run, name='inference', daemon=True)
        self._thread.start()

    def submit(self, request: TickRequest) -> TickRequest | None:
        """Hand over a tick; returns the one that is skipped for it: itself, an older, or none."""
        with self._changed:
            if self._planning is not None or self._closing:
                return request
            skipped, self._request = self._request, request
            self._changed.notify()
            return skipped

    def reset(self) -> None:
        """Clear the KV cache before anything else is inferred; drops a waiting request."""
        with self._changed:
            self._request = None
            self._reset_due = True
            self._changed.notify()

    def is_alive(self) -> bool:
        """Whether there is still somebody to take requests."""
        return self._thread.is_alive()

    def close(self, timeout_s: float) -> bool:
        """Cancel a load, or end after the inference in progress; False if still running then."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    # -- in the thread ------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            session = self._load(self._note_progress, lambda: self._closing)
            self.loaded.set_result((session.backend, session.model_name))
        except BaseException as error:  # whatever it is belongs to the one who waits for the load
            self.loaded.set_exception(error)
            return
        stream = PlanningStream(session, self._max_gap_ns)
        while (request := self._next()) is not None:
            self._infer(session, stream, request)

    def _note_progress(self, text: str) -> None:
        self.progress = text
        if self.work is not None:  # a shape that loading did not know of
            self.work = Work(text, is_first=True)

    def _next(self) -> TickRequest | None:
        with self._changed:
            self._changed.wait_for(lambda: self._request is not None or self._closing)
            if self._closing:
                return None
            self._planning, self._request = self._request, None
            return self._planning

    def _infer(self, session: Session, stream: PlanningStream, request: TickRequest) -> None:
        start_ns = time.monotonic_ns()
        observation, cleared = None, ''
        self.work = Work('planning')
        try:
            if self._reset_due:
                self._reset_due = False
                stream.reset()
            outcome = stream.plan(request.observe, request.grid_ns, request.plan_until_s)
            observation, cleared = outcome.observation, outcome.cleared
            result, reason, trace = outcome.result, outcome.reason, ''
            if result is not None:
                self.failures = 0
        except Exception as error:  # a failed tick, said aloud; the thread goes on
            result, reason = None, f'inference failed: {type(error).__name__}: {error}'
            trace = traceback.format_exc()
            self.failures += 1
            self._note_error(error)
        finally:
            self._planning = self.work = None
        elapsed_ns = time.monotonic_ns() - start_ns
        request.deliver(TickOutcome(request, result, reason, elapsed_ns, trace, cleared))
        if observation is not None and request.describe:
            self._describe(session, request, observation)

    def _describe(self, session: Session, request: TickRequest, observation: Observation) -> None:
        def stop() -> bool:
            waiting = self._request is not None or self._closing or self._reset_due
            return waiting or time.monotonic() >= request.describe_until_s

        if stop():
            reason = 'no time was left for a description'
            request.deliver(DescriptionOutcome(request, None, StageTimings(), reason))
            return
        self.work = Work('describing')
        try:
            description, timings = session.describe(observation, stop)
            outcome = DescriptionOutcome(request, description, timings)
        except Exception as error:  # a description less, said aloud; the thread goes on
            self._note_error(error)
            outcome = DescriptionOutcome(
                request,
                None,
                StageTimings(),
                f'description failed: {type(error).__name__}: {error}',
                traceback.format_exc(),
            )
        finally:
            self.work = None
        request.deliver(outcome)

    def _note_error(self, error: Exception) -> None:
        self._reset_due = True  # the cache may hold half a forward
        self.last_error = f'{type(error).__name__}: {error}'.partition('\n')[0]
        self.lost = self.lost or device_is_lost(error)
