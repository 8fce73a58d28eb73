"""Replay many bags: one after the other, or on a Ray cluster; what is complete is left as it is.

A bag that fails is listed with its reason and stops nobody else.
"""

import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..parameters import Parameters
from ..recordings.bag_files import BagError, is_bag
from .bag_replay import make_room, read_info, replay_bag, write_json
from .replay_settings import ReplaySettings

ANSWER_TIMEOUT_S = 5.0

# Called with (parameters) -> a session; PlanningSession.load is one.
Loader = Callable[[Parameters], Any]


@dataclass(frozen=True)
class Job:
    """One bag and the folder of its replay."""

    bag: Path
    folder: Path

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.folder.name


@dataclass(frozen=True)
class JobResult:
    """How a job went; `wall_s` is None when it was complete before."""

    job: Job
    status: str  # done, failed
    reason: str
    wall_s: float | None


def find_bags(paths: Sequence[Path]) -> list[Path]:
    """Return the bags that are named, and those below folders that are none. Raises BagError."""
    bags: list[Path] = []
    for path in paths:
        if not path.is_dir() or is_bag(path):
            bags.append(path)
            continue
        below = [Path(root) for root, _, _ in os.walk(path) if is_bag(Path(root))]
        if not below:
            raise BagError(f'{path}: holds no bags')
        bags += sorted(below)
    resolved = [bag.resolve() for bag in bags]
    return [bag for i, bag in enumerate(bags) if resolved[i] not in resolved[:i]]


def jobs_for(bags: Sequence[Path], out: Path) -> list[Job]:
    """Return the jobs; bags of the same name get as much of their path as tells them apart."""
    parts = [(*bag.resolve().parent.parts[1:], _stem(bag)) for bag in bags]
    longest = max(map(len, parts))
    names = [''] * len(bags)
    for length in range(1, longest + 1):
        shortened = ['__'.join(part[-length:]) for part in parts]
        for i, name in enumerate(shortened):
            if not names[i] and shortened.count(name) == 1:
                names[i] = name
    # A .db3 and an .mcap of the same recording, side by side.
    names = [name or bag.name for name, bag in zip(names, bags, strict=True)]
    return [Job(bag, out / name) for bag, name in zip(bags, names, strict=True)]


def is_complete(job: Job, settings: ReplaySettings) -> bool:
    """Return whether the job was done before with the same settings."""
    info = read_info(job.folder)
    return info is not None and info['status'] == 'done' and info['settings'] == settings.digest


def run_serially(
    jobs: Sequence[Job], settings: ReplaySettings, load: Loader
) -> Iterator[JobResult]:
    """Yield the result of each job, in order; the session is loaded with the first of them."""
    for number, job in enumerate(jobs, 1):
        yield run_job(job, settings, load, f'{job.name} ({number} of {len(jobs)})')


def run_job(job: Job, settings: ReplaySettings, load: Loader, label: str = '') -> JobResult:
    """Replay one bag; what goes wrong with it becomes its result."""
    from ..model.config import CheckpointError
    from ..planning.prompts import PromptError

    start_s = time.monotonic()
    try:
        session = load(settings.parameters)
    except (CheckpointError, PromptError):
        raise  # no fault of the bag
    try:
        info = replay_bag(session, settings, job.bag, job.folder, label)
        status, reason = info['status'], ''
    except Exception as error:  # whatever it is, the other bags are to be replayed
        expected = isinstance(error, (BagError, OSError))
        reason = str(error) if expected else f'{type(error).__name__}: {error}'
        status = 'failed'
        _note_failure(job, settings, reason)
    return JobResult(job, status, reason, time.monotonic() - start_s)


def _note_failure(job: Job, settings: ReplaySettings, reason: str) -> None:
    if read_info(job.folder) is None:
        return  # somebody else's folder
    try:
        make_room(job.folder)
        write_json(job.folder / 'bag.json', {
            'name': job.name, 'path': str(job.bag), 'status': 'failed', 'reason': reason,
            'settings': settings.digest,
        })  # fmt: skip
    except OSError:
        pass  # a full disk: run.json says it


# -- Ray --------------------------------------------------------------------------------------


class FleetError(RuntimeError):
    """There is no cluster to run on; the message says why and what to do."""


def run_on_ray(
    jobs: Sequence[Job],
    settings: ReplaySettings,
    load: Loader,
    address: str,
    workers: int | None,
) -> Iterator[JobResult]:
    """Yield the results as they come; `address` 'local' starts a cluster of `workers` here.

    Every task has one CPU, and one GPU where the cluster has some. Bags and output have to be
    where all machines of the cluster find them. Raises FleetError.
    """
    try:
        import ray
    except ImportError as error:
        raise FleetError(f'--ray: {error}; pip install -r requirements/fleet.txt') from error
    # One thread each, so that every worker computes what a serial run computes.
    environment = {'env_vars': {'OMP_NUM_THREADS': '1', 'TQDM_DISABLE': '1'}}
    options: dict[str, Any] = {'num_cpus': workers} if address == 'local' else {}
    _insist_on_an_answer(address)
    try:
        ray.init(
            address=address, runtime_env=environment, log_to_driver=False,
            include_dashboard=False, **options,
        )  # fmt: skip
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        raise FleetError(
            f'--ray {address}: {error}; the head has to be a Ray of the same version, with the '
            'RAY_AUTH_TOKEN or RAY_AUTH_MODE of this shell'
        ) from error
    try:
        gpus = 1 if ray.cluster_resources().get('GPU') else 0
        task = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=0)(_run_in_worker)
        running = {task.remote(job, settings, load): job for job in jobs}
        while running:
            (ready,), _ = ray.wait(list(running), num_returns=1)
            job = running.pop(ready)
            try:
                yield ray.get(ready)
            except ray.exceptions.RayError as error:  # the worker died, or raised
                reason = str(error).strip().splitlines()[-1]
                _note_failure(job, settings, reason)
                yield JobResult(job, 'failed', reason, 0.0)
    finally:
        ray.shutdown()


def _insist_on_an_answer(address: str) -> None:
    """Raise FleetError at once where nothing listens: Ray would try for minutes."""
    host, colon, port = address.removeprefix('ray://').rpartition(':')
    if not colon:
        return  # 'local' or 'auto'
    try:
        socket.create_connection((host.strip('[]'), int(port)), ANSWER_TIMEOUT_S).close()
    except (OSError, ValueError, OverflowError) as error:
        raise FleetError(
            f'--ray {address}: nothing answers there ({error}); wanted HOST:PORT as '
            '`ray start --head` has printed it'
        ) from error


def _run_in_worker(job: Job, settings: ReplaySettings, load: Loader) -> JobResult:
    return run_job(job, settings, lambda parameters: _session_of(load, parameters))


@lru_cache(maxsize=1)
def _session_of(load: Loader, parameters: Parameters) -> Any:
    """Return the session of this worker process, which replays several bags."""
    return load(parameters)


def _stem(bag: Path) -> str:
    name = bag.resolve().name
    for suffix in ('.zstd', '.mcap', '.db3'):
        name = name.removesuffix(suffix)
    return name
