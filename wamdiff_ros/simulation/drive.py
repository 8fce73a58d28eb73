"""Drive routes of the world closed loop with a checkpoint, and score them.

Route by route, at 10 Hz of simulated time and as fast as it goes: render the camera, plan,
follow the plan. The seeds S … S+N-1 name the routes; 0 to 999 are never trained on. A route is a
success when it is completed without collision, off-road or red-light fault. One that is lost, by a
collision, off the road, or without coming farther for 30 s, ends there. With --out, drive.json
grows route by route.
Exit codes: 0 done, whatever the score; 1 it failed (the reason is printed), 2 wrong options,
130 interrupted.
"""

import argparse
import json
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import option_values
from ..parameter_file import read_parameters
from ..parameter_values import ParameterError
from ..parameters import Parameters

if TYPE_CHECKING:  # scipy takes its time, and every command imports this file
    from .score import RouteScore

VIDEOS = ('all', 'failures', 'none')


class DriveError(RuntimeError):
    """The drive cannot begin; the message says why and what to do."""


@dataclass(frozen=True)
class _Job:
    """What every worker has to know."""

    parameters: Parameters
    expert: bool
    out: Path | None
    video: str
    to_the_end: bool


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `wamdiff drive`."""
    what = parser.add_argument_group('what is driven')
    what.add_argument(
        '--routes',
        type=option_values.count,
        default=10,
        metavar='N',
        help='how many (%(default)s)',
    )
    what.add_argument(
        '--seed',
        type=option_values.whole,
        default=0,
        metavar='S',
        help='of the first route (%(default)s)',
    )
    who = parser.add_argument_group('who drives')
    one = who.add_mutually_exclusive_group()
    one.add_argument(
        '--model', type=Path, metavar='DIR', help='checkpoint folder (the bundled nano checkpoint)'
    )
    one.add_argument(
        '--expert', action='store_true',
        help="the expert's plans in place of a model's: the ceiling of imitation",
    )  # fmt: skip
    who.add_argument('--params', type=Path, metavar='FILE', help='parameter file of the planner')
    how = parser.add_argument_group('how it is run')
    how.add_argument(
        '--workers', type=option_values.count, default=min(2, os.cpu_count() or 1), metavar='N',
        help='processes, each with one thread (%(default)s)',
    )  # fmt: skip
    how.add_argument(
        '--to-the-end', action='store_true', help='drive on along routes that are lost'
    )
    how.add_argument(
        '--unchecked', action='store_true', help='follow plans also when they break a check'
    )
    out = parser.add_argument_group('what is left')
    out.add_argument('--json', action='store_true', help='print one JSON object, no table')
    out.add_argument('--out', type=Path, metavar='DIR', help='folder for videos and drive.json')
    out.add_argument(
        '--video', choices=VIDEOS, help='which routes get a video in --out (failures)'
    )


def run(arguments: argparse.Namespace) -> int:
    """Drive, print and write the score; returns the exit code."""
    try:
        from ..model.config import CheckpointError
        from ..pictures.video import VideoError
        from ..runtime.quantisation import QuantisationError
        from .screen import GraphicsError
    except ImportError as error:
        print(f'error: {error}', file=sys.stderr)
        return 1
    try:
        job = _job(arguments)
        seeds = range(arguments.seed, arguments.seed + arguments.routes)
        driver = 'expert' if arguments.expert else str(arguments.model or 'nano')

        def keep(scores: 'list[RouteScore]') -> dict[str, Any]:
            result = {'routes_asked': len(seeds), **to_json(scores, driver)}
            if job.out is not None:
                write_result(job.out / 'drive.json', result)
            return result

        scores = _drive_all(job, seeds, min(arguments.workers, len(seeds)), keep)
        result = keep(scores)
    except (
        DriveError, CheckpointError, GraphicsError, ParameterError, QuantisationError, VideoError,
        OSError,
    ) as error:  # fmt: skip
        print(f'error: {error}', file=sys.stderr)
        return 1
    except BrokenProcessPool:
        print('error: a worker died, perhaps for want of memory; try --workers 1', file=sys.stderr)
        return 1
    print(json.dumps(result) if arguments.json else to_text(scores))
    return 0


def to_json(scores: 'list[RouteScore]', driver: str) -> dict[str, Any]:
    """Return the summary with the scores of all routes under `rows`."""
    from .score import summarise

    rows = [{**asdict(score), 'success': score.success} for score in scores]
    return {'driver': driver, **asdict(summarise(scores)), 'rows': rows}


def to_text(scores: 'list[RouteScore]') -> str:
    """Return a table for a terminal."""
    from .score import summarise

    head = f'{"seed":>6} {"":7} {"way":>5} {"time":>6} {"lane":>6} {"pace":>5} {"TTC":>5}'
    lines = [f'{head} {"comf.":>5} {"PDMS":>5}  faults']
    for s in scores:
        lines.append(
            f'{s.seed:>6} {"success" if s.success else "FAILED ":7} {s.completion:>5.0%} '
            f'{s.duration_s:>4.0f} s {s.lane_deviation_m:>4.2f} m {s.progress:>5.2f} '
            f'{s.time_to_collision:>5.2f} {s.comfort:>5.2f} {s.pdms:>5.2f}  {"; ".join(s.faults)}'
        )
    total = summarise(scores)
    low, high = total.success_interval
    lines.append(
        f'\n{total.successes} of {total.routes} routes without a fault: '
        f'{total.success_rate:.1%} (95 % interval {low:.1%} to {high:.1%})\n'
        f'{total.completed} completed, {total.collisions} collisions, {total.off_road} off the '
        f'road, {total.red_lights} red lights, {total.wrong_way} wrong way, '
        f'{total.ended_early} ended early; '
        f'lane deviation {total.lane_deviation_m:.2f} m, PDMS {total.pdms:.3f}'
    )
    if total.rejected_plans:
        words = (f'{check} {count}' for check, count in total.rejected_plans.items())
        lines.append(f'{sum(total.rejected_plans.values())} plans rejected: {", ".join(words)}')
    return '\n'.join(lines)


def _job(arguments: argparse.Namespace) -> _Job:
    video = arguments.video or ('failures' if arguments.out else 'none')
    if video != 'none' and arguments.out is None:
        raise DriveError(f'--video {video}: name a folder for it with --out')
    if arguments.out is not None:
        arguments.out.mkdir(parents=True, exist_ok=True)
    values: dict[str, Any] = {**read_parameters(arguments.params), 'threads': 1}
    if arguments.unchecked:
        from ..planning.checks import LIMITS

        values |= dict.fromkeys(LIMITS, 0.0)
    if arguments.model is not None:
        if not arguments.model.is_dir():
            raise DriveError(f'{arguments.model}: no such checkpoint folder')
        values['model_dir'] = str(arguments.model.resolve())
    return _Job(
        Parameters.from_mapping(values), arguments.expert, arguments.out, video,
        arguments.to_the_end,
    )  # fmt: skip


def _drive_all(job: _Job, seeds: range, workers: int, keep: Callable) -> 'list[RouteScore]':
    """Return the scores by seed; `keep` gets those that there are after each route."""
    from tqdm import tqdm

    scores = []
    with (
        _workers(job, workers) as executor,
        tqdm(total=len(seeds), desc='driving', unit='route', disable=None) as bar,
    ):
        with _interrupts_put_off():  # the workers start here
            futures = [executor.submit(_drive, seed) for seed in seeds]
        for future in as_completed(futures):
            scores.append(future.result())
            scores.sort(key=lambda score: score.seed)
            keep(scores)
            faultless = sum(score.success for score in scores)
            bar.set_postfix_str(f'{faultless} of {len(scores)} without a fault', refresh=False)
            bar.update()
    return scores


def write_result(path: Path, result: dict[str, Any]) -> None:
    """Replace the file at once: whoever is killed leaves the old one or the new one."""
    new = path.with_suffix('.json.part')
    new.write_text(json.dumps(result, indent=1) + '\n', 'utf8')
    new.replace(path)


@contextmanager
def _workers(job: _Job, count: int) -> Iterator[ProcessPoolExecutor]:
    """Start the processes; every way out ends them after the step that they are at."""
    context = multiprocessing.get_context('spawn')  # neither torch nor panda3d survives a fork
    stop = context.Event()
    executor = ProcessPoolExecutor(count, context, _start_worker, (job, stop))
    try:
        yield executor
    finally:
        stop.set()
        executor.shutdown(cancel_futures=True)


@contextmanager
def _interrupts_put_off() -> Iterator[None]:
    """Let Ctrl-C wait, which would leave workers half started; they themselves never get it."""
    pending = []
    before = signal.signal(signal.SIGINT, lambda *_: pending.append(True))  # of any thread
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # workers inherit it
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        signal.signal(signal.SIGINT, before)
    if pending:
        raise KeyboardInterrupt


# -- in a worker ------------------------------------------------------------------------------

_worker: Any = None


def _start_worker(job: _Job, stop) -> None:
    global _worker
    os.environ['OMP_NUM_THREADS'] = '1'  # read by torch when it is imported
    _worker = _Worker(job, stop)


def _drive(seed: int) -> 'RouteScore':
    return _worker.drive(seed)


class _Worker:
    """What a process keeps; the model is loaded with the first route, whose caller sees errors."""

    def __init__(self, job: _Job, stop) -> None:
        self._job, self._stop, self._session = job, stop, None

    def drive(self, seed: int) -> 'RouteScore | None':
        from .closed_loop import drive_route
        from .drive_video import DriveFilm
        from .world import World

        world, film = World(seed), DriveFilm()
        look_on = (lambda step: None) if self._job.video == 'none' else film.add
        score = drive_route(
            world, self._planner(world), self._job.parameters, look_on, self._stop.is_set,
            self._job.to_the_end,
        )  # fmt: skip
        wanted = {'none': False, 'all': True, 'failures': score and not score.success}
        if score is not None and wanted[self._job.video]:
            film.write(self._job.out / f'route_{seed:06d}.mp4', world, score)
        return score

    def _planner(self, world):
        from .closed_loop import ExpertPlanner

        if self._job.expert:
            return ExpertPlanner(world, self._job.parameters)
        if self._session is None:
            from ..runtime.session import PlanningSession

            self._session = PlanningSession.load(self._job.parameters)
        return self._session
