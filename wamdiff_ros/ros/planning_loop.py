"""The fixed grid: each tick asks for an inference, and is published at its deadline regardless.

Everything here runs in the executor's thread; the inference thread only appends outcomes to a
queue that the next publication drains. Grid instants are the multiples of the period on the
node's clock. Messages are numbered without a gap; instants that a starved process slept through
show as a gap in the stamps, and are counted.
"""

import time
from collections import deque
from dataclasses import asdict

from rclpy.clock import ClockChange, JumpThreshold, TimeJump
from rclpy.duration import Duration
from rclpy.node import Node

from ..observation.clock_guard import ClockGuard
from ..observation.synchronizer import Synchronizer
from ..parameters import Parameters
from ..planning.publication import PublicationPolicy
from ..types import PlanningResult, PlanStatus, SceneDescription, StageTimings
from .alarm import Alarm
from .diagnostics import Latencies
from .inference_thread import DescriptionOutcome, InferenceThread, TickOutcome, TickRequest
from .outputs import Counters, Outputs, TickReport
from .tick_tally import TickTally

# Share of the period before the next grid instant at which a description must hand over.
DESCRIBE_MARGIN = 0.1
DELIVERY_MARGIN_S = 0.002  # from a finished plan to its publication
RESET_QUIET_S = 5.0  # a reset for the same reason is not logged again for so long
READ_TOGETHER_NS = 5_000_000  # two clocks read within this are read at one time
STALL_PERIODS = 3  # without a tick for this long, diagnostics say so
BASE_FRAME = 'base_link'  # until odometry has named it
DISABLED = 'planning is disabled, call ~/enable to resume'
BUSY = 'inference is still busy with an earlier tick'
NOT_IN_TIME = 'the plan was not ready at the deadline'


