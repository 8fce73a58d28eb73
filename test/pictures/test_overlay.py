import json

import numpy as np
import pytest
import recording
from recording import HEIGHT, START_NS, trajectory

pytest.importorskip('av', reason='needs PyAV to write videos')
from films import coloured, frames_of

from wamdiff_ros.pictures.overlay import render_overlay
from wamdiff_ros.pictures.overlay_painter import FAULT_RGB, PANEL_HEIGHT, VIDEO_WIDTH
from wamdiff_ros.recordings.bag import BagError
from wamdiff_ros.recordings.timeline import read_timeline
from wamdiff_ros.types import PlanStatus

SPEED_MPS = 8.0


def straight(start_x):
    return [(start_x + SPEED_MPS * 0.5 * i, 0.0, 0.0) for i in range(9)]


def drive(plans, seconds=0.4):
    """Images at 10 Hz and odometry at 50 Hz of a straight drive along x, with `plans`."""
    steps = range(0, int(seconds * 1e9) + 1, 20_000_000)
    messages = [
        ('/odometry', START_NS + ns, recording.odometry(
            START_NS + ns, SPEED_MPS * ns / 1e9, 0.0, 0.0, SPEED_MPS))
        for ns in steps
    ]  # fmt: skip
    messages += [
        ('/camera/front/image', START_NS + ns, recording.image(START_NS + ns))
        for ns in steps
        if ns % 100_000_000 == 0
    ]
    return messages + [('/planner/trajectory', START_NS + ns, plan) for ns, plan in plans]


def test_the_plan_is_drawn_where_the_camera_sees_the_ground(tmp_path):
    plan = trajectory(START_NS, 0, straight(0.0), SPEED_MPS)
    bag = recording.write(tmp_path / 'bag', drive([(0, plan)], seconds=0.1))
    result = render_overlay(bag, tmp_path / 'plan.mp4', recording.default_camera())
    assert result.frames == 2
    (first_s, picture), (second_s, _) = frames_of(tmp_path / 'plan.mp4')
    assert (first_s, second_s) == (0.0, 0.1)
    assert picture.shape == (HEIGHT * 4 + PANEL_HEIGHT, VIDEO_WIDTH, 3)
    camera = recording.default_camera()
    for ahead_m in (7.0, 10.0, 13.0):
        points = np.array([[ahead_m, y, 0.0] for y in (0.0, 0.7, -0.7, 1.2, -1.2)])
        pixels, _ = camera.project(points)
        inside = [coloured(picture, u, v) for u, v in pixels]
        assert inside == [True, True, True, False, False]


def test_a_plan_stays_where_it_belongs_while_the_vehicle_moves_on(tmp_path):
    # The plan ends 16 m ahead of where it was made; 1 s later that is 8 m ahead.
    poses = [(4.0 * i, 0.0, 0.0) for i in range(5)]
    plan = trajectory(START_NS, 0, poses, SPEED_MPS)
    bag = recording.write(tmp_path / 'bag', drive([(0, plan)], seconds=1.0))
    render_overlay(bag, tmp_path / 'plan.mp4', recording.default_camera())
    frames = [picture for _, picture in frames_of(tmp_path / 'plan.mp4')]
    [(u, v)], _ = recording.default_camera().project(np.array([[12.0, 0.0, 0.0]]))
    assert coloured(frames[0], u, v)
    assert not coloured(frames[10], u, v)
    [(u, v)], _ = recording.default_camera().project(np.array([[7.0, 0.0, 0.0]]))
    assert coloured(frames[10], u, v)


def test_a_plan_in_base_link_is_placed_by_the_pose_at_its_t0(tmp_path):
    in_base = trajectory(START_NS, 0, straight(0.0), SPEED_MPS, frame_id='base_link')
    in_odom = trajectory(START_NS, 0, straight(0.0), SPEED_MPS)
    now_ns = START_NS + 300_000_000
    seen = []
    for name, plan in (('base', in_base), ('odom', in_odom)):
        timeline = read_timeline(recording.write(tmp_path / name, drive([(0, plan)])))
        positions, headings = timeline.plan_in_base(
            timeline.plan_at(now_ns), timeline.ego.at(now_ns)
        )
        seen.append(positions)
        np.testing.assert_allclose(headings, np.tile([1.0, 0.0, 0.0], (9, 1)), atol=1e-9)
    np.testing.assert_allclose(seen[0], seen[1], atol=1e-9)
    assert seen[0][0] == pytest.approx([-SPEED_MPS * 0.3, 0.0, 0.0])


