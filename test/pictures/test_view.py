import cv2
import numpy as np
import pytest
import recording
from recording import START_NS, trajectory

from wamdiff_ros.cli import main
from wamdiff_ros.pictures.view import figure_at
from wamdiff_ros.planning.figure import COMPACT_CAR
from wamdiff_ros.recordings.timeline import read_timeline
from wamdiff_ros.types import PlanStatus

SPEED_MPS = 8.0
STEP_NS = 100_000_000


def poses(y_per_m=0.0):
    return [(4.0 * i, 4.0 * i * y_per_m, 0.0) for i in range(9)]


def drive(odometry=True):
    """Half a second straight ahead without images: one plan, then the same one held."""
    messages = []
    for step in range(6):
        at_ns = START_NS + step * STEP_NS
        status = recording.NOMINAL if step == 0 else recording.HELD
        plan = trajectory(START_NS, step * STEP_NS, poses(), SPEED_MPS, status)
        messages.append(('/planner/trajectory', at_ns, plan))
        if odometry:
            place = recording.odometry(at_ns, SPEED_MPS * step / 10, 0.0, 0.0, SPEED_MPS)
            messages.append(('/odometry', at_ns, place))
    others = [trajectory(START_NS, 0, poses(y), SPEED_MPS) for y in (0.0, 0.1, -0.1)]
    candidates = recording.message(
        'wamdiff_ros/msg/CandidateTrajectories',
        header=recording.header(START_NS, 'odom'),
        selected_index=0,
        candidates=others,
        scores=np.zeros(0, np.float32),
    )
    return [*messages, ('/planner/candidates', START_NS, candidates)]


def shapes_at(timeline, at_ns):
    return {shape.layer: shape for shape in figure_at(timeline, at_ns, COMPACT_CAR)}


def test_one_picture_per_instant_named_after_its_time(tmp_path, capsys):
    bag = recording.write(tmp_path / 'bag', drive())
    assert main(['view', str(bag), '--out', str(tmp_path / 'out'), '--every', '0.25']) == 0
    names = sorted(path.name for path in (tmp_path / 'out').iterdir())
    assert names == ['00000.00s.png', '00000.25s.png', '00000.50s.png']
    assert '3 pictures in' in capsys.readouterr().out
    pictures = [cv2.imread(str(tmp_path / 'out' / name)) for name in names]
    assert pictures[0].shape == (640, 1360, 3)
    assert (pictures[0] != pictures[2]).any()


def test_the_vehicle_is_drawn_as_large_as_the_parameters_say(tmp_path):
    bag = recording.write(tmp_path / 'bag', drive())
    file = tmp_path / 'truck.yaml'
    file.write_text('/**:\n  ros__parameters:\n    vehicle_length_m: 9.0\n')
    drawn = []
    for options in ([], ['--params', str(file)]):
        out = tmp_path / f'out_{len(options)}'
        assert main(['view', str(bag), '--out', str(out), '--every', '9', *options]) == 0
        drawn.append(cv2.imread(str(out / '00000.00s.png')))
    assert (drawn[0] != drawn[1]).any()


def test_a_plan_that_is_held_moves_towards_the_vehicle_and_loses_its_candidates(tmp_path):
    timeline = read_timeline(recording.write(tmp_path / 'bag', drive()), needs_images=False)
    first = shapes_at(timeline, START_NS)
    held = shapes_at(timeline, START_NS + 5 * STEP_NS)
    assert len(first['candidates'].points_m) == 2 * 16
    assert not len(held['candidates'].points_m)
    moved = held['edges'].points_m[0] - first['edges'].points_m[0]
    assert moved[:2].tolist() == pytest.approx([-SPEED_MPS * 0.5, 0.0])
    assert held['words'].text.startswith(PlanStatus.HELD.name)


def test_without_odometry_a_plan_is_drawn_from_where_it_begins(tmp_path):
    messages = drive(odometry=False)
    turned = [(4.0, 4.0 * i, np.pi / 2) for i in range(9)]  # to the left of where it was
    messages.append(
        ('/planner/trajectory', START_NS + 6 * STEP_NS,
         trajectory(START_NS + 6 * STEP_NS, 0, turned, SPEED_MPS))
    )  # fmt: skip
    timeline = read_timeline(recording.write(tmp_path / 'bag', messages), needs_images=False)
    straight = shapes_at(timeline, START_NS)
    assert len(straight['candidates'].points_m) == 2 * 16
    left = shapes_at(timeline, START_NS + 6 * STEP_NS)
    np.testing.assert_allclose(left['edges'].points_m, straight['edges'].points_m, atol=1e-9)


def test_a_start_behind_the_end_is_refused(tmp_path, capsys):
    bag = recording.write(tmp_path / 'bag', drive())
    assert main(['view', str(bag), '--out', str(tmp_path / 'out'), '--start', '5']) == 1
    assert 'its plans end 0.50 s after the first' in capsys.readouterr().err


def test_a_recording_without_plans_is_refused(tmp_path, capsys):
    messages = [entry for entry in drive() if entry[0] == '/odometry']
    bag = recording.write(tmp_path / 'bag', messages)
    assert main(['view', str(bag), '--out', str(tmp_path / 'out')]) == 1
    assert 'holds no wamdiff_ros/PlannedTrajectory' in capsys.readouterr().err
