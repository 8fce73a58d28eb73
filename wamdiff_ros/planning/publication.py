"""What is published at a tick: the new plan, the last one, a stop, or nothing."""

from collections import Counter
from dataclasses import dataclass

from ..parameters import Parameters
from ..types import EgoState, Plan, PlanStatus
from .checks import broken_check, shifted
from .fallback import StopPlan, stop_trajectory


@dataclass(frozen=True, eq=False)
class Publication:
    """What a tick publishes. Without a `plan` there is no trajectory and the figures are 0."""

    status: PlanStatus
    plan: Plan | StopPlan | None
    age_ns: int  # time of publication minus t0
    valid_until_ns: int
    reason: str  # '' when NOMINAL


class PublicationPolicy:
    """Checks plans, keeps the last valid one and decides at each tick; for one thread.

    `rejected` counts the plans that broke a check, by its name. Not responsible for plans that
    were begun before a reset: the caller does not hand those in.
    """

    def __init__(self, parameters: Parameters):
        self.rejected: Counter[str] = Counter()
        self._parameters = parameters
        self._max_age_ns = round(parameters.max_plan_age_s * 1e9)
        self._max_ego_age_ns = round(parameters.max_ego_gap_s * 1e9)
        self._fallback = parameters.fallback
        self._plan: Plan | None = None
        self._plan_tick = -1
        self._rejection = ('', -1)  # reason, tick
        self._given_up = ''  # why there will be no plan any more
        # The newest plan that was rejected for its shift, and how many in a row agree with it.
        self._contender: tuple[Plan, int] | None = None

    def accept(self, plan: Plan, tick: int) -> str:
        """Take over the plan made for `tick` if it passes the checks; return why it does not.

        A plan older than the one held is ignored. One that is shifted against the one held is
        rejected, until that is older than max_plan_age or `shift_patience` plans in a row agree
        with each other: then the newest of them is taken.
        """
        if self._plan is not None and plan.t0_ns < self._plan.t0_ns:
            return ''
        rejection = broken_check(plan.trajectory, plan.ego, self._parameters)
        if rejection is None and self._plan is not None:
            rejection = shifted(plan, self._plan, self._parameters)
            if rejection is not None and self._agreeing(plan) >= self._parameters.shift_patience:
                rejection = None
        else:
            self._contender = None
        if rejection is None:
            self._plan, self._plan_tick, self._contender = plan, tick, None
            return ''
        self.rejected[rejection.check] += 1
        reason = f'plan rejected: {rejection.reason}'
        self.reject(reason, tick)
        return reason

    def _agreeing(self, plan: Plan) -> int:
        """Return how many shifted plans in a row agree, `plan` included, and remember it."""
        count = 1
        if self._contender is not None:
            before, so_far = self._contender
            if shifted(plan, before, self._parameters) is None:
                count += so_far
        self._contender = plan, count
        return count

    def reject(self, reason: str, tick: int) -> None:
        """Note why there is no new plan for `tick`."""
        self._rejection = (reason, tick)

    def reset(self) -> None:
        """Forget the plan: WAITING until the next one."""
        self._plan, self._plan_tick = None, -1
        self._rejection = ('', -1)
        self._contender = None

    def give_up(self, reason: str) -> None:
        """Let the fallback begin at the next tick, however young the last plan is, and stay."""
        self._given_up = reason

    def decide(
        self, tick: int, now_ns: int, ego: EgoState | None, waiting_reason: str
    ) -> Publication:
        """Return what to publish at `tick`.

        NOMINAL is the plan made for this very tick; otherwise the last plan is HELD with its
        true t0 up to max_plan_age, and then follows the fallback. `ego` is the newest state,
        from which a stop begins; `waiting_reason` says why there is no plan for this tick, if
        no rejection does.
        """
        plan = self._plan
        rejection, rejected_tick = self._rejection
        why = rejection if rejected_tick == tick else waiting_reason
        why = self._given_up or why or 'the plan was not ready at the deadline'
        if plan is None:
            return Publication(PlanStatus.WAITING, None, 0, 0, why)
        if self._given_up:
            return self._stop(plan, now_ns, ego, self._given_up)
        age_ns = now_ns - plan.t0_ns
        if not 0 <= age_ns <= self._max_age_ns:
            return self._stop(plan, now_ns, ego, f'{self._too_old(age_ns)}; {why}')
        valid_until_ns = plan.t0_ns + self._max_age_ns
        if self._plan_tick == tick:
            return Publication(PlanStatus.NOMINAL, plan, age_ns, valid_until_ns, '')
        return Publication(PlanStatus.HELD, plan, age_ns, valid_until_ns, why)

    def _stop(self, plan: Plan, now_ns: int, ego: EgoState | None, reason: str) -> Publication:
        if self._fallback == 'silent':
            reason = f'{reason}; nothing is published (fallback: silent)'
            return Publication(PlanStatus.FALLBACK_STOP, None, 0, 0, reason)
        if ego is not None and not 0 <= now_ns - ego.stamp_ns <= self._max_ego_age_ns:
            ego = None
        # Without odometry every tick publishes the same stop, begun when the plan ran out.
        start_ns = min(plan.t0_ns + self._max_age_ns, now_ns)
        stop = stop_trajectory(plan, ego, self._parameters, start_ns)
        # A stop is to be followed until it is replaced, also one that began long ago.
        valid_until_ns = now_ns + self._max_age_ns
        return Publication(
            PlanStatus.FALLBACK_STOP, stop, now_ns - stop.t0_ns, valid_until_ns, reason
        )

    def _too_old(self, age_ns: int) -> str:
        if age_ns < 0:
            return f'the last plan is {-age_ns * 1e-9:.3f} s in the future'
        limit_s = self._max_age_ns * 1e-9
        return f'the last plan is {age_ns * 1e-9:.3f} s old, limit {limit_s:.3f} s'
