import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from recording import sensor_bag

pytest.importorskip('rclpy', reason='needs ROS 2: plays over real DDS into the node')
pytest.importorskip('av', reason='needs PyAV to write the video')

from wamdiff_ros import cli, demo
from wamdiff_ros.recordings.bag import bag_topics, read_messages

pytestmark = [pytest.mark.ros, pytest.mark.slow]

ROOT = Path(__file__).parents[1]
SENSOR_BAG = 'the recording'  # its path is not known before a test runs
TIMEOUT_S = 300  # only a failure takes as long, also on a busy machine
# The command with the planner's network replaced by one that needs no weights.
WITH_FAKE_NETWORK = f"""
import sys
from wamdiff_ros import cli, demo
demo._planner_command = lambda params_file: [
    sys.executable, {str(ROOT / 'test' / 'fake_planner.py')!r}, '--ros-args',
    '--params-file', str(params_file), '-p', 'autostart:=true']
sys.exit(cli.main())
"""


def start_demo(tmp_path, *arguments, fake=None):
    steering = tmp_path / 'steering.json'
    steering.write_text(json.dumps(fake or {}))
    # A checkpoint folder is only looked at for its card here.
    model = tmp_path / 'model'
    model.mkdir(exist_ok=True)
    (model / 'README.md').write_text('# Untrained: a stand-in\n')
    command = [sys.executable, '-c', WITH_FAKE_NETWORK, 'demo', '--out', tmp_path / 'out',
               '--model', model, *arguments]  # fmt: skip
    return subprocess.Popen(
        [str(part) for part in command], cwd=ROOT, text=True,
        env={**os.environ, 'WAMDIFF_FAKE': str(steering)},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip


@pytest.fixture
def call(tmp_path, monkeypatch, capsys):
    """Run the command, which must not get as far as leaving anything, in this process."""
    monkeypatch.chdir(ROOT)
    on_term = signal.getsignal(signal.SIGTERM)

    def call(*arguments):
        try:
            code = cli.main(['demo', '--out', str(tmp_path / 'out'), *arguments])
        except SystemExit as end:
            code = end.code
        assert not (tmp_path / 'out').exists()
        return code, capsys.readouterr().err

    yield call
    signal.signal(signal.SIGTERM, on_term)


def processes_that_mention(text):
    found = []
    for entry in Path('/proc').iterdir():
        if entry.name.isdigit():
            try:
                if text in (entry / 'cmdline').read_text():
                    found.append(entry.name)
            except OSError:
                continue
    return found


def test_the_planner_drives_the_world_and_the_page_says_how_it_went(tmp_path):
    pytest.importorskip('panda3d', reason='needs panda3d to render the world')
    demo = start_demo(tmp_path, '--seed', '3', '--seconds', '2')
    output, _ = demo.communicate(timeout=TIMEOUT_S)
    assert demo.returncode == 0, output
    folder = tmp_path / 'out' / 'run_001'
    counts = {topic: count for topic, (_, count) in bag_topics(folder / 'bag').items()}
    assert counts['/simulator/truth'] >= 5
    assert counts['/planner/trajectory'] >= 5
    (row,) = json.loads((folder / 'drive.json').read_text())['rows']
    assert row['seed'] == 3
    assert 0 < row['completion'] < 0.2
    assert 'route 3: ended at' in output
    assert '<th>route 3</th>' in (folder / 'summary.html').read_text()
    assert (folder / 'plan.mp4').stat().st_size > 10_000
    assert processes_that_mention(str(folder)) == []


def test_a_recording_leaves_a_bag_a_video_and_a_summary(tmp_path):
    demo = start_demo(tmp_path, '--bag', sensor_bag(), '--seconds', '2')
    output, _ = demo.communicate(timeout=TIMEOUT_S)
    assert demo.returncode == 0, output
    assert 'NOTE: Untrained: a stand-in' in output
    folder = tmp_path / 'out' / 'run_001'
    counts = {topic: count for topic, (_, count) in bag_topics(folder / 'bag').items()}
    assert counts['/camera/front/image'] == 41
    assert counts['/odometry'] == 101
    assert counts['/planner/status'] > counts['/planner/trajectory'] >= 1
    assert counts['/planner/scene_description'] >= 1
    last = {topic: message for topic, *_, message in read_messages(folder / 'bag')}
    assert last['/planner/trajectory'].sequence == last['/planner/status'].tick  # no half tick
    import av

    with av.open(str(folder / 'plan.mp4')) as video:
        assert sum(1 for _ in video.decode(video=0)) == 41
    page = (folder / 'summary.html').read_text()
    assert 'Untrained: a stand-in' in page
    assert processes_that_mention(str(folder)) == []


def test_ctrl_c_finishes_the_bag_and_leaves_no_process(tmp_path):
    demo = start_demo(tmp_path, '--bag', sensor_bag())
    folder = tmp_path / 'out' / 'run_001'
    log = folder / 'player.log'
    while demo.poll() is None and not (log.exists() and 'playing' in log.read_text()):
        time.sleep(0.1)
    demo.send_signal(signal.SIGINT)
    output, _ = demo.communicate(timeout=TIMEOUT_S)
    assert demo.returncode == 130, output
    assert 'Traceback' not in output
    assert bag_topics(folder / 'bag')['/planner/status'][1] > 0
    assert processes_that_mention(str(folder)) == []


def test_a_planner_that_cannot_start_is_an_error_that_says_why(tmp_path):
    demo = start_demo(tmp_path, fake={'load_error': 'the weights are made of cheese'})
    output, _ = demo.communicate(timeout=TIMEOUT_S)
    assert demo.returncode == 1
    assert 'error: the planner could not start: the weights are made of cheese' in output
    assert 'Traceback' not in output
    assert processes_that_mention(str(tmp_path / 'out')) == []


@pytest.mark.parametrize(
    ('arguments', 'words'),
    [
        (['--bag', 'no/such/bag'], 'no/such/bag: no such bag'),
        (['--video', 'no/such.mp4'], 'no/such.mp4: no such video'),
        (['--bag', SENSOR_BAG, '--image-topic', '/left'], 'has no sensor_msgs'),
        (['--bag', SENSOR_BAG, '--seed', '1'], '--seed goes without a recording'),
        (['--speed', '8'], '--speed goes with --video or --images'),
        (['--image-topic', '/left'], '--image-topic goes with --bag'),
        (['--images', 'docs/images', '--image-topic', '/left'], '--image-topic goes with --bag'),
        (['--rate-hz', '1000'], 'rate_hz: 1000.0 is outside'),
        (['--params', 'README.nope'], 'README.nope'),
    ],
)
def test_a_wrong_call_says_what_is_wrong_and_leaves_no_folder(call, arguments, words):
    code, errors = call(*(str(sensor_bag()) if a is SENSOR_BAG else a for a in arguments))
    assert code == 1
    assert words in errors


@pytest.mark.parametrize(
    ('arguments', 'words'),
    [
        (['--seconds', '-1'], '--seconds: -1 is not above 0'),
        (['--seconds', 'nan'], '--seconds: nan is not above 0'),
        (['--domain', '233'], '--domain: invalid choice: 233'),
    ],
)
def test_a_number_out_of_range_is_refused_before_anything_starts(call, arguments, words):
    code, errors = call(*arguments)
    assert code == 2
    assert words in errors


def test_images_of_all_cameras_are_dropped_from_the_bag(tmp_path):
    from wamdiff_ros.demo import _drop_images
    from wamdiff_ros.recordings.bag import BagWriter

    types = {
        '/front': 'sensor_msgs/msg/CompressedImage',
        '/left': 'sensor_msgs/msg/Image',
        '/odometry': 'nav_msgs/msg/Odometry',
    }
    with BagWriter(tmp_path / 'bag') as writer:
        for topic, type_name in types.items():
            writer.write(topic, type_name, 1, b'not looked at')
    _drop_images(tmp_path / 'bag')
    assert bag_topics(tmp_path / 'bag') == {'/odometry': ('nav_msgs/msg/Odometry', 1)}


def test_every_run_gets_a_folder_of_its_own(tmp_path):
    from wamdiff_ros.demo import _new_folder

    (tmp_path / 'out' / 'run_001').mkdir(parents=True)
    (tmp_path / 'out' / 'run_001' / 'notes.txt').write_text('mine')
    assert _new_folder(tmp_path / 'out').name == 'run_002'
    assert (tmp_path / 'out' / 'run_001' / 'notes.txt').read_text() == 'mine'


def test_an_interrupt_that_foreign_code_swallows_still_ends_the_demo(monkeypatch):
    monkeypatch.setattr(demo, '_interrupts', [])
    with contextlib.suppress(KeyboardInterrupt):
        demo._interrupt(signal.SIGINT, None)
    with pytest.raises(KeyboardInterrupt):
        demo._end_if_asked()
