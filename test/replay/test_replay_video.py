"""`wamdiff replay --video`: what is in the film, and that nothing else changes by it."""

import sys
from itertools import pairwise

import bag_forms
import numpy as np
import pytest
from recording import HEIGHT, WIDTH, message
from replaying import CAMERA, ODOMETRY, drive, drive_bag, replace_checkpoint, run

pytest.importorskip('av', reason='needs PyAV to write videos')
from films import at, coloured, frames_of

from wamdiff_ros.pictures.overlay_painter import FAULT_RGB, PANEL_HEIGHT, VIDEO_WIDTH
from wamdiff_ros.pinhole import Pinhole
from wamdiff_ros.recordings.bag import read_messages

LEVEL = Pinhole.level(WIDTH, HEIGHT)
REFUSED = 4  # the plan of this tick


@pytest.fixture
def loaded(monkeypatch):
    """Replace the checkpoint; return the sessions that were loaded."""
    return replace_checkpoint(monkeypatch, refuse=(REFUSED,))


def film(folder):
    return [picture for _, picture in frames_of(folder / 'plan.mp4')]


def shown(picture, x_m, y_m):
    """Return whether the ground at (x, y) is tinted."""
    [(u, v)], _ = LEVEL.project(np.array([[x_m, y_m, 0.0]]))
    return coloured(picture, u, v)


def is_green_near(picture, x_m, y_m):
    """Return whether the line of the driven path passes there: the plan itself is dimmer."""
    [(u, v)], _ = LEVEL.project(np.array([[x_m, y_m, 0.0]]))
    around = [at(picture, u + du, v) for du in np.arange(-1.5, 1.5, 0.25)]
    return any(g - max(r, b) > 75 for r, g, b in around)


def test_each_tick_is_a_frame_with_its_plan_and_what_was_driven(loaded, tmp_path):
    drive_bag(tmp_path / 'bag', 4.0)
    assert run(tmp_path / 'bag', '--out', tmp_path / 'out', '--video') == 0
    frames = frames_of(tmp_path / 'out' / 'bag' / 'plan.mp4')
    assert [round(time_s, 3) for time_s, _ in frames] == [k / 10 for k in range(40)]
    pictures = [picture for _, picture in frames]
    assert pictures[0].shape == (HEIGHT * 4 + PANEL_HEIGHT, VIDEO_WIDTH, 3)
    # The plan goes straight on, the vehicle turned left on a circle of 50 m.
    assert all(shown(picture, 8.0, 0.0) for picture in pictures)
    assert not any(shown(picture, 8.0, -1.3) for picture in pictures)
    aside_m = 50 - np.sqrt(50**2 - 16**2)
    assert all(is_green_near(picture, 16.0, aside_m) for picture in pictures[:6])
    # Three seconds before the end and later, nobody knows what is driven 16 m ahead.
    assert not any(is_green_near(picture, 16.0, aside_m) for picture in pictures[12:])


def test_why_a_tick_has_no_plan_of_its_own_is_in_its_frame(loaded, tmp_path):
    drive_bag(tmp_path / 'bag', 1.0)
    assert run(tmp_path / 'bag', '--out', tmp_path / 'out', '--video') == 0
    red = [
        (np.abs(picture[95:140, :200].astype(int) - FAULT_RGB).max(axis=2) < 25).sum() > 1000
        for picture in film(tmp_path / 'out' / 'bag')
    ]
    assert [tick for tick, is_red in enumerate(red) if is_red] == [REFUSED]


