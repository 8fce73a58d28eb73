import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip('panda3d', reason='needs panda3d to render the world')

from wamdiff_ros import cli
from wamdiff_ros.parameters import Parameters
from wamdiff_ros.planning.trajectory import trajectory_from_waypoints
from wamdiff_ros.simulation.closed_loop import drive_route
from wamdiff_ros.simulation.score import RouteScore
from wamdiff_ros.simulation.world import Fault, World
from wamdiff_ros.types import InferenceCounts, Plan, PlanningResult, PlanStatus, StageTimings

ROOT = Path(__file__).parents[2]
SEED = 15  # a short route
FLAWLESS = RouteScore(
    SEED, True, 0, 0, 0, 0, 1.0, 27.0, 0.1, 1.0, 1.0, 1.0, 1.0, 0.0, faults=()
)  # fmt: skip


class Answers:
    """A planner that plans straight on at 4 m/s, at the steps for which `answers` is true."""

    def __init__(self, answers):
        self._answers = answers
        self.asked = []

    def plan(self, observation):
        plan, reason = None, 'answer refused: empty answer'
        if self._answers(len(self.asked)):
            waypoints = np.array([[2.0 * (i + 1), 0.0] for i in range(8)])
            trajectory = trajectory_from_waypoints(waypoints, (4.0, 0.0), 0.1)
            plan, reason = Plan(observation.t0_ns, observation.ego, waypoints, trajectory), ''
        self.asked.append(observation)
        return PlanningResult(
            observation.t0_ns, plan, reason, '', StageTimings(), InferenceCounts()
        )

    def reset(self):
        self.asked = []


def first_steps(planner, count):
    """Drive the first steps of a route and return them."""
    steps = []
    score = drive_route(
        World(SEED), planner, Parameters(), steps.append, lambda: len(steps) >= count
    )
    assert score is None
    return steps


def test_the_planner_sees_what_the_camera_and_the_odometry_say_at_the_same_instant():
    planner = Answers(lambda step: True)
    first_steps(planner, 3)
    stamps = [observation.t0_ns for observation in planner.asked]
    assert np.diff(stamps).tolist() == [100_000_000] * 2
    for observation in planner.asked:
        (frame,) = observation.frames
        assert frame.camera == 'front'
        assert frame.stamp_ns == observation.ego.stamp_ns == observation.t0_ns
        assert frame.rgb.shape == (256, 512, 3)
        assert frame.rgb.std() > 10


def test_without_any_plan_the_vehicle_brakes_and_stands():
    steps = first_steps(Answers(lambda step: False), 60)
    assert {step.publication.status for step in steps} == {PlanStatus.WAITING}
    assert steps[-1].ego.speed_mps == 0.0


def test_a_refused_answer_holds_the_last_plan_and_then_the_fallback_stops():
    steps = first_steps(Answers(lambda step: step < 5), 60)
    statuses = [step.publication.status for step in steps]
    assert statuses[:5] == [PlanStatus.NOMINAL] * 5
    assert statuses[5:15] == [PlanStatus.HELD] * 10  # max_plan_age_s
    assert set(statuses[15:]) == {PlanStatus.FALLBACK_STOP}
    assert steps[-1].ego.speed_mps == 0.0


def test_the_same_seed_and_plans_give_the_same_drive():
    one, other = (first_steps(Answers(lambda step: True), 20) for _ in range(2))
    assert one[-1].ego == other[-1].ego
    assert np.array_equal(one[-1].frame.rgb, other[-1].frame.rgb)


@pytest.mark.slow
def test_the_command_drives_the_expert_and_prints_one_json_object(tmp_path):
    ended = subprocess.run(
        [
            sys.executable, '-m', 'wamdiff_ros.cli', 'drive', '--expert', '--routes', '1',
            '--seed', str(SEED), '--json', '--out', str(tmp_path),
        ],
        cwd=ROOT, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    result = json.loads(ended.stdout)
    assert (result['success_rate'], result['routes']) == (1.0, 1)
    (row,) = result['rows']
    assert (row['seed'], row['success'], row['not_nominal']) == (SEED, True, 0.0)
    assert row['progress'] > 0.95
    assert json.loads((tmp_path / 'drive.json').read_text()) == result
    assert not list(tmp_path.glob('*.mp4'))  # of failures only


def test_a_film_shows_every_step_and_the_faults(tmp_path):
    pytest.importorskip('av', reason='needs PyAV to write the video')
    import av

    from wamdiff_ros.simulation.drive_video import DriveFilm

    film, world = DriveFilm(), World(SEED)
    world.events.append(Fault('red_light', 0.0, 'at 5 m'))
    steps = []
    drive_route(
        world, Answers(lambda step: True), Parameters(),
        lambda step: (steps.append(step), film.add(step)), lambda: len(steps) >= 4,
    )  # fmt: skip
    film.write(tmp_path / 'film.mp4', world, FLAWLESS)
    with av.open(str(tmp_path / 'film.mp4')) as video:
        frames = [frame.to_ndarray(format='rgb24') for frame in video.decode(video=0)]
    assert len(frames) == 4
    red = np.abs(frames[0].astype(int) - [207, 34, 46]).max(axis=2) < 25
    assert red[90:140, :400].sum() > 1000  # the chip of the fault, below the note


@pytest.mark.slow
def test_ctrl_c_ends_the_drive_and_its_workers(tmp_path):
    process = subprocess.Popen(
        [sys.executable, '-m', 'wamdiff_ros.cli', 'drive', '--expert', '--routes', '50'],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    children = Path(f'/proc/{process.pid}/task/{process.pid}/children')
    while process.poll() is None and len(children.read_text().split()) < 2:
        time.sleep(0.05)
    workers = children.read_text().split()
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 130
    assert 'Traceback' not in errors
    assert output == ''
    until_s = time.monotonic() + 60
    while any(Path(f'/proc/{worker}').exists() for worker in workers):
        assert time.monotonic() < until_s
        time.sleep(0.05)


@pytest.mark.parametrize(
    ('arguments', 'code', 'words'),
    [
        (['--model', 'no/such/folder'], 1, 'no/such/folder: no such checkpoint folder'),
        (['--expert', '--video', 'all'], 1, '--video all: name a folder for it with --out'),
        (['--routes', '0'], 2, '0 is not above 0'),
        (['--seed', '-1'], 2, '-1 is negative'),
        (['--expert', '--model', 'models/nano'], 2, 'not allowed with argument'),
    ],
)
def test_a_wrong_call_says_what_is_wrong(arguments, code, words, capsys):
    try:
        ended = cli.main(['drive', *arguments])
    except SystemExit as end:
        ended = end.code
    assert ended == code
    assert words in capsys.readouterr().err
