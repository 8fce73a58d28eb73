import os
from pathlib import Path

import numpy as np
import pytest

from wamdiff_ros.recordings.sources import (
    SourceError,
    comma_ego,
    csv_ego,
    image_files,
    kitti_ego,
    read_ego,
    straight_ego,
    video_frames,
)

FOOTAGE = Path(__file__).parents[2] / '..' / 'shared' / 'footage'
needs_footage = pytest.mark.skipif(
    not FOOTAGE.exists(), reason='../shared/footage is absent: real driving data is not bundled'
)


def velocities(states):
    return np.array([state.velocity_base_mps for state in states])


def positions(states):
    return np.array([state.position_fixed_m for state in states])


def write_kitti(path, matrices):
    path.write_text('\n'.join(' '.join(map(repr, m.ravel().tolist())) for m in matrices))


HEADER = 't_s,x_m,y_m,yaw_rad\n'


@pytest.mark.parametrize(
    ('name', 'content'),
    [
        ('short_row.csv', f'{HEADER}0,1\n1,2,3,4\n'.encode()),
        ('empty.csv', b''),
        ('header_only.csv', HEADER.encode()),
        ('words.csv', f'{HEADER}a,b,c,d\n1,2,3,4\n'.encode()),
        ('binary.csv', bytes(range(256))),
        ('empty.txt', b''),
        ('binary.txt', bytes(range(256))),
        ('no_rotation.txt', b'0 0 0 0 0 0 0 0 0 0 0 0\n' * 3),
        ('junk.npz', b'junk'),
        ('cut_off.npz', b'PK\x03\x04' + bytes(40)),
    ],
)
@pytest.mark.filterwarnings('ignore:.*(Empty input file|no data|invalid value)')
def test_an_ego_log_that_is_none_is_refused_by_name(name, content, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(SourceError, match=name):
        read_ego(tmp_path / name)


@pytest.mark.parametrize('rows', (0, 2))
def test_an_ecef_log_of_another_shape_is_refused_by_name(rows, tmp_path):
    np.savez(
        tmp_path / 'log.npz',
        frame_times_s=np.arange(float(rows)),
        positions_ecef_m=np.ones(rows),
        orientations_ecef_wxyz=np.ones((rows, 4)),
        velocities_ecef_mps=np.ones((rows, 3)),
    )
    with pytest.raises(SourceError, match=r'log\.npz'):
        read_ego(tmp_path / 'log.npz')


@needs_footage
def test_the_kitti_vehicle_drives_forward_at_about_12_mps():
    states = kitti_ego(FOOTAGE / 'kitti_straight/poses.txt', 10.0)
    assert len(states) == 51
    assert np.all(np.abs(velocities(states)[:, 0] - 12.0) < 0.7)
    assert np.abs(velocities(states)[:, 1]).max() < 0.2
    assert positions(states)[-1][0] == pytest.approx(60.0, abs=2.0)  # 60 m to the front


@needs_footage
def test_the_comma_vehicle_drives_1012_m_forward():
    states = comma_ego(FOOTAGE / 'comma_ego_20hz.npz')
    driven = np.linalg.norm(np.diff(positions(states), axis=0), axis=1).sum()
    assert driven == pytest.approx(1012.0, abs=1.0)
    assert np.abs(velocities(states)[:, 1]).max() < 0.5  # hardly any motion sideways
    with np.load(FOOTAGE / 'comma_ego_20hz.npz') as log:
        times_s = (log['frame_times_s'] - log['frame_times_s'][0]).tolist()
        wheel_mps = np.interp(
            log['frame_times_s'], log['can_speed_t_s'], log['can_speed_mps'][:, 0]
        )
    np.testing.assert_allclose(velocities(states)[:, 0], wheel_mps, atol=0.5)
    assert [state.stamp_ns for state in states] == [round(t * 1e9) for t in times_s]


@needs_footage
@pytest.mark.parametrize(
    ('name', 'count', 'shape'),
    [
        ('highway_960x540_25fps.mp4', 221, (540, 960, 3)),
        ('highway_vehicles_1280x720_25fps.mp4', 38, (720, 1280, 3)),
    ],
)
def test_a_video_gives_all_frames_with_their_times(name, count, shape):
    frames = [(time_ns, bgr.shape) for time_ns, bgr in video_frames(FOOTAGE / name)]
    assert frames == [(i * 40_000_000, shape) for i in range(count)]


def test_a_kitti_camera_that_turns_left_turns_the_vehicle_left(tmp_path):
    # A circle to the left: the camera's y axis points down, so left is a negative angle about it.
    angles = 0.1 * np.arange(30) * 0.2
    matrices = []
    for angle in angles:
        turn = np.array([
            [np.cos(angle), 0, -np.sin(angle)], [0, 1, 0], [np.sin(angle), 0, np.cos(angle)],
        ])  # fmt: skip
        place = 50.0 * np.array([np.cos(angle) - 1, 0, np.sin(angle)])
        matrices.append(np.column_stack([turn, place]))
    write_kitti(tmp_path / 'poses.txt', matrices)
    states = kitti_ego(tmp_path / 'poses.txt', 10.0)
    middle = states[15]
    assert middle.velocity_base_mps == pytest.approx((10.0, 0.0), abs=0.01)
    assert middle.yaw_rate_radps == pytest.approx(0.2)
    assert middle.acceleration_base_mps2 == pytest.approx((0.0, 2.0), abs=0.01)
    assert states[-1].position_fixed_m[1] > 1.0  # y is left


def test_a_csv_log_is_differentiated(tmp_path):
    rows = [f'{0.1 * i},{0.5 * i},0,0' for i in range(5)]
    (tmp_path / 'ego.csv').write_text('\n'.join(['t_s,x_m,y_m,yaw_rad', *rows]))
    states = csv_ego(tmp_path / 'ego.csv')
    assert velocities(states) == pytest.approx(np.tile([5.0, 0.0], (5, 1)))
    assert [state.stamp_ns for state in states] == [i * 10**8 for i in range(5)]


def test_straight_motion_moves_by_its_speed():
    ego = straight_ego(15.0, rate_hz=50.0)
    states = [next(ego) for _ in range(51)]
    assert states[-1].stamp_ns == 10**9
    assert states[-1].position_fixed_m == pytest.approx((15.0, 0.0, 0.0))


def test_images_are_in_the_order_of_their_numbers(tmp_path):
    for name in ('frame10.png', 'frame2.png', 'frame1.png', 'notes.txt'):
        (tmp_path / name).touch()
    assert [path.name for path in image_files(tmp_path)] == [
        'frame1.png', 'frame2.png', 'frame10.png',
    ]  # fmt: skip


@pytest.mark.parametrize(
    ('name', 'text', 'words'),
    [
        ('ego.csv', 't_s,x_m\n0,0\n1,1\n', 'no column y_m'),
        ('ego.csv', 't_s,x_m,y_m,yaw_rad\n0,0,0,0\n', 'holds 1 poses'),
        ('ego.csv', 't_s,x_m,y_m,yaw_rad\n0,0,0,0\n0,1,0,0\n', 'row 1 is not after'),
        ('ego.csv', 't_s,x_m,y_m,yaw_rad\n0,0,0,0\n1,nan,0,0\n', 'not finite'),
        ('poses.txt', '1 2 3\n', 'not rows of 12 numbers'),
        ('ego.json', '{}', "'.json' is not one of"),
    ],
)
def test_a_bad_ego_log_is_refused_with_its_name(tmp_path, name, text, words):
    (tmp_path / name).write_text(text)
    with pytest.raises(SourceError, match=f'{name}.*{words}'):
        read_ego(tmp_path / name)


def test_a_log_with_pickled_objects_is_not_loaded(tmp_path):
    class Trap:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / 'sprung'),)

    np.savez(tmp_path / 'ego.npz', frame_times_s=np.array([Trap()], dtype=object))
    with pytest.raises(SourceError, match=r'ego\.npz'):
        comma_ego(tmp_path / 'ego.npz')
    assert not (tmp_path / 'sprung').exists()


def test_a_file_that_is_no_video_is_named(tmp_path):
    (tmp_path / 'clip.mp4').write_bytes(b'not a video' * 100)
    with pytest.raises(SourceError, match=r'clip\.mp4'):
        list(video_frames(tmp_path / 'clip.mp4'))
