"""Replay recordings through the planner, offline, and judge what it would have published.

    wamdiff replay BAG… --out DIR

The recording's pictures and odometry go through the node's own buffers, planning and publication
on its grid, in the order of their header stamps. Bags are rosbag2 in any form, finished or not, or
folders of such. A run that was interrupted, or that failed for some bags, goes on where it was.
docs/replay.md says what it leaves in DIR.
Exit codes: 0 done, 1 it or one of the bags failed (the reasons are printed), 2 wrong options,
130 interrupted.
"""

import argparse
import json
import sys
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import option_values
from ..parameter_file import read_parameters, with_rate
from ..parameter_values import ParameterError
from ..parameters import Parameters

if TYPE_CHECKING:  # scipy takes its time, and every command imports this file
    from .replay_settings import ReplaySettings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `wamdiff replay`."""
    parser.add_argument(
        'bags', nargs='+', type=Path, metavar='BAG', help='bags, or folders of bags'
    )
    parser.add_argument(
        '--out', type=Path, required=True, metavar='DIR', help='folder of the results'
    )
    how = parser.add_argument_group('how it is planned')
    how.add_argument(
        '--model', type=Path, metavar='DIR', help='checkpoint folder (the bundled nano checkpoint)'
    )
    how.add_argument('--params', type=Path, metavar='FILE', help='parameter file of the planner')
    how.add_argument(
        '--rate', type=option_values.positive, metavar='HZ', help='rate of the grid (10)'
    )
    what = parser.add_argument_group('what is replayed')
    what.add_argument(
        '--start', type=option_values.not_negative, default=0.0, metavar='S',
        help="seconds after the first camera's first picture (%(default)s)",
    )  # fmt: skip
    what.add_argument(
        '--duration', type=option_values.positive, metavar='S', help='only so many seconds'
    )
    what.add_argument(
        '--remap', type=_remap, action='append', default=[], metavar='FROM:=TO',
        help="take the bag's topic FROM for the planner's TO, such as camera/front/image, "
        'odometry, acceleration or navigation_command; may be repeated',
    )  # fmt: skip
    what.add_argument('--camera', metavar='TOPIC', help='of the bag, where it has several')
    what.add_argument('--odometry', metavar='TOPIC', help='of the bag, likewise')
    where = parser.add_argument_group('where it runs')
    where.add_argument(
        '--ray', nargs='?', const='local', metavar='ADDRESS',
        help='on a Ray cluster: a local one, or the one at ADDRESS (auto: of the environment)',
    )  # fmt: skip
    where.add_argument(
        '--workers', type=option_values.count, metavar='N', help='of a local cluster (one per CPU)'
    )
    left = parser.add_argument_group('what is left')
    left.add_argument(
        '--with-input', action='store_true', help="copy the recording's topics beside the plans"
    )
    left.add_argument(
        '--video', action='store_true',
        help='film each bag, plan.mp4: plans, reasons and what was driven, in the camera picture '
        '(needs PyAV)',
    )  # fmt: skip
    left.add_argument('--json', action='store_true', help='print one JSON object, no table')


def run(arguments: argparse.Namespace) -> int:
    """Replay, print and write the results; returns the exit code."""
    from ..model.config import CheckpointError
    from ..pictures.video import VideoError, pyav
    from ..planning.prompts import PromptError
    from ..recordings.bag_files import BagError
    from .fleet import FleetError

    try:
        if arguments.video:
            pyav()  # missing, it is to be told before everything is planned
        if arguments.workers is not None and arguments.ray != 'local':
            raise ParameterError('--workers: goes with --ray without an address')
        settings = _settings(arguments)
    except ParameterError as error:
        print(f'error: {error}', file=sys.stderr)
        return 2
    except (VideoError, OSError) as error:
        print(f'error: {error}', file=sys.stderr)
        return 1
    try:
        entries = _replay(arguments, settings)
        errors = _films(arguments, settings, entries) if arguments.video else []
    except (BagError, FleetError, CheckpointError, PromptError, ValueError, OSError) as error:
        print(f'error: {error}', file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f'interrupted; the same command goes on in {arguments.out}', file=sys.stderr)
        return 130
    print(_json(arguments.out, entries) if arguments.json else _text(arguments.out, entries))
    failed = [entry for entry in entries if entry['status'] != 'done']
    errors += [f'{entry["name"]}: {entry["reason"]}' for entry in failed]
    for error in errors:
        print(f'error: {error}', file=sys.stderr)
    return 1 if errors else 0


def load_session(parameters: Parameters) -> Any:
    """Load the session that the node would load."""
    from ..runtime.session import PlanningSession

    return PlanningSession.load(parameters)


def _settings(arguments: argparse.Namespace) -> 'ReplaySettings':
    from ..recordings.topics import TopicChoice
    from .replay_settings import ReplaySettings, checkpoint_sha256, model_dir

    values = read_parameters(arguments.params)
    if arguments.model is not None:
        if not arguments.model.is_dir():
            raise OSError(f'{arguments.model}: no such checkpoint folder')
        values['model_dir'] = str(arguments.model.resolve())
    if arguments.rate is not None:
        values = with_rate(values, arguments.rate)
    # Another number of threads may round differently, so it is not left to the machine.
    values = {'threads': 1, **values}
    parameters = Parameters.from_mapping(values)
    folder = model_dir(parameters)
    choice = TopicChoice(arguments.camera, arguments.odometry, tuple(arguments.remap))
    return ReplaySettings(
        parameters, folder.name, checkpoint_sha256(folder), choice, arguments.start,
        arguments.duration, arguments.with_input,
    )  # fmt: skip


def _replay(arguments: argparse.Namespace, settings: 'ReplaySettings') -> list[dict[str, Any]]:
    """Replay what is not complete; return the entries of run.json."""
    from .fleet import find_bags, is_complete, jobs_for, run_on_ray, run_serially
    from .run_files import RunFiles

    jobs = jobs_for(find_bags(arguments.bags), arguments.out)
    files = RunFiles(arguments.out, settings, jobs)
    due = [job for job in jobs if not is_complete(job, settings)]
    if len(due) < len(jobs):
        print(f'{len(jobs) - len(due)} of {len(jobs)} bags are complete', file=sys.stderr)
    if not due:
        return files.entries
    try:
        if arguments.ray is None:
            results = run_serially(due, settings, lru_cache(maxsize=1)(load_session))
        else:
            results = run_on_ray(due, settings, load_session, arguments.ray, arguments.workers)
        for result in _with_bar(results, len(due), arguments.ray is not None):
            files.add(result)
    finally:
        files.finish()
    return files.entries


def _films(
    arguments: argparse.Namespace, settings: 'ReplaySettings', entries: list[dict[str, Any]]
) -> list[str]:
    """Write the videos that are missing of bags that are done; return what went wrong."""
    from ..pictures.video import VideoError
    from ..recordings.bag_files import BagError
    from .replay_run import VIDEO, ReplayError
    from .replay_video import write_video

    errors = []
    for entry in entries:
        folder = arguments.out / entry['name']
        if entry['status'] == 'done' and not (folder / VIDEO).exists():
            try:
                write_video(settings, Path(entry['path']), folder)
            except (BagError, ReplayError, VideoError, OSError) as error:
                errors.append(f'{entry["name"]}: no video: {error}')
    return errors


def _with_bar(results, count: int, shown: bool):
    from tqdm import tqdm

    with tqdm(results, 'replaying', count, unit='bag', disable=None if shown else True) as bar:
        yield from bar


def _json(out: Path, entries: list[dict[str, Any]]) -> str:
    bags = [{**entry, **_figures(out / entry['name'])} for entry in entries]
    return json.dumps({'out': str(out), 'bags': bags}, ensure_ascii=False)


def _text(out: Path, entries: list[dict[str, Any]]) -> str:
    lines = [f'{"bag":30} {"ticks":>6} {"own plan":>8} {"ADE 3 s":>8} {"FDE 3 s":>8}']
    for entry in entries:
        figures = _figures(out / entry['name'])
        if entry['status'] != 'done':
            lines.append(f'{entry["name"]:30} {entry["status"].upper()}')
            continue
        ticks = sum(figures['ticks'].values())
        own = figures['ticks'].get('NOMINAL', 0) / max(ticks, 1)
        errors = ''.join(f' {_metres(figures["metrics"], f"{n}_3s_m"):>8}' for n in ('ade', 'fde'))
        lines.append(f'{entry["name"]:30} {ticks:>6} {own:>8.0%}{errors}')
        lines += [f'    note: {note}' for note in figures['notes']]
    return '\n'.join([*lines, f'{out}'])


def _figures(folder: Path) -> dict[str, Any]:
    """Return ticks, notes and metrics of a bag that is done."""
    from .bag_replay import read_info

    info = read_info(folder) or {}
    if info.get('status') != 'done':
        return {}
    metrics = json.loads((folder / 'metrics.json').read_text('utf8'))['metrics']
    return {'ticks': info['ticks'], 'notes': info['notes'], 'metrics': metrics}


def _metres(metrics: dict[str, Any], name: str) -> str:
    return f'{metrics[name]["mean"]:.2f} m' if name in metrics else '-'


def _remap(text: str) -> tuple[str, str]:
    there, found, here = text.partition(':=')
    if not found or not there.strip('/') or not here.strip('/'):
        raise argparse.ArgumentTypeError(f'{text!r} is not like /cam0/image:=camera/front/image')
    return there, here
