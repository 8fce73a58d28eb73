from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wamdiff_ros.parameters import Parameters
from wamdiff_ros.planning.fallback import StopPlan
from wamdiff_ros.planning.publication import PublicationPolicy
from wamdiff_ros.planning.trajectory import trajectory_from_waypoints
from wamdiff_ros.types import EgoState, Plan, PlanStatus

MS = 1_000_000
SECOND = 1_000 * MS


def ego_at(stamp_ns, speed=8.0):
    return EgoState(
        stamp_ns,
        'odom',
        'base_link',
        (8e-9 * stamp_ns, 0.0, 0.0),
        (0.0, 0.0, 0.0, 1.0),
        (speed, 0.0),
        0.0,
        (0.0, 0.0),
    )


def plan_at(t0_ns):
    waypoints = np.arange(1, 9)[:, None] * [4.0, 0.0]
    trajectory = trajectory_from_waypoints(waypoints, (8.0, 0.0), 0.1)
    return Plan(t0_ns, ego_at(t0_ns), waypoints, trajectory)


def policy(**parameters):
    return PublicationPolicy(Parameters.from_mapping(parameters))


def test_waiting_before_the_first_plan():
    found = policy().decide(0, SECOND, None, 'no odometry yet')
    assert (found.status, found.plan, found.reason) == (
        PlanStatus.WAITING,
        None,
        'no odometry yet',
    )


def test_plan_of_this_tick_is_nominal():
    made, plan = policy(), plan_at(10 * SECOND)
    made.accept(plan, 7)
    found = made.decide(7, 10 * SECOND + 80 * MS, None, '')
    assert (found.status, found.reason) == (PlanStatus.NOMINAL, '')
    assert found.plan is plan
    assert found.age_ns == 80 * MS
    assert found.valid_until_ns == 11 * SECOND


def test_plan_of_an_earlier_tick_is_held_with_its_true_age():
    made, plan = policy(), plan_at(10 * SECOND)
    made.accept(plan, 7)
    found = made.decide(8, 10 * SECOND + 180 * MS, None, 'newest frame is old')
    assert (found.status, found.reason) == (PlanStatus.HELD, 'newest frame is old')
    assert found.plan is plan
    assert (found.age_ns, found.valid_until_ns) == (180 * MS, 11 * SECOND)


def test_late_plan_is_held_at_the_next_tick():
    made = policy()
    made.accept(plan_at(10 * SECOND), 7)
    late = plan_at(10 * SECOND + 100 * MS)
    made.accept(late, 8)
    found = made.decide(9, 10 * SECOND + 280 * MS, None, '')
    assert (found.status, found.plan) == (PlanStatus.HELD, late)
    assert found.reason == 'the plan was not ready at the deadline'


def test_rejection_is_the_reason_at_its_own_tick_only():
    made = policy()
    made.accept(plan_at(0), 0)
    made.reject("'x' is not a number", 1)
    assert made.decide(1, 100 * MS, None, 'busy').reason == "'x' is not a number"
    assert made.decide(2, 200 * MS, None, 'busy').reason == 'busy'


def test_rejection_before_the_first_plan_is_the_reason_for_waiting():
    made = policy()
    made.reject('3 numbers, wanted 16', 0)
    found = made.decide(0, SECOND, None, '')
    assert (found.status, found.reason) == (PlanStatus.WAITING, '3 numbers, wanted 16')


def test_older_plan_does_not_replace_a_newer_one():
    made, newer = policy(), plan_at(200 * MS)
    made.accept(newer, 2)
    made.accept(plan_at(100 * MS), 1)
    assert made.decide(2, 280 * MS, None, '').plan is newer


def test_expired_plan_gives_a_stop_from_the_newest_ego_state():
    made = policy()
    made.accept(plan_at(0), 0)
    assert made.decide(10, SECOND, None, 'x').status is PlanStatus.HELD
    ego = ego_at(SECOND + 50 * MS, speed=6.0)
    found = made.decide(11, SECOND + 100 * MS, ego, 'no frame from camera front yet')
    assert found.status is PlanStatus.FALLBACK_STOP
    assert isinstance(found.plan, StopPlan)
    assert found.plan.ego is ego
    assert found.age_ns == 50 * MS
    assert found.valid_until_ns > SECOND + 100 * MS
    assert found.plan.trajectory.speed_mps[0] == 6.0
    assert found.plan.trajectory.acceleration_mps2[0] == -2.5
    assert found.reason == (
        'the last plan is 1.100 s old, limit 1.000 s; no frame from camera front yet'
    )


