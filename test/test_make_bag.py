"""Recordings without ROS: what is in them, and that replay takes them."""

import json

import cv2
import numpy as np
import pytest
from replaying import FakeSession, settings

from wamdiff_ros.cli import main
from wamdiff_ros.recordings.bag import bag_topics, read_messages
from wamdiff_ros.replay.bag_replay import replay_bag


def counts(bag):
    return {topic: count for topic, (_, count) in bag_topics(bag).items()}


def replayed(bag, folder):
    chosen = settings()
    info = replay_bag(FakeSession(chosen.parameters), chosen, bag, folder)
    return info, [json.loads(line) for line in (folder / 'ticks.jsonl').read_text().splitlines()]


@pytest.fixture
def images(tmp_path):
    """Return a folder of 30 pictures, 0.1 s apart, of a camera that moves ahead at 8 m/s."""
    folder = tmp_path / 'drive'
    folder.mkdir()
    rows = []
    for i in range(30):
        picture = np.full((60, 100), 8 * i, np.uint8)
        cv2.imwrite(str(folder / f'{i:06d}.png'), picture)
        rows.append(f'1 0 0 0 0 1 0 0 0 0 1 {0.8 * i}')
    (folder / 'poses.txt').write_text('\n'.join(rows))
    (folder / 'calib.txt').write_text('P0: 90 0 50 0 0 90 30 0 0 0 1 0\n')
    return folder


def test_images_with_poses_become_a_recording(images, tmp_path, capsys):
    assert main(['bag', '--images', str(images), '--out', str(tmp_path / 'bags')]) == 0
    bag = tmp_path / 'bags' / 'drive'
    assert capsys.readouterr().out.strip() == str(bag)
    assert counts(bag) == {
        '/odometry': 30, '/camera/front/image': 30, '/camera/front/camera_info': 1,
        '/tf_static': 1,
    }  # fmt: skip
    [first, *_] = [m for *_, m in read_messages(bag, ['/camera/front/image'])]
    assert first.data.tobytes() == (images / '000000.png').read_bytes()
    info, ticks = replayed(bag, tmp_path / 'replay')
    assert info['ticks'] == {'NOMINAL': 30}
    assert info['camera']['fx'] == 90.0
    assert ticks[5]['truth_base_m'][0] == pytest.approx([4.0, 0.0, 0.0], abs=1e-6)


def test_only_the_first_seconds_are_recorded_on_request(images, tmp_path):
    arguments = ['bag', '--images', str(images), '--out', str(tmp_path / 'bags')]
    assert main([*arguments, '--seconds', '1']) == 0
    assert counts(tmp_path / 'bags' / 'drive')['/camera/front/image'] == 11


def test_pictures_without_ego_motion_are_refused_with_the_remedy(images, tmp_path, capsys):
    (tmp_path / 'video.mp4').write_bytes(b'')
    assert main(['bag', '--video', str(tmp_path / 'video.mp4'), '--out', str(tmp_path)]) == 1
    assert '--ego' in capsys.readouterr().err
    (images / 'poses.txt').unlink()
    assert main(['bag', '--images', str(images), '--out', str(tmp_path / 'bags')]) == 1
    assert 'poses.txt: no such ego log' in capsys.readouterr().err


def test_a_bag_is_not_overwritten(images, tmp_path, capsys):
    arguments = ['bag', '--images', str(images), '--out', str(tmp_path / 'bags')]
    assert main(arguments) == 0
    assert main(arguments) == 1
    assert 'exists already' in capsys.readouterr().err


def test_a_route_of_the_world_becomes_a_recording_with_its_truth(tmp_path):
    pytest.importorskip('panda3d', reason='needs requirements/simulation.txt')
    arguments = ['bag', '--seed', '3', '--seconds', '1.5', '--out', str(tmp_path)]
    assert main(arguments) == 0
    bag = tmp_path / 'route_000003'
    pictures = counts(bag)['/camera/front/image']
    assert pictures in (15, 16, 17)
    assert counts(bag)['/simulator/truth'] == pictures
    info, ticks = replayed(bag, tmp_path / 'replay')
    assert info['topics']['acceleration'] == '/acceleration'
    assert ticks[-1]['world']['seed'] == 3
    assert ticks[-1]['world']['stamp_ns'] == ticks[-1]['grid_ns']
    # Where the camera sits is known from the recording.
    assert info['camera']['position_base_m'] == [1.6, 0.0, 1.5]
