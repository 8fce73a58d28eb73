"""The command `wamdiff replay`: what it leaves, resumption, failures, exit codes."""

import json
import shutil

import bag_forms
import pytest
from recording import write
from replaying import CAMERA, drive, drive_bag, replace_checkpoint, run

from wamdiff_ros.recordings.bag import bag_topics, read_messages
from wamdiff_ros.recordings.timeline import read_timeline
from wamdiff_ros.replay import fleet
from wamdiff_ros.replay.replay_run import read_bag, read_run

NOT_REPEATED = ('machine.json', 'timings.jsonl')


@pytest.fixture
def loaded(monkeypatch):
    """Replace the checkpoint; return the sessions that were loaded."""
    return replace_checkpoint(monkeypatch)


def contents(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob('*'))
        if path.is_file() and path.name not in NOT_REPEATED
    }


def statuses(out):
    bags = json.loads((out / 'run.json').read_text())['bags']
    return {bag['name']: bag['status'] for bag in bags}


def test_two_runs_leave_the_same_bytes(loaded, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    drive_bag(tmp_path / 'bag', 2.0)
    assert run('bag', '--out', 'first') == run('bag', '--out', 'second') == 0
    first, second = contents(tmp_path / 'first'), contents(tmp_path / 'second')
    assert first == second
    assert {'run.json', 'bag/bag.json', 'bag/ticks.jsonl', 'bag/metrics.json'} <= first.keys()
    assert any(name.endswith('.mcap') for name in first)
    for name in NOT_REPEATED:
        assert list((tmp_path / 'first').rglob(name))


def test_what_it_leaves_can_be_read_and_tells_what_was_run(loaded, tmp_path, capsys):
    drive_bag(tmp_path / 'bag', 4.0)
    out = tmp_path / 'out'
    assert run(tmp_path / 'bag', '--out', out, '--json', '--rate', 5) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed['bags'][0]['ticks'] == {'NOMINAL': 20}
    assert list(read_run(out).bags) == ['bag']
    bag = read_bag(out / 'bag')
    assert len(bag.tick) == 20
    assert bag.info['counters']['front.received'] == 80
    assert list((out / 'bag' / 'thumbnails').glob('*.jpg'))
    assert bag.thumbnail(bag.tick.tolist().index(json.loads(
        (out / 'bag' / 'metrics.json').read_text())['worst'][0])) is not None  # fmt: skip
    parameters = json.loads((out / 'run.json').read_text())['parameters']
    assert (parameters['rate_hz'], parameters['deadline_s']) == (5.0, 0.16)
    machine = json.loads((out / 'machine.json').read_text())
    assert machine['bags'].keys() == {'bag'}


def test_the_output_bag_holds_plans_and_ground_truth(loaded, tmp_path):
    drive_bag(tmp_path / 'bag', 2.0)
    assert run(tmp_path / 'bag', '--out', tmp_path / 'out') == 0
    bag = tmp_path / 'out' / 'bag' / 'bag'
    assert {topic: count for topic, (_, count) in bag_topics(bag).items()} == {
        '/planner/trajectory': 20, '/planner/path': 20, '/planner/status': 20,
        '/planner/scene_description': 2, '/ground_truth/path': 20,
    }  # fmt: skip
    ticks = (tmp_path / 'out' / 'bag' / 'ticks.jsonl').read_text().splitlines()
    truths = [m for *_, m in read_messages(bag, ['/ground_truth/path'])]
    known = [row for row in json.loads(ticks[3])['truth_base_m'] if row]
    assert len(truths[3].poses) == 1 + len(known)
    assert truths[3].header.frame_id == 'odom'


def test_with_the_input_the_output_bag_can_be_looked_at(loaded, tmp_path):
    drive_bag(tmp_path / 'bag', 2.0)
    assert run(tmp_path / 'bag', '--out', tmp_path / 'out', '--with-input') == 0
    timeline = read_timeline(tmp_path / 'out' / 'bag' / 'bag')
    assert (timeline.image_topic, len(timeline.plans)) == (CAMERA, 20)
    assert timeline.ego.at(timeline.plans[5].t0_ns) is not None


# -- many bags ----------------------------------------------------------------------------------


def test_a_bag_that_fails_stops_no_other_and_is_tried_again(loaded, tmp_path, capsys):
    fleet_folder = tmp_path / 'fleet'
    for name in ('a', 'c'):
        drive_bag(fleet_folder / name, 1.0)
    write(fleet_folder / 'b', [e for e in drive(1.0) if e[0] == CAMERA])
    out = tmp_path / 'out'
    assert run(fleet_folder, '--out', out) == 1
    assert statuses(out) == {'a': 'done', 'b': 'failed', 'c': 'done'}
    assert 'error: b:' in (said := capsys.readouterr().err)
    assert 'no nav_msgs/msg/Odometry' in said
    assert [name for name, _ in read_run(out).failed] == ['b']
    done = contents(out / 'a')
    planned = loaded[0].planned

    shutil.rmtree(fleet_folder / 'b')
    drive_bag(fleet_folder / 'b', 1.0)
    assert run(fleet_folder, '--out', out) == 0
    assert statuses(out) == {'a': 'done', 'b': 'done', 'c': 'done'}
    assert '2 of 3 bags are complete' in capsys.readouterr().err
    assert contents(out / 'a') == done
    assert loaded[1].planned == planned // 2

    assert run(fleet_folder, '--out', out) == 0
    assert len(loaded) == 2  # nothing was due


def test_a_run_that_was_interrupted_goes_on_where_it_was(loaded, tmp_path, monkeypatch):
    for name in ('a', 'b'):
        drive_bag(tmp_path / 'bags' / name, 1.0)
    replay_bag = fleet.replay_bag

    def interrupted(session, settings, bag, folder, label):
        if folder.name == 'b':
            session.plan = lambda *_: (_ for _ in ()).throw(KeyboardInterrupt)
        return replay_bag(session, settings, bag, folder, label)

    monkeypatch.setattr(fleet, 'replay_bag', interrupted)
    out = tmp_path / 'out'
    assert run(tmp_path / 'bags', '--out', out) == 130
    assert statuses(out) == {'a': 'done', 'b': 'pending'}
    assert not (out / 'b' / 'metrics.json').exists()
    monkeypatch.setattr(fleet, 'replay_bag', replay_bag)
    assert run(tmp_path / 'bags', '--out', out) == 0
    assert loaded[1].planned == 10
    whole = tmp_path / 'whole'
    assert run(tmp_path / 'bags', '--out', whole) == 0
    assert contents(out) == contents(whole)


def test_results_of_other_settings_are_not_mixed(loaded, tmp_path, capsys):
    drive_bag(tmp_path / 'bag', 1.0)
    assert run(tmp_path / 'bag', '--out', tmp_path / 'out') == 0
    assert run(tmp_path / 'bag', '--out', tmp_path / 'out', '--rate', 5) == 1
    assert 'parameters.rate_hz was 10.0' in capsys.readouterr().err


def test_a_folder_of_somebody_else_is_left_alone(loaded, tmp_path, capsys):
    drive_bag(tmp_path / 'bag', 1.0)
    (tmp_path / 'out' / 'bag').mkdir(parents=True)
    (tmp_path / 'out' / 'bag' / 'holiday.jpg').write_text('precious')
    assert run(tmp_path / 'bag', '--out', tmp_path / 'out') == 1
    assert 'in the way' in capsys.readouterr().err
    assert (tmp_path / 'out' / 'bag' / 'holiday.jpg').read_text() == 'precious'


def test_bags_of_the_same_name_are_told_apart(tmp_path):
    paths = [tmp_path / 'monday' / 'bag', tmp_path / 'tuesday' / 'bag', tmp_path / 'other.mcap']
    names = [job.name for job in fleet.jobs_for(paths, tmp_path)]
    assert names == ['monday__bag', 'tuesday__bag', 'other']


def test_bags_are_found_below_folders_and_each_is_taken_once(tmp_path):
    drive_bag(tmp_path / 'x' / 'deep' / 'b', 0.1)
    a = drive_bag(tmp_path / 'x' / 'a', 0.1)
    assert fleet.find_bags([tmp_path / 'x', a]) == [a, tmp_path / 'x' / 'deep' / 'b']
    (tmp_path / 'none').mkdir()
    with pytest.raises(fleet.BagError, match='holds no bags'):
        fleet.find_bags([tmp_path / 'none'])


# -- options and exit codes ---------------------------------------------------------------------


def test_topics_are_chosen_on_the_command_line(loaded, tmp_path, capsys):
    entries = [('/a', ns, m) if t == CAMERA else ('/o', ns, m) for t, ns, m in drive(1.0)]
    entries += [('/b', ns + 1, m) for t, ns, m in drive(1.0) if t == CAMERA]
    bag = write(tmp_path / 'bag', entries)
    assert run(bag, '--out', tmp_path / 'ambiguous') == 1
    said = capsys.readouterr().err
    assert '--camera TOPIC' in said
    assert '/a (sensor_msgs/msg/CompressedImage, 20 messages), /b' in said
    assert run(bag, '--out', tmp_path / 'chosen', '--camera', '/b') == 0
    remap = ('--remap', '/b:=camera/front/image', '--remap', 'o:=odometry')
    assert run(bag, '--out', tmp_path / 'renamed', *remap) == 0
    info = json.loads((tmp_path / 'renamed' / 'bag' / 'bag.json').read_text())
    assert info['topics'] == {'camera.front': '/b', 'odometry': '/o'}


@pytest.mark.parametrize(
    'wrong', [('--rate', '0'), ('--start', '-1'), ('--remap', 'a'), ('--duration', 'long')]
)
def test_wrong_options_end_with_2(wrong, tmp_path):
    with pytest.raises(SystemExit) as end:
        run('bag', '--out', tmp_path, *wrong)
    assert end.value.code == 2


def test_parameters_that_are_refused_end_with_2(loaded, tmp_path, capsys):
    (tmp_path / 'params.yaml').write_text('/**: {ros__parameters: {rate_hz: 1000.0}}')
    assert run('bag', '--out', tmp_path / 'out', '--params', tmp_path / 'params.yaml') == 2
    assert 'rate_hz: 1000.0 is outside' in capsys.readouterr().err


def test_workers_without_a_local_cluster_end_with_2(tmp_path, capsys):
    assert run('bag', '--out', tmp_path, '--workers', 2) == 2
    assert 'goes with --ray' in capsys.readouterr().err


@pytest.mark.parametrize('content', [None, b'', b'\x89MCAP0\r\n\x01\x00', b'words'])
def test_a_bag_that_is_none_ends_with_1_and_its_name(content, loaded, tmp_path, capsys):
    bag = tmp_path / 'bag.mcap'
    if content is not None:
        bag.write_bytes(content)
    assert run(bag, '--out', tmp_path / 'out') == 1
    assert 'bag.mcap' in capsys.readouterr().err


def test_a_truncated_bag_is_replayed_with_a_note(loaded, tmp_path, capsys):
    drive_bag(tmp_path / 'whole', 2.0)
    bag = bag_forms.write(tmp_path / 'bag', list(read_messages(tmp_path / 'whole')))
    bag_forms.cut(bag, 0.99)
    assert run(bag, '--out', tmp_path / 'out') == 0
    assert 'note:' in (said := capsys.readouterr().out)
    assert 'not finished' in said


def test_a_checkpoint_that_is_none_ends_with_1(tmp_path, capsys):
    drive_bag(tmp_path / 'bag', 0.5)
    assert run(tmp_path / 'bag', '--out', tmp_path / 'out', '--model', tmp_path / 'x') == 1
    assert 'no such checkpoint folder' in capsys.readouterr().err
    (tmp_path / 'x').mkdir()
    assert run(tmp_path / 'bag', '--out', tmp_path / 'out', '--model', tmp_path / 'x') == 1
    assert 'config.json' in capsys.readouterr().err
