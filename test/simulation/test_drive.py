import json
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip('panda3d', reason='needs panda3d to render the world')

from wamdiff_ros import cli
from wamdiff_ros.parameters import Parameters
from wamdiff_ros.planning.trajectory import trajectory_from_waypoints
from wamdiff_ros.simulation import closed_loop, drive
from wamdiff_ros.simulation.closed_loop import ExpertPlanner, drive_route
from wamdiff_ros.simulation.drive import to_json, to_text
from wamdiff_ros.simulation.score import RouteScore
from wamdiff_ros.simulation.world import Fault, World
from wamdiff_ros.types import InferenceCounts, Plan, PlanningResult, PlanStatus, StageTimings

ROOT = Path(__file__).parents[2]
SEED = 15  # a short route
FLAWLESS = RouteScore(
    SEED, True, 0, 0, 0, 0, 1.0, 27.0, 0.1, 1.0, 1.0, 1.0, 1.0, 0.0, faults=()
)  # fmt: skip


class Answers:
    """A planner that plans straight on, to 4 m/s, at the steps for which `answers` is true.

    At the steps for which `garbles` is true it is told to be 10 m to the left after 2 s.
    """

    def __init__(self, answers, garbles=lambda step: False):
        self._answers, self._garbles = answers, garbles
        self.asked = []

    def plan(self, observation):
        plan, reason = None, 'answer refused: empty answer'
        if self._answers(len(self.asked)):
            speed_mps = observation.ego.speed_mps
            time_s = np.arange(1, 9) / 2
            ahead_m = speed_mps * time_s + (4.0 - speed_mps) / 8 * time_s**2
            waypoints = ahead_m[:, None] * [1.0, 0.0]
            if self._garbles(len(self.asked)):
                waypoints[3, 1] = 10.0
            trajectory = trajectory_from_waypoints(waypoints, (speed_mps, 0.0), 0.1)
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


def test_a_plan_that_breaks_a_check_is_not_followed():
    steps = first_steps(Answers(lambda step: True, lambda step: 5 <= step < 8), 12)
    statuses = [step.publication.status for step in steps]
    assert statuses == [PlanStatus.NOMINAL] * 5 + [PlanStatus.HELD] * 3 + [PlanStatus.NOMINAL] * 4
    assert all(step.publication.plan is steps[4].publication.plan for step in steps[5:8])
    assert steps[5].publication.reason.startswith('plan rejected: ')


class Blind:
    """Draws nothing, in no time."""

    def __init__(self, scene, cameras):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def render(self, view, camera):
        return np.zeros((256, 512, 3), np.uint8)


@pytest.fixture
def blind(monkeypatch):
    monkeypatch.setattr(closed_loop, 'Renderer', Blind)


def driven_both_ways(planner, **of_world):
    """Return the score of a drive that ends once it is lost, and of one that does not."""
    scores = []
    for to_the_end in (False, True):
        world = World(SEED)
        world.events += of_world.get('events', [])
        scores.append(drive_route(world, planner, Parameters(), to_the_end=to_the_end))
    return scores


def assert_not_better(early, whole):
    assert not early.success
    assert not whole.success
    assert early.faults[0] == whole.faults[0]
    assert early.completion <= whole.completion + 1e-9
    assert early.progress <= whole.progress + 1e-9
    assert early.pdms <= whole.pdms + 1e-9
    assert early.duration_s < whole.duration_s
    assert whole.ended_early == ''


def test_a_drive_off_the_road_ends_two_seconds_later_and_is_worth_no_more(blind):
    early, whole = driven_both_ways(Answers(lambda step: True))  # there is a bend
    assert early.ended_early == 'off_road'
    off_road_s = float(early.faults[0].split(' s: off road')[0])
    assert early.duration_s == pytest.approx(off_road_s + 2.0)
    assert_not_better(early, whole)