def test_the_results_are_the_same_with_and_without(loaded, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    drive_bag(tmp_path / 'bag', 1.0)
    assert run('bag', '--out', 'plain') == run('bag', '--out', 'film', '--video') == 0
    plain, filmed = (
        {
            str(path.relative_to(out)): path.read_bytes()
            for path in out.rglob('*')
            if path.is_file() and path.name not in ('machine.json', 'timings.jsonl')
        }
        for out in (tmp_path / 'plain', tmp_path / 'film')
    )
    assert filmed.keys() - plain.keys() == {'bag/plan.mp4'}
    assert {name: filmed[name] for name in plain} == plain


def test_a_bag_that_is_complete_gets_its_film_without_being_planned_again(loaded, tmp_path):
    drive_bag(tmp_path / 'bag', 1.0)
    out = tmp_path / 'out'
    assert run(tmp_path / 'bag', '--out', out) == 0
    assert run(tmp_path / 'bag', '--out', out, '--video') == 0
    assert len(loaded) == 1
    assert len(film(out / 'bag')) == 10
    made = (out / 'bag' / 'plan.mp4').stat().st_mtime_ns
    assert run(tmp_path / 'bag', '--out', out, '--video') == 0
    assert (out / 'bag' / 'plan.mp4').stat().st_mtime_ns == made


def test_a_split_bag_is_one_film(loaded, tmp_path):
    drive_bag(tmp_path / 'whole', 1.0)
    bag = bag_forms.split(tmp_path / 'bag', list(read_messages(tmp_path / 'whole')))
    assert run(bag, '--out', tmp_path / 'out', '--video') == 0
    pictures = film(tmp_path / 'out' / 'bag')
    assert len(pictures) == 10
    # Pictures of the recording are of their own grey each: all three files are in it.
    greys = [at(picture, 20, 120).mean() for picture in pictures]
    assert all(later > earlier for earlier, later in pairwise(greys))


def test_a_picture_that_cannot_be_decoded_leaves_the_one_before_it(loaded, tmp_path):
    entries = drive(1.0)
    for place, (topic, sent_ns, picture) in enumerate(entries):
        if topic == CAMERA and 400_000_000 < sent_ns - entries[0][1] <= 700_000_000:
            damaged = message(
                'sensor_msgs/msg/CompressedImage', header=picture.header, format='png',
                data=picture.data[:50],
            )  # fmt: skip
            entries[place] = topic, sent_ns, damaged
    bag = bag_forms.write(
        tmp_path / 'bag', [(t, m.__msgtype__, sent_ns, m) for t, sent_ns, m in entries]
    )
    assert run(bag, '--out', tmp_path / 'out', '--video') == 0
    greys = [at(picture, 20, 120).mean() for picture in film(tmp_path / 'out' / 'bag')]
    assert greys[3] == pytest.approx(greys[5], abs=1)
    assert greys[8] > greys[3] + 5


def test_without_odometry_around_it_a_plan_is_not_placed(loaded, tmp_path):
    entries = drive(2.0)
    start_ns = entries[0][1]
    entries = [
        entry
        for entry in entries
        if entry[0] != ODOMETRY or not 600_000_000 < entry[1] - start_ns < 1_600_000_000
    ]
    bag = bag_forms.write(
        tmp_path / 'bag', [(t, m.__msgtype__, sent_ns, m) for t, sent_ns, m in entries]
    )
    assert run(bag, '--out', tmp_path / 'out', '--video') == 0
    pictures = film(tmp_path / 'out' / 'bag')
    assert shown(pictures[3], 8.0, 0.0)
    assert not shown(pictures[11], 8.0, 0.0)
    assert shown(pictures[18], 8.0, 0.0)


def test_without_pyav_nothing_is_planned(loaded, tmp_path, monkeypatch, capsys):
    drive_bag(tmp_path / 'bag', 0.5)
    monkeypatch.setitem(sys.modules, 'av', None)
    assert run(tmp_path / 'bag', '--out', tmp_path / 'out', '--video') == 1
    assert 'pip install -r requirements/simulation.txt' in capsys.readouterr().err
    assert loaded == []


def test_a_film_that_cannot_be_written_is_told_and_keeps_the_results(loaded, tmp_path, capsys):
    drive_bag(tmp_path / 'bag', 0.5)
    out = tmp_path / 'out'
    assert run(tmp_path / 'bag', '--out', out) == 0
    (out / 'bag' / 'part.plan.mp4').mkdir()
    assert run(tmp_path / 'bag', '--out', out, '--video') == 1
    assert 'error: bag: no video:' in capsys.readouterr().err
    assert (out / 'bag' / 'metrics.json').exists()
