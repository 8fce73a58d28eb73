"""Drive the simulated world, or play a recording, over DDS into a live planner and show it.

Starts the planner node and, in a second process, the simulator with the planner at the wheel, or
a player of your own bag, video or images. Records everything, and leaves in a new folder
  bag/          an mcap recording of all that was published
  plan.mp4      the plan in force, drawn into each camera image, and what the model said
  summary.html  how the drive went, rate, jitter, ages, status and latency on one page
  drive.json    the score of the drive
  *.log, params.yaml
Exit codes: 0 done, 1 it failed (the reason is printed), 2 wrong options, 130 interrupted.
"""

import argparse
import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

from . import option_values
from .child_process import ChildProcess
from .demo_source import CAMERA_INFO_TYPE, DemoError, DemoSource
from .parameter_file import read_parameters, with_rate
from .parameter_values import ParameterError
from .parameters import Parameters
from .ros_domain import OwnDomain
from .share import share_path

START_TIMEOUT_S = 180.0  # loading a large checkpoint from a slow disk
STATUS_TOPIC, TRAJECTORY_TOPIC = '/planner/status', '/planner/trajectory'
DIAGNOSTIC_ERROR = 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `wamdiff demo`."""
    what = parser.add_argument_group('what is shown (default: a route of the driving world)')
    what.add_argument(
        '--seed', type=option_values.whole, metavar='S', help='of the first route (0)'
    )
    what.add_argument(
        '--routes', type=option_values.whole, metavar='N', help='how many routes (1)'
    )
    one = what.add_mutually_exclusive_group()
    one.add_argument('--bag', type=Path, metavar='DIR', help='a rosbag2 recording')
    one.add_argument('--video', type=Path, metavar='FILE', help='a video from a front camera')
    one.add_argument(
        '--images', type=Path, metavar='DIR', help='numbered images, with KITTI poses.txt or --ego'
    )
    what.add_argument('--ego', type=Path, metavar='FILE', help='ego motion for video or images')
    what.add_argument('--speed', type=float, metavar='MPS', help='without it: straight at this')
    what.add_argument('--image-topic', metavar='TOPIC', help='of the bag, where it has several')
    what.add_argument('--odometry-topic', metavar='TOPIC', help='of the bag, likewise')
    what.add_argument(
        '--seconds',
        type=option_values.positive,
        metavar='S',
        help='only the first S seconds, of each route (30 in the world, else all)',
    )
    how = parser.add_argument_group('how it is planned')
    how.add_argument('--model', type=Path, metavar='DIR', help='checkpoint folder')
    how.add_argument('--params', type=Path, metavar='FILE', help='parameter file of the planner')
    how.add_argument('--rate-hz', type=float, metavar='HZ', help='rate of planning')
    out = parser.add_argument_group('what is left')
    out.add_argument(
        '--out', type=Path, default=Path('demo_output'), metavar='DIR',
        help='each run gets a new numbered folder in there (%(default)s)',
    )  # fmt: skip
    out.add_argument(
        '--drop-images', action='store_true', help='leave the camera images out of the final bag'
    )
    out.add_argument(
        '--domain', type=int, choices=range(233), metavar='ID',
        help='ROS domain, 0 to 232 (default: a free one)',
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Run the demo and return its exit code."""
    from .pictures.video import VideoError
    from .recordings.bag import BagError
    from .recordings.sources import SourceError

    _interrupts.clear()
    # A service manager's SIGTERM must clean up as Ctrl-C does.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    folder = None
    try:
        parameters = _parameters(arguments)
        source = DemoSource(arguments, parameters)
        folder = _new_folder(arguments.out)
        return _run(arguments, parameters, source, folder)
    except (DemoError, BagError, SourceError, VideoError, ParameterError, OSError) as error:
        print(f'\nerror: {error}', file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f'\ninterrupted; what there is lies in {folder or arguments.out}', file=sys.stderr)
        return 130


_interrupts: list[int] = []  # signals that asked for the end


def _interrupt(number: int, frame) -> None:
    # Where foreign code is on the stack, or a destructor, the exception is lost; the note is not.
    _interrupts.append(number)
    raise KeyboardInterrupt


def _end_if_asked() -> None:
    if _interrupts:
        raise KeyboardInterrupt


def _run(arguments, parameters: dict[str, Any], source: DemoSource, folder: Path) -> int:
    own = OwnDomain() if arguments.domain is None else None  # until the end of the run
    environment = _environment(arguments.domain if own is None else own.id)
    os.environ.update(environment)  # before ROS reads it, for the recorder in this process
    params_file = _write_parameters(parameters, folder / 'params.yaml')
    print(
        f'Run folder: {folder}   (to watch it live: ROS_DOMAIN_ID={environment["ROS_DOMAIN_ID"]})'
    )
    _live(source, params_file, folder, environment)
    return _evaluate(arguments, parameters, source, folder)


