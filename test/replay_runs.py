"""Stand-ins for what `wamdiff replay` leaves, written by hand, for the tests of who reads it."""

import json

import cv2
import numpy as np

from wamdiff_ros.planning.trajectory import trajectory_from_waypoints
from wamdiff_ros.simulation.expert import Expert
from wamdiff_ros.simulation.ground_truth import ground_truth
from wamdiff_ros.simulation.world import World

START_NS = 1_000_000_000_000
STEP_NS = 100_000_000
AFTER_S = np.arange(1, 11) * 0.5


def ego_at(stamp_ns, x, y, heading, speed, yaw_rate=0.0):
    return {
        'stamp_ns': stamp_ns, 'fixed_frame': 'odom', 'position_fixed_m': [x, y, 0.0],
        'orientation_xyzw': [0.0, 0.0, np.sin(heading / 2), np.cos(heading / 2)],
        'heading_rad': heading, 'velocity_base_mps': [speed, 0.0], 'speed_mps': speed,
        'yaw_rate_radps': yaw_rate, 'acceleration_base_mps2': [0.0, 0.0],
    }  # fmt: skip


def planned(number, ego, waypoints_m, truth_m, **more):
    """Return the line of a NOMINAL tick."""
    t0_ns = ego['stamp_ns']
    path = trajectory_from_waypoints(waypoints_m, tuple(ego['velocity_base_mps']), 0.1)
    trajectory = {
        'time_s': path.time_ns * 1e-9, 'x_base_m': path.xy_base_m[:, 0],
        'y_base_m': path.xy_base_m[:, 1], 'heading_base_rad': path.heading_base_rad,
        'speed_mps': path.speed_mps, 'acceleration_mps2': path.acceleration_mps2,
        'heading_rate_radps': path.heading_rate_radps, 'curvature_1pm': path.curvature_1pm,
    }  # fmt: skip
    return {
        'tick': number, 'grid_ns': t0_ns, 'status': 'NOMINAL', 'reason': '',
        'inferred_t0_ns': t0_ns, 't0_ns': t0_ns, 'age_ns': 80_000_000, 'command': 'straight',
        'ego': ego, 'waypoints_base_m': np.asarray(waypoints_m).tolist(),
        'trajectory': {name: values.tolist() for name, values in trajectory.items()},
        'truth_base_m': truth_m, 'answer': '(1.0, 2.0)', 'description': None, 'counts': None,
        'world': None, **more,
    }  # fmt: skip


def failed(number, grid_ns, ego=None, reason='no number', status='WAITING', **more):
    """Return the line of a tick without a plan."""
    return {
        'tick': number, 'grid_ns': grid_ns, 'status': status, 'reason': reason,
        'inferred_t0_ns': grid_ns, 't0_ns': None, 'age_ns': None, 'command': 'straight',
        'ego': ego, 'waypoints_base_m': None, 'trajectory': None, 'truth_base_m': None,
        'answer': 'nonsense', 'description': None, 'counts': None, 'world': None, **more,
    }  # fmt: skip


def straight(count=80, speed=10.0, faster=1.0, left_m=0.0, refused=()):
    """Return ticks of a straight drive; plans go `faster` times as far and end `left_m` aside."""
    ticks = []
    for number in range(count):
        at_ns = START_NS + number * STEP_NS
        ego = ego_at(at_ns, speed * number * 0.1, 0.0, 0.0, speed)
        if number in refused:
            ticks.append(failed(number, at_ns, ego))
            continue
        truth = [
            [speed * after, 0.0, 0.0] if number * 0.1 + after <= (count - 1) * 0.1 + 1e-9 else None
            for after in AFTER_S.tolist()
        ]
        ahead = AFTER_S[:8]
        waypoints = np.stack([speed * faster * ahead, left_m * ahead / 4], axis=1)
        ticks.append(planned(number, ego, waypoints, truth))
    return ticks