class PlanningLoop:
    """Plans and publishes from construction until `stop`."""

    def __init__(
        self,
        node: Node,
        parameters: Parameters,
        synchronizer: Synchronizer,
        inference: InferenceThread,
        outputs: Outputs,
        enabled: bool,
    ) -> None:
        self._node = node
        self._clock = node.get_clock()
        self._parameters = parameters
        self._synchronizer = synchronizer
        self._inference = inference
        self._outputs = outputs
        self._enabled = enabled
        self._period_ns = parameters.period_ns
        self._deadline_ns = round(parameters.deadline_s * 1e9)
        self.counters = Counters()
        self.latencies = Latencies()
        self._tally, self._told_tally = TickTally(), TickTally()
        self._stopped = False
        self._given_up = ''  # why there will be no plan any more
        self._sequence = 0  # number of the newest message
        self._grid_ns = 0  # instant of the newest tick on this grid
        self._clock_runs = False  # False before the first /clock
        self._pending: TickRequest | None = None  # the tick that waits for its publication
        self._skipped = False  # the pending tick found inference busy
        self._epoch = 0  # outcomes from before the newest reset are not used
        self._tick_steady_s = time.monotonic()
        self._plan_steady_s: float | None = None  # when a plan was last published
        self._policy = PublicationPolicy(parameters)
        self._last_rejection = ''
        self._newest_result: PlanningResult | None = None
        self._cleared = ''  # why the stream was reset, until there is a plan again
        self._resets_said: dict[str, float] = {}  # reason -> steady time of its log line [s]
        self._description: SceneDescription | None = None  # not yet published
        self._describe_timings = StageTimings()
        self._describe_from_ns = 0
        # From the inference thread: (time of the node's clock, outcome).
        self._outcomes: deque[tuple[int, TickOutcome | DescriptionOutcome]] = deque()
        # In this order, so that a deadline that falls on a grid instant is served first.
        self._deadline_alarm = Alarm(node, self._publish)
        self._tick_alarm = Alarm(node, self._on_tick)
        jump_ns = round(parameters.jump_threshold_s * 1e9)
        self._guard = ClockGuard(jump_ns)
        threshold = JumpThreshold(
            min_forward=Duration(nanoseconds=jump_ns + 1),
            min_backward=Duration(nanoseconds=-1),
            on_clock_change=True,
        )
        inference.reset()  # nothing from before this activation
        self._jumps = self._clock.create_jump_callback(threshold, post_callback=self._on_jump)
        self._set_tick_alarm()

    def stop(self) -> None:
        """Stop ticking; what the inference thread still hands over is ignored."""
        self._stopped = True
        self._jumps.unregister()
        self._tick_alarm.destroy()
        self._deadline_alarm.destroy()

    def enable(self, enabled: bool) -> None:
        """Pause or resume planning; a pause drops the plan, the status goes on."""
        if enabled != self._enabled:
            self._enabled = enabled
            self._plan_steady_s = None
            self._forget()

    def give_up(self, reason: str) -> None:
        """Publish the fallback from now on, and ask for no inference any more."""
        self._given_up = reason
        self._policy.give_up(reason)

    def reset(self, reason: str) -> None:
        """Clear buffers, plan and KV cache; ticks and their publication go on."""
        if self._stopped:
            return
        self._note_reset(reason)
        self._synchronizer.reset()
        self._forget()

    def watch_clock(self) -> None:
        """Notice that the clock was set, or has begun to run.

        To be called now and then, on the steady clock.
        """
        if self._clock.ros_time_is_active:
            # A simulated clock that begins near 0 does not jump.
            if not self._clock_runs:
                self._set_tick_alarm()
            return
        steady_ns, now_ns = time.monotonic_ns(), self._now_ns()
        if time.monotonic_ns() - steady_ns > READ_TOGETHER_NS:
            return  # the process was held up between the two; the next check sees what this did
        if jump := self._guard.check(now_ns, steady_ns):
            self._restart(jump)

    def stalled(self) -> str:
        """Say why there have been no ticks for a while, or ''."""
        silent_s = time.monotonic() - self._tick_steady_s
        if silent_s < max(1.0, STALL_PERIODS * self._period_ns / 1e9):
            return ''
        if self._clock.ros_time_is_active:
            return f'simulated time has stood still for {silent_s:.0f} s; is /clock published?'
        return f'no tick for {silent_s:.0f} s'

    def lost(self) -> bool:
        """Whether there was a plan once, and none for longer than a plan lives."""
        if self._plan_steady_s is None:
            return False
        return time.monotonic() - self._plan_steady_s > self._parameters.max_plan_age_s

    def take_tally(self) -> TickTally:
        """Return the ticks since the last call, or those of the last call if there was none."""
        if self._tally.total:
            self._told_tally, self._tally = self._tally, TickTally()
        return self._told_tally

    def describe(self) -> dict[str, str]:
        """Return counters and latencies for diagnostics."""
        counters = {key: str(value) for key, value in asdict(self.counters).items()}
        rejected = (f'{check} {count}' for check, count in self._policy.rejected.most_common())
        return {
            'ticks': str(self._sequence),
            'latency': self.latencies.describe(),
            **counters,
            'rejected_plans_by_check': ', '.join(rejected),
            'last_rejected_plan': self._last_rejection,
        }

    # -- the grid -----------------------------------------------------------------------------

    def _now_ns(self) -> int:
        return self._clock.now().nanoseconds

    def _set_tick_alarm(self) -> None:
        if self._stopped:
            return
        self._tick_alarm.cancel()
        self._grid_ns = 0
        now_ns = self._now_ns()
        begins = now_ns > 0 and not self._clock_runs
        self._clock_runs = now_ns > 0
        if begins:
            # What came before there was a time could not be checked against it.
            self._synchronizer.reset()
        if self._clock_runs:
            self._tick_alarm.set(self._period_ns - now_ns % self._period_ns)

    def _on_jump(self, jump: TimeJump) -> None:
        """Take note; the clock is still calling its timers, so they are touched a moment later."""
        if not self._clock_runs:
            self._node.executor.create_task(self._set_tick_alarm)  # the first /clock
            return
        if jump.clock_change in (ClockChange.ROS_TIME_ACTIVATED, ClockChange.ROS_TIME_DEACTIVATED):
            reason = 'use_sim_time was switched'
        else:
            reason = f'the clock jumped by {jump.delta.nanoseconds / 1e9:+.3f} s'
        self._node.executor.create_task(self._restart, reason)

    def _restart(self, reason: str) -> None:
        """Clear everything, and take up the grid anew: the clock was set."""
        if self._stopped:
            return
        self.reset(reason)
        self._pending = None
        self._deadline_alarm.cancel()
        self._guard.reset()
        self._set_tick_alarm()

    def _on_tick(self) -> None:
        if self._pending is not None:
            self._publish()
        now_ns = self._now_ns()
        grid_ns = now_ns - now_ns % self._period_ns
        self._tick_alarm.set(grid_ns + self._period_ns - now_ns)
        passed = (grid_ns - self._grid_ns) // self._period_ns
        if passed <= 0:
            return  # the clock went back by less than a period: this instant has had its tick
        if self._grid_ns:
            self.counters.late_instants += passed - 1
            self._tally.slept += passed - 1
        self._grid_ns = grid_ns
        self._tick_steady_s = time.monotonic()
        self._pending = self._request(grid_ns)
        self._skipped = False
        if self._enabled and not self._given_up:
            skipped = self._inference.submit(self._pending)
            self._skipped = skipped is self._pending
            self.counters.skipped_ticks += skipped is not None
        self._deadline_alarm.set(grid_ns + self._deadline_ns - now_ns)

    def _request(self, grid_ns: int) -> TickRequest:
        period_s = self._parameters.description_period_s
        due = period_s > 0 and grid_ns >= self._describe_from_ns
        return TickRequest(
            tick=grid_ns // self._period_ns,
            epoch=self._epoch,
            grid_ns=grid_ns,
            observe=self._synchronizer.observe,
            deliver=self._deliver,
            plan_until_s=self._plan_until_s(grid_ns),
            describe=due,
            describe_until_s=self._tick_steady_s + self._period_ns / 1e9 * (1 - DESCRIBE_MARGIN),
        )

    def _plan_until_s(self, grid_ns: int) -> float | None:
        """Return the tick's deadline on the steady clock; none while time is simulated."""
        if self._clock.ros_time_is_active:
            return None
        left_ns = grid_ns + self._deadline_ns - self._now_ns()
        return time.monotonic() + left_ns / 1e9 - DELIVERY_MARGIN_S

    def _deliver(self, outcome: TickOutcome | DescriptionOutcome) -> None:
        """Called in the inference thread."""
        self._outcomes.append((self._now_ns(), outcome))

    # -- publication --------------------------------------------------------------------------

    def _publish(self) -> None:
        """Publish the pending tick with whatever there is."""
        self._deadline_alarm.cancel()
        request, self._pending = self._pending, None
        deadline_ns = request.grid_ns + self._deadline_ns
        ready_ns = self._take_outcomes(request)
        is_late = self._enabled and ready_ns is None
        self.counters.missed_deadlines += is_late and not self._skipped
        now_ns = self._now_ns()
        # Odometry's clock may be a little ahead of ours: a stop begins at a state that has been.
        ego = self._synchronizer.ego.newest_before(now_ns)
        publication = self._policy.decide(request.tick, now_ns, ego, self._why_not())
        if publication.status is PlanStatus.NOMINAL:
            self._cleared = ''
        if publication.status in (PlanStatus.NOMINAL, PlanStatus.HELD):
            self._plan_steady_s = time.monotonic()
        reason = publication.reason
        if publication.status is PlanStatus.WAITING and self._cleared:
            reason = f'{reason} (stream reset: {self._cleared})'
        self._tally.add(publication.status, reason, is_late)
        self._sequence += 1
        timings = self._newest_result.timings if self._newest_result else StageTimings()
        report = TickReport(
            sequence=self._sequence,
            grid_ns=request.grid_ns,
            now_ns=now_ns,
            base_frame=ego.base_frame if ego else BASE_FRAME,
            publication=publication,
            reason=reason,
            deadline_slack_ns=deadline_ns - (now_ns if ready_ns is None else ready_ns),
            result=self._newest_result,
            timings=StageTimings(timings.stages_ns + self._describe_timings.stages_ns),
            description=self._description,
            counters=self.counters,
        )
        self._description = None
        self._outputs.publish(report)

    def _why_not(self) -> str:
        """Return why this tick has no plan of its own, unless its outcome gives the reason."""
        if not self._enabled:
            return DISABLED
        return BUSY if self._skipped else NOT_IN_TIME

    def _take_outcomes(self, request: TickRequest) -> int | None:
        """Take in what inference has handed over; return when this tick's outcome was ready."""
        own_ready_ns = None
        while self._outcomes:
            ready_ns, outcome = self._outcomes.popleft()
            if outcome.traceback:
                self.counters.failed_inferences += 1
                self._node.get_logger().error(outcome.traceback, throttle_duration_sec=5.0)
            if outcome.request.epoch != self._epoch:
                continue
            if isinstance(outcome, DescriptionOutcome):
                self._take_description(outcome)
                continue
            self._take_plan(outcome)
            if outcome.request is request:
                own_ready_ns = ready_ns
        return own_ready_ns

    def _take_plan(self, outcome: TickOutcome) -> None:
        if outcome.cleared:
            self._note_reset(outcome.cleared)
        if outcome.result is not None:
            self.latencies.add(outcome.elapsed_ns)
            self._newest_result = outcome.result
            self._describe_timings = StageTimings()
        if outcome.result is not None and outcome.result.plan is not None:
            if reason := self._policy.accept(outcome.result.plan, outcome.request.tick):
                self.counters.rejected_plans += 1
                self._last_rejection = reason
                self._node.get_logger().warning(reason, throttle_duration_sec=5.0)
        else:
            self.counters.rejected_answers += outcome.result is not None
            self._policy.reject(outcome.reason, outcome.request.tick)

    def _take_description(self, outcome: DescriptionOutcome) -> None:
        self._describe_timings = outcome.timings
        if outcome.description is not None:
            self._description = outcome.description
        else:
            self.counters.descriptions_left_out += 1
        # One that failed has cost the plans their cached prefix; it waits its turn again.
        if outcome.description is not None or outcome.traceback:
            period_ns = round(self._parameters.description_period_s * 1e9)
            self._describe_from_ns = outcome.request.grid_ns + period_ns

    def _forget(self) -> None:
        """Drop plan and KV cache; a pending tick is published without its plan."""
        self._epoch += 1
        self._policy.reset()
        self._newest_result = self._description = None
        self._describe_from_ns = 0
        self._inference.reset()
        self._outputs.clear_markers(self._now_ns())

    def _note_reset(self, reason: str) -> None:
        self.counters.stream_resets += 1
        self._cleared = reason
        # Two odometry sources in different frames reset at every message: say each reason once.
        now_s = time.monotonic()
        said = {r: at_s for r, at_s in self._resets_said.items() if now_s - at_s < RESET_QUIET_S}
        if reason not in said:
            said[reason] = now_s
            self._node.get_logger().warning(f'stream reset: {reason}')
        self._resets_said = said