# -- live -------------------------------------------------------------------------------------


def _live(source: DemoSource, params_file: Path, folder: Path, environment) -> None:
    """Run planner and sender, and record them; every way out ends both and the bag."""
    from .ros.qos import LATCHED, RECORDED
    from .ros.recorder import RecorderNode, planner_topics

    topics = planner_topics()
    topics.update({topic: (kind, RECORDED) for topic, kind in source.streams.items()})
    topics.update({topic: (CAMERA_INFO_TYPE, LATCHED) for topic in source.camera_infos})
    with (
        RecorderNode(folder / 'bag', topics) as recorder,
        ChildProcess(
            _planner_command(params_file), folder / 'planner.log', environment
        ) as planner,
    ):
        _wait_until_active(recorder, planner)
        log = folder / f'{source.sender}.log'
        with ChildProcess(source.command(folder), log, environment) as sender:
            _follow(recorder, planner, sender, source)
            if sender.exit_code != 0:
                raise DemoError(
                    f'the {source.sender} ended with exit code {sender.exit_code}:\n'
                    f'{sender.log_tail()}'
                )
        recorder.spin_for(0.3)
        code = planner.end()
        if code != 0:
            raise DemoError(f'the planner ended with exit code {code}:\n{planner.log_tail()}')


def _wait_until_active(recorder, planner: ChildProcess) -> None:
    from tqdm import tqdm

    started = time.monotonic()
    counts = recorder.recorder.counts
    with tqdm(desc='starting the planner', bar_format='{desc} {elapsed}', disable=None) as bar:
        while not counts[STATUS_TOPIC]:
            recorder.spin_for(0.1)
            _end_if_asked()
            bar.update(0)
            if planner.exit_code is not None:
                raise DemoError(
                    f'the planner ended with exit code {planner.exit_code} while starting:\n'
                    f'{planner.log_tail()}'
                )
            if reason := _configuring_failed(recorder.recorder.newest.get('/diagnostics')):
                raise DemoError(f'the planner could not start: {reason} (log: {planner.log})')
            if time.monotonic() - started > START_TIMEOUT_S:
                raise DemoError(
                    f'no message came from the planner within {START_TIMEOUT_S:.0f} s:\n'
                    f'{planner.log_tail()}'
                )


def _follow(recorder, planner: ChildProcess, sender: ChildProcess, source: DemoSource) -> None:
    """Record until the sender has ended, with a progress bar."""
    from tqdm import tqdm

    counts = recorder.recorder.counts
    with tqdm(total=source.frames, desc=source.doing, unit='frame', disable=None) as bar:
        while sender.exit_code is None:
            recorder.spin_for(0.1)
            _end_if_asked()
            bar.update(counts[source.image_topic] - bar.n)
            bar.set_postfix_str(f'{counts[TRAJECTORY_TOPIC]} trajectories', refresh=False)
            if planner.exit_code is not None:
                raise DemoError(
                    f'the planner ended with exit code {planner.exit_code} while planning:\n'
                    f'{planner.log_tail()}'
                )


def _configuring_failed(diagnostics: bytes | None) -> str:
    """Return why the planner could not configure, '' when nothing says so."""
    if diagnostics is None:
        return ''
    from .recordings.bag import typestore

    array = typestore().deserialize_cdr(diagnostics, 'diagnostic_msgs/msg/DiagnosticArray')
    errors = [status.message for status in array.status if status.level == DIAGNOSTIC_ERROR]
    return '; '.join(errors)


def _planner_command(params_file: Path) -> list[str]:
    """Return the command of the node: by the launch file where ROS has it, or else directly."""
    prefixes = os.environ.get('AMENT_PREFIX_PATH', '').split(':')
    installed = [p for p in prefixes if p and Path(p, 'lib/wamdiff_ros/planner_node').exists()]
    if shutil.which('ros2') and installed:
        launch_file = Path(installed[0], 'share/wamdiff_ros/launch/planner.launch.py')
        return ['ros2', 'launch', str(launch_file), f'params_file:={params_file}']
    return [
        sys.executable, '-m', 'wamdiff_ros.ros.planner_node', '--ros-args',
        '--params-file', str(params_file), '-p', 'autostart:=true',
    ]  # fmt: skip


# -- afterwards -------------------------------------------------------------------------------