def test_the_plan_in_force_is_the_newest_that_was_published_by_then(tmp_path):
    # Made from the image at 0, published at 80 ms; and one made at 100, published at 180 ms.
    plans = [
        (t_ms * 10**6, trajectory(START_NS + t0_ms * 10**6, 80_000_000, straight(0.0), 1.0, state))
        for t_ms, t0_ms, state in ((80, 0, recording.NOMINAL), (180, 100, recording.HELD))
    ]
    timeline = read_timeline(recording.write(tmp_path / 'bag', drive(plans)))
    assert timeline.plan_at(START_NS + 79_999_999) is None
    assert timeline.plan_at(START_NS + 80_000_000).status is PlanStatus.NOMINAL
    assert timeline.plan_at(START_NS + 179_999_999).status is PlanStatus.NOMINAL
    assert timeline.plan_at(START_NS + 180_000_000).status is PlanStatus.HELD


def test_images_are_shown_as_they_are_without_any_plan(tmp_path):
    bag = recording.write(tmp_path / 'bag', drive([]))
    result = render_overlay(bag, tmp_path / 'plan.mp4')
    assert result.frames == 5
    assert result.still[HEIGHT * 3, 40].tolist() == pytest.approx([90, 90, 90], abs=2)


def test_a_bag_without_images_is_refused(tmp_path):
    messages = [entry for entry in drive([]) if entry[0] == '/odometry']
    bag = recording.write(tmp_path / 'bag', messages)
    with pytest.raises(BagError, match='no camera images'):
        render_overlay(bag, tmp_path / 'plan.mp4')


@pytest.mark.parametrize('ahead', (0.0, -20.0))
def test_a_plan_out_of_the_picture_is_no_error(ahead, tmp_path):
    plan = trajectory(START_NS, 0, [(ahead, 0.0, 0.0)] * 9, 0.0)
    bag = recording.write(tmp_path / 'bag', drive([(0, plan)], seconds=0.1))
    result = render_overlay(bag, tmp_path / 'plan.mp4', recording.default_camera())
    assert result.frames == 2


def truth(**fields):
    told = {'stamp_ns': START_NS, 'command': 'left', 'faults': [], **fields}
    return recording.message('std_msgs/msg/String', data=json.dumps(told))


def test_a_simulators_faults_are_shown_in_red_and_its_world_from_above(tmp_path):
    told = truth(faults=['0.1 s: red light (at 5 m)'])
    messages = [*drive([], seconds=0.1), ('/simulator/truth', START_NS, told)]
    bag = recording.write(tmp_path / 'bag', messages)
    square = np.array([[20.0, 5.0], [20.0, -5.0], [30.0, -5.0], [30.0, 5.0]])
    asked = []

    def shapes_of(record):
        asked.append(record['command'])
        return ((square, (10, 200, 10)),)

    render_overlay(bag, tmp_path / 'plan.mp4', recording.default_camera(), shapes_of=shapes_of)
    (_, picture), *_ = frames_of(tmp_path / 'plan.mp4')
    assert set(asked) == {'left'}
    red = np.abs(picture[50:100, :300].astype(int) - FAULT_RGB).max(axis=2) < 25
    assert red.sum() > 1000
    green = np.abs(picture[:, 1000:].astype(int) - [10, 200, 10]).max(axis=2) < 60
    assert green.sum() > 500


def test_a_truth_that_is_none_is_refused(tmp_path):
    broken = recording.message('std_msgs/msg/String', data='all is well')
    messages = [*drive([], seconds=0.1), ('/simulator/truth', START_NS, broken)]
    bag = recording.write(tmp_path / 'bag', messages)
    with pytest.raises(BagError, match='is no ground truth'):
        render_overlay(bag, tmp_path / 'plan.mp4')
