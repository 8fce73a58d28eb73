"""What the checks let pass and what they catch, on the expert's plans in worlds of its own.

`python test/simulation/test_plan_checks.py` prints the figures of docs/checks.md.
"""

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np

from wamdiff_ros.parameters import Parameters
from wamdiff_ros.planning.checks import LIMITS, broken_check, shifted
from wamdiff_ros.planning.trajectory import trajectory_from_waypoints
from wamdiff_ros.simulation.disturbance import Disturbances
from wamdiff_ros.simulation.expert import Expert
from wamdiff_ros.simulation.world import World
from wamdiff_ros.types import Plan

STEP_NS = 100_000_000
DIGITS = {'sign': 0, 'tens': 1, 'units': 2, 'tenths': 4}  # places in a number such as +12.3


def plans_of(seed, pushed):
    """Return the expert's plans along a route, ten a second, as a model writes them: +12.3."""
    world, expert = World(seed), Expert()
    disturbances, plans = Disturbances(np.random.default_rng(seed)), []
    while not world.finished:
        if pushed:
            disturbances.push(world, expert)
        ego = world.ego_state((len(plans) + 10) * STEP_NS)
        plans.append(plan_of(ego, expert.plan(world).waypoints_base_m.round(1)))
        control = expert.control(world)
        world.step(disturbances.disturbed(world, control) if pushed else control)
    return plans


def plan_of(ego, waypoints):
    trajectory = trajectory_from_waypoints(waypoints, ego.velocity_base_mps, 0.1)
    return Plan(ego.stamp_ns, ego, waypoints, trajectory)


def rejection(plan, last, parameters):
    return broken_check(plan.trajectory, plan.ego, parameters) or shifted(plan, last, parameters)


def corrupted(plan, place, random):
    """Return the plan with one digit or sign of its answer changed; None for a sign of 0.0."""
    index, axis = random.integers(8), random.integers(2)
    letters = list(f'{plan.waypoints_base_m[index, axis] + 0.0:+05.1f}')
    at = DIGITS[place]
    others = '+-' if place == 'sign' else '0123456789'
    letters[at] = str(random.choice([letter for letter in others if letter != letters[at]]))
    waypoints = plan.waypoints_base_m.copy()
    waypoints[index, axis] = float(''.join(letters))
    changed = not np.array_equal(waypoints, plan.waypoints_base_m)
    return plan_of(plan.ego, waypoints) if changed else None


def measure(seeds, pushed, every, random):
    """Return a Counter: plans, rejected ones by check; corruptions, and those caught, by digit.

    And the largest value of each check in every fourth plan, as a dict.
    """
    parameters, found, largest = Parameters(), Counter(), {}
    for seed in seeds:
        for number, (last, plan) in enumerate(pairwise(plans_of(seed, pushed))):
            found['plans'] += 1
            if number % 4 == 0:
                for check, value in values(plan, last):
                    largest[check] = max(largest.get(check, 0.0), value)
            if rejected := rejection(plan, last, parameters):
                found[rejected.check] += 1
            if number % every == 0:
                for place in DIGITS:
                    if (wrong := corrupted(plan, place, random)) is not None:
                        found[f'{place} changed'] += 1
                        found[f'{place} caught'] += rejection(wrong, last, parameters) is not None
    return found, largest


def values(plan, last):
    """Yield (check, value) as the reasons tell them when a limit is next to nothing."""
    for name in LIMITS:
        tight = Parameters(**{**dict.fromkeys(LIMITS, 0.0), name: 1e-9})
        if told := rejection(plan, last, tight):
            yield told.check, float(told.reason.removeprefix(told.check).split()[0])


def test_the_experts_plans_pass_and_wrong_digits_do_not():
    random = np.random.default_rng(0)
    found = measure([101], False, 10, random)[0] + measure([202], True, 10, random)[0]
    checks = [key for key in found if key != 'plans' and key.split()[0] not in DIGITS]
    assert sum(found[check] for check in checks) <= 0.001 * found['plans'], found
    assert found['plans'] > 700
    assert found['tens caught'] == found['tens changed'] > 50
    assert found['units caught'] >= 0.97 * found['units changed']
    assert found['tenths caught'] < found['tenths changed']  # that much is rounding


def test_tighter_limits_would_reject_the_experts_plans():
    """The defaults are no wider than the rounding needs, by a factor of two or three."""
    plans = plans_of(102, pushed=False)
    defaults = Parameters()
    for name in ('max_acceleration_mps2', 'max_lateral_acceleration_mps2', 'max_jerk_mps3',
                 'max_deceleration_mps2'):  # fmt: skip
        tight = replace(defaults, **{name: getattr(defaults, name) / 3})
        assert any(broken_check(plan.trajectory, plan.ego, tight) for plan in plans), name


if __name__ == '__main__':
    for seeds, pushed in ((range(100, 125), False), (range(200, 215), True)):
        found, largest = measure(seeds, pushed, 23, np.random.default_rng(0))
        print('pushed' if pushed else 'calm', dict(sorted(found.items())))
        print({check: round(value, 2) for check, value in largest.items()})