def test_a_drive_that_stands_for_long_is_stuck_and_worth_no_more(blind):
    early, whole = driven_both_ways(Answers(lambda step: False))
    assert early.ended_early == 'stuck'
    assert early.faults == (f'{early.duration_s:.1f} s: stuck for 30 s',)
    assert 30.0 <= early.duration_s < 40.0
    assert whole.faults == (f'{whole.duration_s:.1f} s: out of time',)
    assert_not_better(early, replace(whole, faults=early.faults))


def test_a_drive_with_a_collision_ends_and_one_through_a_red_light_goes_on(blind):
    for kind, ends in (('collision', True), ('off_road', True), ('red_light', False)):
        world = World(SEED)
        world.events.append(Fault(kind, 0.0, 'of the test'))
        score = drive_route(world, ExpertPlanner(world, Parameters()), Parameters())
        assert score.ended_early == (kind if ends else '')
        assert score.completed is not ends


def test_the_score_counts_rejected_plans_by_their_check(blind):
    score = drive_route(
        World(SEED), Answers(lambda step: True, lambda step: step in (3, 4)), Parameters()
    )
    assert sum(score.rejected_plans.values()) == 2
    row = to_json([score, score], 'test')
    assert row['rejected_plans'] == {check: 2 * n for check, n in score.rejected_plans.items()}
    assert row['rows'][0]['rejected_plans'] == score.rejected_plans
    assert '4 plans rejected: ' in to_text([score, score])


def test_unchecked_means_that_every_plan_is_followed(blind, monkeypatch):
    jobs = []
    monkeypatch.setattr(drive, '_drive_all', lambda job, *_: jobs.append(job) or [FLAWLESS])
    for options in ([], ['--unchecked']):
        assert cli.main(['drive', '--expert', '--routes', '1', *options]) == 0
    garbled = Answers(lambda step: True, lambda step: step == 3)
    counts = [
        sum(drive_route(World(SEED), garbled, job.parameters).rejected_plans.values())
        for job in jobs
    ]
    assert counts == [1, 0]


def test_a_parameter_file_says_how_the_planner_plans(tmp_path, monkeypatch, capsys):
    jobs = []
    monkeypatch.setattr(drive, '_drive_all', lambda job, *_: jobs.append(job) or [FLAWLESS])
    file = tmp_path / 'planner.yaml'
    file.write_text('/**:\n  ros__parameters:\n    unmasking: static\n    denoising_steps: 6\n')
    assert cli.main(['drive', '--routes', '1', '--params', str(file)]) == 0
    read = jobs[0].parameters
    assert (read.unmasking, read.denoising_steps, read.threads) == ('static', 6, 1)
    file.write_text('/**:\n  ros__parameters:\n    unmasking: all\n')
    assert cli.main(['drive', '--routes', '1', '--params', str(file)]) == 1
    assert "error: unmasking: 'all' is not one of" in capsys.readouterr().err


def test_the_experts_plans_rounded_as_a_model_writes_them_are_not_rejected(blind):
    for seed in (SEED, 28):
        world = World(seed)
        expert = ExpertPlanner(world, Parameters(), decimals=1)
        score = drive_route(world, expert, Parameters())
        assert (score.success, score.rejected_plans) == (True, {})


def test_a_drive_that_is_interrupted_keeps_the_routes_that_were_finished(tmp_path, monkeypatch):
    def drive_one(seed):
        if seed == SEED:
            return FLAWLESS
        until_s = time.monotonic() + 60
        while not (tmp_path / 'drive.json').exists():
            assert time.monotonic() < until_s
            time.sleep(0.01)
        raise KeyboardInterrupt

    @contextmanager
    def one_thread(job, count):
        with ThreadPoolExecutor(1) as executor:
            yield executor

    monkeypatch.setattr(drive, '_workers', one_thread)
    monkeypatch.setattr(drive, '_drive', drive_one)
    arguments = ['drive', '--routes', '3', '--seed', str(SEED), '--out', str(tmp_path)]
    assert cli.main(arguments) == 130
    kept = json.loads((tmp_path / 'drive.json').read_text())
    assert (kept['routes_asked'], kept['routes']) == (3, 1)
    assert [row['seed'] for row in kept['rows']] == [SEED]
    assert [path.name for path in tmp_path.iterdir()] == ['drive.json']


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