def test_giving_up_begins_the_stop_at_once_and_for_good():
    made, plan = policy(), plan_at(0)
    made.accept(plan, 0)
    made.give_up('the device is lost')
    ego = ego_at(50 * MS, speed=6.0)
    found = made.decide(0, 80 * MS, ego, '')
    assert (found.status, found.reason) == (PlanStatus.FALLBACK_STOP, 'the device is lost')
    assert (found.plan.ego, found.plan.trajectory.speed_mps[0]) == (ego, 6.0)
    made.accept(plan_at(100 * MS), 1)  # something that still came
    assert made.decide(1, 180 * MS, ego, '').status is PlanStatus.FALLBACK_STOP


def test_giving_up_without_odometry_brakes_from_where_the_plan_is_now():
    made = policy()
    made.accept(plan_at(0), 0)
    made.give_up('the device is lost')
    assert made.decide(3, 380 * MS, None, '').plan.t0_ns == 380 * MS


def test_giving_up_before_the_first_plan_is_the_reason_for_waiting():
    made = policy()
    made.give_up('the device is lost')
    found = made.decide(0, SECOND, None, 'no odometry yet')
    assert (found.status, found.reason) == (PlanStatus.WAITING, 'the device is lost')


def test_expired_plan_is_not_nominal_even_at_its_own_tick():
    made = policy(deadline_s=0.04, max_plan_age_s=0.05)
    made.accept(plan_at(0), 3)
    assert made.decide(3, 60 * MS, None, '').status is PlanStatus.FALLBACK_STOP


@pytest.mark.parametrize('ego', [None, ego_at(800 * MS), ego_at(9 * SECOND)])
def test_without_fresh_odometry_all_ticks_publish_the_same_stop(ego):
    made = policy()
    made.accept(plan_at(0), 0)
    first = made.decide(11, SECOND + 100 * MS, ego, '')
    later = made.decide(21, 2 * SECOND + 100 * MS, ego, '')
    assert first.plan.t0_ns == later.plan.t0_ns == SECOND
    assert np.array_equal(first.plan.trajectory.xy_base_m, later.plan.trajectory.xy_base_m)
    assert (first.age_ns, later.age_ns) == (100 * MS, 1100 * MS)


def test_silent_fallback_publishes_nothing_and_says_so():
    made = policy(fallback='silent')
    made.accept(plan_at(0), 0)
    found = made.decide(11, SECOND + 100 * MS, ego_at(SECOND), 'busy')
    assert (found.status, found.plan) == (PlanStatus.FALLBACK_STOP, None)
    assert 'silent' in found.reason
    assert 'busy' in found.reason


def test_new_plan_ends_the_fallback():
    made = policy()
    made.accept(plan_at(0), 0)
    assert made.decide(20, 2 * SECOND, None, '').status is PlanStatus.FALLBACK_STOP
    made.accept(plan_at(2 * SECOND), 21)
    assert made.decide(21, 2 * SECOND + 80 * MS, None, '').status is PlanStatus.NOMINAL


def test_plan_from_the_future_is_not_followed():
    made = policy()
    made.accept(plan_at(10 * SECOND), 0)
    found = made.decide(1, 9 * SECOND, None, '')
    assert found.status is PlanStatus.FALLBACK_STOP
    assert 'in the future' in found.reason


def test_reset_waits_again_and_takes_any_plan():
    made = policy()
    made.accept(plan_at(10 * SECOND), 0)
    made.reject('old', 1)
    made.reset()
    found = made.decide(1, 10 * SECOND, None, 'the clock jumped')
    assert (found.status, found.reason) == (PlanStatus.WAITING, 'the clock jumped')
    made.accept(plan_at(SECOND), 2)
    assert made.decide(2, SECOND, None, '').status is PlanStatus.NOMINAL


def plan_with(t0_ns, **changes):
    """A plan as `plan_at`, with other waypoints [8, 2] or another state."""
    plan = plan_at(t0_ns)
    waypoints = changes.pop('waypoints', plan.waypoints_base_m)
    trajectory = trajectory_from_waypoints(waypoints, (8.0, 0.0), 0.1)
    return Plan(t0_ns, replace(plan.ego, **changes), waypoints, trajectory)


