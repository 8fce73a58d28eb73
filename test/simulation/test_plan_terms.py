import numpy as np
import pytest

from wamdiff_ros.simulation.expert import Expert
from wamdiff_ros.simulation.ground_truth import ground_truth
from wamdiff_ros.simulation.plan_terms import Road, Worlds, plan_terms
from wamdiff_ros.simulation.vehicle import VEHICLE
from wamdiff_ros.simulation.world import World

STEP_NS = 100_000_000
STEPS = 41
TIME_S = np.arange(STEPS) * 0.1


@pytest.fixture(scope='module')
def drives():
    """Ground truths and states of the expert's drives, by seed."""
    return {seed: drive(seed) for seed in (7, 28)}


def drive(seed):
    world, expert, truths, states = World(seed), Expert(), [], []
    plan = expert.plan(world)  # what is told of it is not asked for
    while not world.finished:
        truths.append({'stamp_ns': len(truths) * STEP_NS, **ground_truth(world, plan)})
        states.append((world.ego.x_m, world.ego.y_m, world.ego.heading_rad, world.ego.speed_mps))
        world.step(expert.control(world))
    return truths, np.array(states)


def judged(drives, seed, start, change=lambda states: states):
    """Judge what the expert then drove, changed."""
    truths, states = drives[seed]
    plan = change(states[start : start + STEPS].copy())
    terms, covered = plan_terms(
        truths, np.array([start * STEP_NS]), plan[None, :, :2], plan[None, :, 2], plan[None, :, 3]
    )
    assert covered.all()
    return {name: float(value[0]) for name, value in terms.items()}


def aside(metres):
    """Return a change that moves a plan to the left, over its first second."""

    def change(states):
        left = metres * np.minimum(TIME_S, 1.0)
        states[:, 0] -= left * np.sin(states[:, 2])
        states[:, 1] += left * np.cos(states[:, 2])
        return states

    return change


def test_what_the_expert_drove_breaks_no_rule(drives):
    for seed, (_, states) in drives.items():
        for start in range(0, len(states) - STEPS, 50):
            terms = judged(drives, seed, start)
            assert terms == pytest.approx(dict.fromkeys(terms, 1.0), abs=1e-3), (seed, start)


def test_leaving_the_road_the_lane_and_the_right_side_cost_their_terms(drives):
    _, states = drives[28]
    start = next(
        place for place in range(len(states) - STEPS)
        if states[place : place + STEPS, 3].min() > 6.0
        and np.ptp(states[place : place + STEPS, 2]) < 0.1
    )  # fmt: skip
    slightly = judged(drives, 28, start, aside(-0.8))
    assert (slightly['lane_keeping'], slightly['on_road'], slightly['direction']) == (0, 1, 1)
    wrong = judged(drives, 28, start, aside(3.4))
    assert (wrong['lane_keeping'], wrong['direction'], wrong['on_road']) == (0, 0, 1)
    off = judged(drives, 28, start, aside(-4.0))
    assert off['on_road'] == 0


def test_half_the_way_is_half_the_progress(drives):
    _, states = drives[28]
    start = int(np.argmax(states[: len(states) - STEPS, 3]))

    def slower(plan):
        slow = np.stack([np.interp(TIME_S / 2, TIME_S, column) for column in plan.T], axis=1)
        slow[:, 3] /= 2
        return slow

    steps_m = np.hypot(*np.diff(states[start : start + STEPS, :2], axis=0).T)
    share = steps_m[:20].sum() / steps_m.sum()
    assert judged(drives, 28, start, slower)['progress'] == pytest.approx(share, abs=0.02)


def test_going_on_where_the_expert_stops_breaks_a_rule(drives):
    _, states = drives[7]
    start = int(np.flatnonzero((states[:-STEPS, 3] > 4.0) & (states[STEPS:, 3] < 0.5))[0])
    road, speed = Road(7), states[start, 3]
    s_m, _ = road.along(states[start, :2])

    def going_on(_):
        poses = [road.route.pose(float(s_m + 2 * speed * t)) for t in TIME_S]
        return np.column_stack([poses, np.full(STEPS, 2 * speed)])

    terms = judged(drives, 7, start, going_on)
    assert (terms['lights'], terms['no_collision']) == (0.0, 0.0)  # at red, into somebody
    assert (terms['progress'], terms['on_road']) == (1.0, 1.0)


def test_somebody_ahead_within_a_second_costs_time_to_collision_before_the_collision(drives):
    truths, states = drives[28]
    x, y, heading, _ = states[0]
    plan = np.tile(states[0], (STEPS, 1))
    plan[:, 3] = 0.2
    front = VEHICLE.front_m + 0.15 + 1.0  # its middle; 0.15 m are left
    car = {
        'kind': 'car', 'x_m': x + front * np.cos(heading), 'y_m': y + front * np.sin(heading),
        'heading_rad': heading, 'size_m': [2.0, 2.0, 1.5], 'braking': False,
    }  # fmt: skip
    blocked = [{**truth, 'bodies': [car]} for truth in truths]
    arguments = np.array([0]), plan[None, :, :2], plan[None, :, 2], plan[None, :, 3]
    terms, _ = plan_terms(blocked, *arguments)
    assert (terms['no_collision'][0], terms['time_to_collision'][0]) == (1.0, 0.0)
    behind = {**car, 'x_m': x - 1.0 * np.cos(heading), 'y_m': y - 1.0 * np.sin(heading)}
    terms, _ = plan_terms([{**truth, 'bodies': [behind]} for truth in truths], *arguments)
    assert (terms['no_collision'][0], terms['time_to_collision'][0]) == (1.0, 1.0)


def test_a_plan_that_the_ground_truth_does_not_cover_is_not_judged(drives):
    truths, states = drives[28]
    plan = states[:STEPS]
    arguments = plan[None, :, :2], plan[None, :, 2], plan[None, :, 3]
    terms, covered = plan_terms(truths[:30], np.array([0]), *arguments)
    assert not covered.any()
    assert np.isnan(terms['no_collision']).all()
    mixed = truths[:20] + [{**truth, 'seed': 5} for truth in truths[20:]]
    assert not plan_terms(mixed, np.array([0]), *arguments)[1].any()


def test_points_lie_on_the_route_as_the_world_says():
    world = World(28)
    road, random = Road(28), np.random.default_rng(0)
    for _ in range(200):
        s, left = random.uniform(5, world.route.length_m - 5), random.uniform(-4, 4)
        x, y, _ = world.route.pose(s, left)
        found = road.along(np.array([x, y]))
        assert found == pytest.approx(world.route.project(x, y, s), abs=0.05)


def test_the_nearest_ground_truth_stands_for_an_instant(drives):
    worlds = Worlds(drives[28][0][:3])
    at = worlds.at(np.array([-200, -20, 0, 40, 60, 200, 320]) * 1_000_000)
    assert at.tolist() == [-1, 0, 0, 0, 1, 2, -1]