def driven(seed, steps=120, planner=None):
    """Return ticks of a drive of the expert through a world; `planner` of it makes the plans."""
    world, expert, ticks = World(seed), Expert(), []
    planner = planner or (lambda world: expert.plan(world).waypoints_base_m)
    states = []
    for number in range(steps):
        at_ns = START_NS + number * STEP_NS
        plan = expert.plan(world)
        state = world.ego_state(at_ns)
        ego = ego_at(
            at_ns, world.ego.x_m, world.ego.y_m, world.ego.heading_rad, world.ego.speed_mps,
            state.yaw_rate_radps,
        )  # fmt: skip
        truth = {'stamp_ns': at_ns, **ground_truth(world, plan)}
        ticks.append(planned(number, ego, planner(world), None, world=truth))
        states.append((world.ego.x_m, world.ego.y_m, world.ego.heading_rad))
        world.step(expert.control(world))
    for number, tick in enumerate(ticks):
        tick['truth_base_m'] = [
            in_base(states[number], states[number + later]) if number + later < steps else None
            for later in range(5, 51, 5)
        ]
    return ticks


def in_base(pose, other):
    x, y, heading = pose
    dx, dy = other[0] - x, other[1] - y
    cos, sin = np.cos(heading), np.sin(heading)
    return [dx * cos + dy * sin, dy * cos - dx * sin, other[2] - heading]


def write_run(path, bags, model='nano', seconds=0.05, notes=(), pictures=()):
    """Write a run of {bag's name: ticks}, a reason in place of ticks for a bag that failed."""
    path.mkdir(parents=True)
    entries = [
        {'name': name, 'path': f'/data/{name}', 'status': 'failed', 'reason': ticks}
        if isinstance(ticks, str)
        else {'name': name, 'path': f'/data/{name}', 'status': 'done', 'reason': ''}
        for name, ticks in bags.items()
    ]
    dump(path / 'run.json', {
        'format': 'wamdiff-replay', 'format_version': 1,
        'model': {'name': model, 'sha256': 'abc'},
        'parameters': {'rate_hz': 10.0, 'deadline_s': 0.08},
        'options': {'start_s': 0.0}, 'versions': {'torch': '2.13.0'}, 'settings': '1234',
        'bags': entries,
    })  # fmt: skip
    dump(path / 'machine.json', {
        'hostname': 'bench', 'platform': 'Linux', 'cpu': 'a processor', 'cpu_count': 2,
        'gpu': None, 'started': '2026-11-30T12:00:00Z', 'ended': '2026-11-30T12:01:00Z',
        'wall_s': 60.0, 'bags': {},
    })  # fmt: skip
    for name, ticks in bags.items():
        if not isinstance(ticks, str):
            write_bag(path / name, ticks, seconds, notes, pictures)
    return path


def write_bag(folder, ticks, seconds=0.05, notes=(), pictures=()):
    folder.mkdir()
    status = [tick['status'] for tick in ticks]
    dump(folder / 'bag.json', {
        'name': folder.name, 'path': f'/data/{folder.name}', 'status': 'done', 'reason': '',
        'settings': '1234', 'topics': {'camera.front': '/camera'}, 'messages': {},
        'counters': {}, 'notes': list(notes), 'start_ns': ticks[0]['grid_ns'],
        'end_ns': ticks[-1]['grid_ns'], 'period_ns': STEP_NS,
        'ticks': {one: status.count(one) for one in status}, 'backend': 'sdpa cpu float32',
        'camera': {
            'width': 512, 'height': 256, 'fx': 256.0, 'fy': 256.0, 'cx': 255.5, 'cy': 127.5,
            'rotation_base': [[0, 0, 1], [-1, 0, 0], [0, -1, 0]],
            'position_base_m': [1.6, 0.0, 1.5],
        },
    })  # fmt: skip
    stages = {'vision': 0.3 * seconds, 'prefill': 0.2 * seconds, 'decode': 0.5 * seconds}
    lines(folder / 'ticks.jsonl', ticks)
    lines(folder / 'timings.jsonl', [
        {'tick': tick['tick'], 'stages_s': stages, 'describe_s': {}} for tick in ticks
    ])  # fmt: skip
    for tick in pictures:
        thumbnails = folder / 'thumbnails'
        thumbnails.mkdir(exist_ok=True)
        picture = np.full((64, 128, 3), 90, np.uint8)
        picture[:28] = 200
        cv2.imwrite(str(thumbnails / f'{tick:06d}.jpg'), picture)


def dump(path, value):
    path.write_text(json.dumps(value), 'utf8')


def lines(path, values):
    path.write_text(''.join(json.dumps(value) + '\n' for value in values), 'utf8')
