"""Read what `wamdiff replay` left: docs/replay.md says what is in the files.

Not responsible for what the numbers mean. Times of plans are from their own t0 on, positions are
in base at that t0.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..pinhole import Pinhole

FORMAT, VERSION = 'wamdiff-replay', 1
VIDEO = 'plan.mp4'  # in a bag's folder, where one was asked for
PLAN_STEP_S = 0.1
PLAN_TIMES_S = np.arange(51) * PLAN_STEP_S  # [51], 0 … 5.0
TRACK_GAP_NS = 500_000_000  # between states of the vehicle that are interpolated
TRUTH_PLACES = slice(5, None, 5)  # of the truth's ten times in PLAN_TIMES_S: 0.5, 1.0 … 5.0 s
TRUTHS = 10


class ReplayError(RuntimeError):
    """A replay cannot be read or judged; the message names the file and the remedy."""


@dataclass(frozen=True, eq=False)
class BagReplay:
    """The replay of one bag, N ticks; what is not there is NaN, or None in lists.

    `own` is where a tick has a plan of its own: all others are failures, whatever was held.
    """

    name: str
    folder: Path
    info: dict[str, Any]  # bag.json
    tick: np.ndarray  # int [N]
    grid_ns: np.ndarray  # int64 [N]
    status: tuple[str, ...]
    reasons: tuple[str, ...]  # '' where NOMINAL
    t0_ns: np.ndarray  # int64 [N] of what is published, 0 while WAITING
    age_ms: np.ndarray  # [N] of what is published
    plan_xy_m: np.ndarray  # [N, 51, 2] of what is published, at PLAN_TIMES_S
    plan_heading_rad: np.ndarray  # [N, 51]
    plan_speed_mps: np.ndarray  # [N, 51]
    plan_yaw_rate_radps: np.ndarray  # [N, 51]
    truth_m: np.ndarray  # [N, 10, 3] x, y, heading
    ego_ns: np.ndarray  # int64 [N] stamp of the vehicle's state, 0 without one
    ego: np.ndarray  # [N, 5] x, y, heading in the fixed frame, speed, yaw rate
    answers: tuple[str | None, ...]
    descriptions: tuple[str | None, ...]
    commands: tuple[str | None, ...]
    worlds: tuple[dict[str, Any] | None, ...]  # a simulator's ground truth
    stages_s: tuple[dict[str, float], ...]  # per tick with timings, empty without an inference

    @property
    def own(self) -> np.ndarray:
        """Bool [N]: the tick's own plan was published."""
        return np.array([status == 'NOMINAL' for status in self.status], bool)

    @property
    def duration_s(self) -> float:
        """Time from the first to the last tick."""
        return float(self.grid_ns[-1] - self.grid_ns[0]) * 1e-9 if len(self.grid_ns) else 0.0

    @property
    def time_s(self) -> np.ndarray:
        """Time [N] of every tick from the first one on."""
        return (self.grid_ns - self.grid_ns[:1]) * 1e-9

    def driven(self, at_ns: np.ndarray) -> np.ndarray:
        """Return x, y and heading [..., 3] as driven, in the fixed frame; NaN where not known.

        From the states that plans begin with and from the truths after them.
        """
        cos, sin = np.cos(self.ego[:, 2:3]), np.sin(self.ego[:, 2:3])
        ahead, left, turned = np.moveaxis(self.truth_m, -1, 0)
        later = np.stack(
            (
                self.ego[:, 0:1] + ahead * cos - left * sin,
                self.ego[:, 1:2] + ahead * sin + left * cos,
                self.ego[:, 2:3] + turned,
            ),
            axis=-1,
        )
        later_ns = self.t0_ns[:, None] + np.arange(1, TRUTHS + 1) * 500_000_000
        stamps_ns = np.concatenate([self.ego_ns, later_ns.ravel()])
        poses = np.concatenate([self.ego[:, :3], later.reshape(-1, 3)])
        return _between(stamps_ns, poses, at_ns, turning=2)

    def motion(self, at_ns: np.ndarray) -> np.ndarray:
        """Return speed and yaw rate [..., 2] as driven, NaN where not known."""
        return _between(self.ego_ns, self.ego[:, 3:], at_ns)

    def thumbnail(self, place: int) -> Path | None:
        """Return the picture of the tick at `place`, None when there is none."""
        path = self.folder / 'thumbnails' / f'{self.tick[place]:06d}.jpg'
        return path if path.is_file() else None

    def camera(self) -> Pinhole | None:
        """Return the first camera, None when the recording did not describe it."""
        camera = self.info.get('camera')
        if camera is None:
            return None
        numbers = [camera[key] for key in ('width', 'height', 'fx', 'fy', 'cx', 'cy')]
        return Pinhole(
            *numbers, np.array(camera['rotation_base']), np.array(camera['position_base_m'])
        )


