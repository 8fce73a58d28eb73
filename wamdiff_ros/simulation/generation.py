"""Makes a data set of driving records: many routes at once, a shard for every few of them.

A run that was interrupted goes on where it stopped: finished shards stay. `manifest.json` says
what the data set was made with, and other settings are refused in its folder.
"""

import json
import multiprocessing
import os
import signal
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tqdm import tqdm

from .. import __version__
from ..training.shards import Shards, ShardWriter
from .settings import GenerationError, Settings

FORMAT_VERSION = 1


@dataclass(frozen=True)
class Generated:
    """What is in the folder now, and what this run added."""

    routes: int
    shards: int
    records: int
    new_records: int
    records_per_s: float  # of this run
    faults: tuple[str, ...]  # of this run: routes on which something went wrong


def generate(
    out: Path, settings: Settings, routes: int, workers: int = 2, renderer: str = 'auto'
) -> Generated:
    """Fill `out` with the records of `routes` routes; raises GenerationError."""
    per_shard = settings.routes_per_shard
    settings.seed_of(routes - 1)
    routes = _open_manifest(out, settings, routes)
    shards = [
        (out / f'shard-{number:06d}.tar', range(first, min(first + per_shard, routes)))
        for number, first in enumerate(range(0, routes, per_shard))
    ]
    left = [(path, places) for path, places in shards if not path.exists()]
    started, new_records, faults = time.monotonic(), 0, []
    jobs = [
        (settings.seed_of(place), settings, renderer) for _, places in left for place in places
    ]
    context = multiprocessing.get_context('spawn')  # threads and graphics do not survive a fork
    executor = ProcessPoolExecutor(workers, context, _start_worker)
    try:
        collected = executor.map(_collect, jobs)
        with tqdm(
            desc='driving', total=routes, initial=routes - len(jobs), unit='route', disable=None
        ) as bar:
            for path, places in left:
                with ShardWriter(path) as writer:
                    for _ in places:
                        route = next(collected)
                        for key, record in route.keyed:
                            writer.write(key, record)
                        new_records += len(route.keyed)
                        faults += [route.fault] if route.fault else []
                        rate = new_records / (time.monotonic() - started)
                        bar.set_postfix_str(f'{new_records} records, {rate:.0f}/s', refresh=False)
                        bar.update()
    except BrokenProcessPool as error:
        raise GenerationError(
            f'{out}: a worker died, perhaps for want of memory; try fewer workers. '
            'Finished shards are kept'
        ) from error
    finally:
        executor.shutdown(cancel_futures=True)
    rate = new_records / max(time.monotonic() - started, 1e-9)
    return Generated(routes, len(shards), len(Shards(out)), new_records, rate, tuple(faults))


def _open_manifest(out: Path, settings: Settings, routes: int) -> int:
    """Write or check the manifest; returns how many routes the data set has."""
    path = out / 'manifest.json'
    if path.exists():
        try:
            kept = json.loads(path.read_text(encoding='utf-8'))
            kept_routes, version = int(kept['routes']), kept['format_version']
            differences = settings.differences(kept['settings'])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise GenerationError(f'{path}: is no manifest of a data set: {error!r}') from error
        if version != FORMAT_VERSION:
            differences.append(f'format_version {version} there, {FORMAT_VERSION} made now')
        if differences:
            raise GenerationError(f'{out}: was made otherwise: {"; ".join(differences)}')
        if routes <= kept_routes:
            routes = kept_routes
        elif kept_routes % settings.routes_per_shard:
            # The last shard has room for more routes, so it is made again.
            (out / f'shard-{kept_routes // settings.routes_per_shard:06d}.tar').unlink(True)
    elif any(out.glob('*.tar')):
        raise GenerationError(f'{out}: holds shards but no manifest.json; choose a new folder')
    out.mkdir(parents=True, exist_ok=True)
    manifest = {
        'format_version': FORMAT_VERSION,
        'made_with': f'wamdiff_ros {__version__}',
        'routes': routes,
        'seeds': [settings.seed_of(0), settings.seed_of(routes - 1)],
        'settings': settings.to_json(),
    }
    partial = path.with_suffix('.partial')
    partial.write_text(json.dumps(manifest, indent=1) + '\n', encoding='utf-8')
    partial.replace(path)
    return routes


def _start_worker() -> None:
    """Leave Ctrl-C to the parent, and end with it however it ends, amid a route too."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    def end_with_the_parent() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=end_with_the_parent, daemon=True).start()


def _collect(job: tuple[int, Settings, str]):
    seed, settings, renderer = job
    try:
        from .collection import collect
        from .screen import GraphicsError
    except ImportError as error:  # panda3d; the message says what to install
        raise GenerationError(str(error)) from error
    session = _session(settings.model) if settings.model else None
    try:
        return collect(seed, settings, renderer, session)
    except GraphicsError as error:
        raise GenerationError(f'route {seed}: {error}') from error


@lru_cache(maxsize=1)
def _session(model: str):
    from ..parameters import Parameters
    from ..runtime.session import PlanningSession

    return PlanningSession.load(Parameters.from_mapping({'model_dir': model, 'threads': 1}))