def _evaluate(arguments, parameters, source: DemoSource, folder: Path) -> int:
    from .evaluation.summary import model_note, summarise, to_text
    from .evaluation.summary_page import to_html
    from .pictures.overlay import render_overlay

    note = model_note(
        Path(parameters.get('model_dir') or share_path('models', 'nano')).expanduser()
    )
    summary = summarise(folder / 'bag', note)
    overlay = render_overlay(
        folder / 'bag', folder / 'plan.mp4', source.camera(), source.image_topic, note[:110],
        source.shapes_of,
    )  # fmt: skip
    drive = _drive(folder)
    (folder / 'summary.html').write_text(to_html(summary, overlay.still, drive), 'utf8')
    if arguments.drop_images:
        _drop_images(folder / 'bag')
    print(f'\n{to_text(summary)}\n')
    for name, value in drive:
        print(f'{name}: {value}')
    for name in ('plan.mp4', 'summary.html', 'bag'):
        print(f'{folder / name}')
    if not summary.ages_ms:
        reasons = '; '.join(reason for reason, _ in summary.reasons) or 'it gave none'
        raise DemoError(f'the planner published no trajectory; its reasons: {reasons}')
    return 0


def _drive(folder: Path) -> list[tuple[str, str]]:
    """Return how the drive went, in (name, value); nothing after a recording."""
    if not (folder / 'drive.json').exists():
        return []
    drive = json.loads((folder / 'drive.json').read_text('utf8'))
    lines = []
    for row in drive['rows']:
        way = 'completed' if row['completed'] else f'ended at {row["completion"]:.0%}'
        faults = '; '.join(row['faults']) or 'no faults'
        words = (
            f'{way} after {row["duration_s"]:.0f} s, {faults}; '
            f"{row['lane_deviation_m']:.2f} m off the lane's middle, PDMS {row['pdms']:.2f}"
        )
        lines.append((f'route {row["seed"]}', words))
    return lines


def _drop_images(bag: Path) -> None:
    """Rewrite the bag without the pictures, which plan.mp4 shows."""
    from .recordings.bag import BagWriter, read_serialised
    from .recordings.timeline import IMAGE_TYPES

    smaller = bag.with_name('bag_without_images')
    with BagWriter(smaller) as writer:
        for topic, type_name, sent_ns, cdr in read_serialised(bag):
            if type_name not in IMAGE_TYPES:
                writer.write(topic, type_name, sent_ns, cdr)
    shutil.rmtree(bag)
    smaller.rename(bag)


# -- before -----------------------------------------------------------------------------------


def _parameters(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the planner's parameters as flat names, checked. Raises ParameterError."""
    parameters = read_parameters(arguments.params)
    if arguments.model is not None:
        if not arguments.model.is_dir():
            raise DemoError(f'{arguments.model}: no such checkpoint folder')
        parameters['model_dir'] = str(arguments.model.resolve())
    if arguments.rate_hz is not None:
        parameters = with_rate(parameters, arguments.rate_hz)
    # Player and recorder share this machine with the planner.
    parameters.setdefault('threads', max(1, (os.cpu_count() or 1) // 2))
    Parameters.from_mapping(parameters)
    return parameters


def _write_parameters(parameters: dict[str, Any], path: Path) -> Path:
    import yaml

    path.write_text(yaml.safe_dump({'/**': {'ros__parameters': parameters}}), 'utf8')
    return path


def _new_folder(out: Path) -> Path:
    """Make the first run_NNN that does not exist yet, so that no run is ever overwritten."""
    out.mkdir(parents=True, exist_ok=True)
    for number in range(1, 10_000):
        folder = out / f'run_{number:03d}'
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        return folder
    raise DemoError(f'{out}: is full of runs; name another folder with --out')


def _environment(domain: int) -> dict[str, str]:
    """Return the environment of all processes: this ROS domain, on this machine alone."""
    environment = dict(os.environ)
    environment['ROS_DOMAIN_ID'] = str(domain)
    if environment.get('ROS_DISTRO') == 'humble':
        environment['ROS_LOCALHOST_ONLY'] = '1'
    else:
        environment['ROS_AUTOMATIC_DISCOVERY_RANGE'] = 'LOCALHOST'
    profile = str(share_path('config', 'fastdds.xml'))
    for name in ('FASTRTPS_DEFAULT_PROFILES_FILE', 'FASTDDS_DEFAULT_PROFILES_FILE'):
        environment.setdefault(name, profile)
    package_root = str(Path(__file__).resolve().parents[1])
    known = [path for path in environment.get('PYTHONPATH', '').split(':') if path]
    environment['PYTHONPATH'] = ':'.join([package_root, *known])
    environment['PYTHONUNBUFFERED'] = '1'
    return environment