@dataclass(frozen=True, eq=False)
class ReplayRun:
    """One run over some bags, without their ticks; `failed` are (bag, reason)."""

    path: Path
    run: dict[str, Any]  # run.json
    machine: dict[str, Any]  # machine.json, empty when it is missing
    bags: dict[str, dict[str, Any]]  # bag.json of every finished bag, by name
    failed: tuple[tuple[str, str], ...]

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.path.resolve().name

    @property
    def model(self) -> str:
        """The checkpoint's name."""
        return str(self.run.get('model', {}).get('name', 'unknown'))

    @property
    def backend(self) -> str:
        """What the network ran on, as the bags say; several in the order of the bags."""
        said = [str(info['backend']) for info in self.bags.values() if 'backend' in info]
        return '; '.join(dict.fromkeys(said)) or 'unknown'


def read_run(path: Path) -> ReplayRun:
    """Read what was run, and the descriptions of all finished bags. Raises ReplayError."""
    run = _read_json(path / 'run.json')
    if run.get('format') != FORMAT:
        raise ReplayError(f'{path}/run.json: is not of `wamdiff replay`')
    if run.get('format_version') != VERSION:
        raise ReplayError(
            f'{path}/run.json: format version {run.get("format_version")}, this reads {VERSION}; '
            'run `wamdiff replay` again'
        )
    machine = path / 'machine.json'
    bags, failed = {}, []
    for entry in sorted(run.get('bags', ()), key=lambda entry: entry['name']):
        name = entry['name']
        if Path(name).name != name or name in ('', '.', '..'):
            raise ReplayError(f'{path}/run.json: {name!r} is no name of a folder in it')
        if entry.get('status') == 'done':
            bags[name] = _read_json(path / name / 'bag.json')
        else:
            failed.append((name, entry.get('reason') or entry.get('status') or 'unknown'))
    said = _read_json(machine) if machine.exists() else {}
    return ReplayRun(path, run, said, bags, tuple(failed))


def read_bag(folder: Path) -> BagReplay:
    """Read the replay of one bag. Raises ReplayError."""
    info = _read_json(folder / 'bag.json')
    ticks = list(read_ticks(folder))
    timings = folder / 'timings.jsonl'
    rows = list(_read_lines(timings)) if timings.exists() else []
    try:
        return _bag(folder, info, ticks, rows)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise ReplayError(
            f'{folder}/ticks.jsonl: does not hold what docs/replay.md says ({error!r}); '
            'run `wamdiff replay` again'
        ) from error


