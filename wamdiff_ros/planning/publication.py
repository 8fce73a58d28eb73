"""What is published at a tick: the new plan, the last one, a stop, or nothing."""

from dataclasses import dataclass

from ..parameters import Parameters
from ..types import EgoState, Plan, PlanStatus
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
    """Keeps the last valid plan and decides at each tick; for one thread.

    Not responsible for whether a plan is valid, nor for plans that were begun before a reset:
    the caller does not hand those in.
    """

    def __init__(self, parameters: Parameters):
        self._max_age_ns = round(parameters.max_plan_age_s * 1e9)
        self._max_ego_age_ns = round(parameters.max_ego_gap_s * 1e9)
        self._fallback = parameters.fallback
        self._deceleration_mps2 = parameters.fallback_deceleration_mps2
        self._point_interval_s = parameters.point_interval_s
        self._plan: Plan | None = None
        self._plan_tick = -1
        self._rejection = ('', -1)  # reason, tick

    def accept(self, plan: Plan, tick: int) -> None:
        """Take over the plan made for `tick`; one older than the plan held is ignored."""
        if self._plan is None or plan.t0_ns >= self._plan.t0_ns:
            self._plan, self._plan_tick = plan, tick

    def reject(self, reason: str, tick: int) -> None:
        """Note why the inference for `tick` gave no plan."""
        self._rejection = (reason, tick)

    def reset(self) -> None:
        """Forget the plan: WAITING until the next one."""
        self._plan, self._plan_tick = None, -1
        self._rejection = ('', -1)

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
        why = why or 'the plan was not ready at the deadline'
        if plan is None:
            return Publication(PlanStatus.WAITING, None, 0, 0, why)
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
        expired_ns = plan.t0_ns + self._max_age_ns
        stop = stop_trajectory(
            plan, ego, self._deceleration_mps2, self._point_interval_s, expired_ns
        )
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