def far_off(t0_ns):
    """A plan whose third waypoint is 10 m off, as by one wrong digit."""
    return plan_with(t0_ns, waypoints=plan_at(t0_ns).waypoints_base_m + 10.0 * np.eye(8, 2, -2))


def to_the_side(t0_ns, sign=1):
    """A plan that passes every check of its own, and swerves by 1.7 m within a second."""
    time_s = np.arange(1, 9) / 2
    return plan_with(t0_ns, waypoints=np.stack([8 * time_s, sign * 1.7 * time_s**2], axis=1))


def test_plan_that_breaks_a_check_is_rejected_counted_and_the_last_one_held():
    made, plan = policy(), plan_at(0)
    assert made.accept(plan, 0) == ''
    reason = made.accept(far_off(100 * MS), 1)
    assert reason.startswith('plan rejected: acceleration ')
    found = made.decide(1, 180 * MS, None, 'busy')
    assert (found.status, found.plan, found.reason) == (PlanStatus.HELD, plan, reason)
    assert made.rejected == {'acceleration': 1}


def test_rejected_plans_alone_end_in_the_fallback():
    made = policy()
    made.accept(plan_at(0), 0)
    statuses = []
    for tick in range(1, 15):
        made.accept(far_off(tick * 100 * MS), tick)
        statuses.append(made.decide(tick, tick * 100 * MS + 80 * MS, None, '').status)
    assert statuses == [PlanStatus.HELD] * 9 + [PlanStatus.FALLBACK_STOP] * 5


def test_shifted_plan_is_rejected_until_enough_of_them_agree():
    made = policy(shift_patience=3)
    made.accept(plan_at(0), 0)
    reasons = [made.accept(to_the_side(tick * 100 * MS), tick) for tick in (1, 2)]
    assert [reason[:29] for reason in reasons] == ['plan rejected: lateral shift '] * 2
    third = to_the_side(300 * MS)
    assert made.accept(third, 3) == ''
    assert made.decide(3, 380 * MS, None, '').plan is third
    assert made.rejected == {'lateral shift': 2}


def test_shifted_plans_that_contradict_each_other_do_not_add_up():
    made = policy(shift_patience=2)
    made.accept(plan_at(0), 0)
    for tick in range(1, 10):
        assert made.accept(to_the_side(tick * 100 * MS, sign=(-1) ** tick), tick)


@pytest.mark.parametrize('between', [plan_at, far_off])
def test_anything_else_between_shifted_plans_starts_the_count_anew(between):
    made = policy(shift_patience=2)
    made.accept(plan_at(0), 0)
    assert made.accept(to_the_side(100 * MS), 1)
    made.accept(between(200 * MS), 2)
    assert made.accept(to_the_side(300 * MS), 3)
    assert made.accept(to_the_side(400 * MS), 4) == ''


def test_shifted_plan_is_taken_once_the_last_is_older_than_it_may_be():
    for t0_ns, taken in ((SECOND, False), (SECOND + MS, True)):
        made = policy()
        made.accept(plan_at(0), 0)
        assert (made.accept(to_the_side(t0_ns), 10) == '') is taken


def test_reset_forgets_the_plan_that_others_are_shifted_against():
    made = policy()
    made.accept(plan_at(0), 0)
    made.reset()
    assert made.accept(to_the_side(100 * MS), 1) == ''


@given(st.lists(st.sampled_from(['plan', 'late', 'reject', 'nothing']), max_size=40))
def test_every_sequence_keeps_the_rules(events):
    made, plans = policy(max_plan_age_s=0.35), []
    for tick, event in enumerate(events):
        t0_ns = tick * 100 * MS
        now_ns = t0_ns + 80 * MS
        if event == 'plan':
            plans.append(plan_at(t0_ns))
            made.accept(plans[-1], tick)
        elif event == 'reject':
            made.reject('bad answer', tick)
        found = made.decide(tick, now_ns, None, 'busy')
        assert (found.reason == '') == (found.status is PlanStatus.NOMINAL) == (event == 'plan')
        if not plans:
            assert found.status is PlanStatus.WAITING
        elif now_ns - plans[-1].t0_ns > 350 * MS:
            assert found.status is PlanStatus.FALLBACK_STOP
        else:
            assert found.plan is plans[-1]
            assert found.age_ns == now_ns - plans[-1].t0_ns
        if event == 'late':
            plans.append(plan_at(t0_ns))
            made.accept(plans[-1], tick)