def read_ticks(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of ticks.jsonl, one by one. Raises ReplayError."""
    return _read_lines(folder / 'ticks.jsonl')


def _bag(folder: Path, info: dict, ticks: list[dict], timings: list[dict]) -> BagReplay:
    plans = [_resampled(tick['trajectory']) for tick in ticks]
    table = np.array(plans).reshape(len(ticks), len(PLAN_TIMES_S), 5)
    described = [tick.get('description') for tick in ticks]
    return BagReplay(
        name=folder.name,
        folder=folder,
        info=info,
        tick=np.array([tick['tick'] for tick in ticks], int),
        grid_ns=np.array([tick['grid_ns'] for tick in ticks], np.int64),
        status=tuple(tick['status'] for tick in ticks),
        reasons=tuple(tick['reason'] for tick in ticks),
        t0_ns=np.array([tick['t0_ns'] or 0 for tick in ticks], np.int64),
        age_ms=np.array([_number(tick['age_ns']) for tick in ticks], float) * 1e-6,
        plan_xy_m=table[..., :2],
        plan_heading_rad=table[..., 2],
        plan_speed_mps=table[..., 3],
        plan_yaw_rate_radps=table[..., 4],
        truth_m=_truth([tick['truth_base_m'] for tick in ticks]),
        ego_ns=np.array([(tick['ego'] or {}).get('stamp_ns', 0) for tick in ticks], np.int64),
        ego=np.array([_ego(tick['ego']) for tick in ticks], float).reshape(-1, 5),
        answers=tuple(tick.get('answer') for tick in ticks),
        descriptions=tuple(one and one['text'] for one in described),
        commands=tuple(tick.get('command') for tick in ticks),
        worlds=tuple(tick.get('world') for tick in ticks),
        stages_s=tuple(row['stages_s'] for row in timings),
    )


def _resampled(trajectory: dict[str, list] | None) -> np.ndarray:
    """Return x, y, heading, speed and yaw rate [51, 5] of a trajectory, NaN beyond its end."""
    if trajectory is None:
        return np.full((len(PLAN_TIMES_S), 5), np.nan)
    time_s = np.array(trajectory['time_s'])
    names = ('x_base_m', 'y_base_m', 'heading_base_rad', 'speed_mps', 'heading_rate_radps')
    columns = [np.array(trajectory[name], float) for name in names]
    columns[2] = np.unwrap(columns[2])
    # Rounding must not cut off the last point.
    at_s = np.where(np.abs(PLAN_TIMES_S - time_s[-1]) < 1e-5, time_s[-1], PLAN_TIMES_S)
    return np.stack([np.interp(at_s, time_s, one, right=np.nan) for one in columns], axis=1)


def _truth(rows: list[list | None]) -> np.ndarray:
    """Return x, y and heading [N, 10, 3], NaN for what is missing."""
    table = np.full((len(rows), TRUTHS, 3), np.nan)
    for place, row in enumerate(rows):
        for point, values in enumerate((row or ())[:TRUTHS]):
            if values is not None:
                table[place, point] = [_number(value) for value in values]
    return table


def _ego(state: dict[str, Any] | None) -> list[float]:
    if state is None:
        return [np.nan] * 5
    x, y, _ = state['position_fixed_m']
    return [x, y, state['heading_rad'], state['speed_mps'], state['yaw_rate_radps']]


def _between(
    stamps_ns: np.ndarray, rows: np.ndarray, at_ns: np.ndarray, turning: int | None = None
) -> np.ndarray:
    """Interpolate rows [M, K] at instants [...]; the column `turning` is an angle.

    NaN beyond the stamps and in gaps of more than 0.5 s.
    """
    known = np.isfinite(rows).all(axis=1)
    stamps_ns, first = np.unique(stamps_ns[known], return_index=True)
    if len(stamps_ns) < 2:
        return np.full((*at_ns.shape, rows.shape[1]), np.nan)
    rows = rows[known][first]
    if turning is not None:
        rows[:, turning] = np.unwrap(rows[:, turning])
    place = np.clip(np.searchsorted(stamps_ns, at_ns), 1, len(stamps_ns) - 1)
    gap_ns = stamps_ns[place] - stamps_ns[place - 1]
    inside = (at_ns >= stamps_ns[0]) & (at_ns <= stamps_ns[-1]) & (gap_ns <= TRACK_GAP_NS)
    part = ((at_ns - stamps_ns[place - 1]) / gap_ns)[..., None]
    between = rows[place - 1] + (rows[place] - rows[place - 1]) * part
    return np.where(inside[..., None], between, np.nan)


def _number(value: float | None) -> float:
    return np.nan if value is None else value


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text('utf8'))
    except OSError as error:
        raise ReplayError(
            f'{path}: cannot be read ({error.strerror}); name a folder of `wamdiff replay`'
        ) from error
    except ValueError as error:
        raise ReplayError(f'{path}: is no JSON ({error}); run `wamdiff replay` again') from error
    if not isinstance(value, dict):
        raise ReplayError(f'{path}: is no JSON object; run `wamdiff replay` again')
    return value


def _read_lines(path: Path) -> Iterator[dict[str, Any]]:
    try:
        with path.open(encoding='utf8') as lines:
            for number, line in enumerate(lines, 1):
                try:
                    yield json.loads(line)
                except ValueError as error:
                    raise ReplayError(f'{path}:{number}: is no JSON ({error})') from error
    except OSError as error:
        raise ReplayError(f'{path}: cannot be read ({error.strerror})') from error
