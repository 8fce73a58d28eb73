"""run.json and machine.json of a replay: what was run, and where."""

import json
import os
import platform
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from time import monotonic
from typing import Any

from ..recordings.bag_files import BagError
from .bag_replay import read_info, write_json
from .fleet import Job, JobResult
from .replay_settings import ReplaySettings


class RunFiles:
    """Keeps run.json up to date, and writes machine.json at the end. Raises BagError.

    Bags of earlier runs with the same settings stay in run.json; other settings are refused.
    """

    def __init__(self, out: Path, settings: ReplaySettings, jobs: Sequence[Job]) -> None:
        self._out, self._settings, self._jobs = out, settings, jobs
        self._started, self._start_s = _now(), monotonic()
        self._wall_s: dict[str, float] = {}
        out.mkdir(parents=True, exist_ok=True)
        self._by_name = {entry['name']: entry for entry in self._earlier()}
        for job in jobs:
            info = read_info(job.folder) or {}
            if info.get('settings') != settings.digest:
                info = {'status': 'pending', 'reason': ''}
            self._set(job, info['status'], info['reason'])
        self._write()

    @property
    def entries(self) -> list[dict[str, Any]]:
        """Name, path, status and reason of every job, as in run.json."""
        return [self._by_name[job.name] for job in self._jobs]

    def add(self, result: JobResult) -> None:
        """Take down how a job went."""
        self._set(result.job, result.status, result.reason)
        self._wall_s[result.job.name] = result.wall_s
        self._write()

    def finish(self) -> None:
        """Write machine.json."""
        content = {
            'hostname': platform.node(),
            'platform': platform.platform(),
            'cpu': _cpu(),
            'cpu_count': os.cpu_count(),
            'gpu': _gpu(),
            'started': self._started,
            'ended': _now(),
            'wall_s': monotonic() - self._start_s,
            'bags': self._wall_s,
        }
        write_json(self._out / 'machine.json', content)

    def _set(self, job: Job, status: str, reason: str) -> None:
        self._by_name[job.name] = {
            'name': job.name, 'path': str(job.bag), 'status': status, 'reason': reason,
        }  # fmt: skip

    def _earlier(self) -> list[dict[str, Any]]:
        path = self._out / 'run.json'
        if not path.exists():
            return []
        try:
            run = json.loads(path.read_text('utf8'))
            if run['settings'] == self._settings.digest:
                return list(run['bags'])
            differing = ', '.join(_differences(run, self._settings.to_json()))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise BagError(f'{path}: cannot be read ({error!r}); name another --out') from error
        raise BagError(
            f'{self._out}: holds a replay with other settings ({differing}); name another --out'
        )

    def _write(self) -> None:
        bags = [self._by_name[name] for name in sorted(self._by_name)]
        settings = {**self._settings.to_json(), 'settings': self._settings.digest}
        write_json(self._out / 'run.json', {**settings, 'bags': bags})


def _differences(before: Any, now: Any, prefix: str = '') -> list[str]:
    """Return what has another value, "parameters.rate_hz was 10.0"."""
    if not (isinstance(before, dict) and isinstance(now, dict)):
        return [f'{prefix[:-1]} was {before}'] if before != now else []
    return [
        difference
        for name in now
        for difference in _differences(before.get(name), now[name], f'{prefix}{name}.')
    ]


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec='seconds')


def _cpu() -> str:
    try:
        lines = Path('/proc/cpuinfo').read_text('utf8').splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(':')[2].strip() for line in lines if line.startswith('model name')]
    return names[0] if names else platform.processor()


def _gpu() -> str:
    import torch

    return torch.cuda.get_device_name(0) if torch.cuda.is_available() else ''
