"""Judge the replay of one bag: a value per tick and column, and what they come to.

Results are a function of bag.json and ticks.jsonl alone, so they repeat byte for byte. How long
inference took is measured elsewhere (`latency.py`).
"""

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..replay.replay_run import BagReplay
from . import tick_values
from .columns import COLUMNS, RANKED
from .distribution import Distribution
from .ratings import RatedMoment

FORMAT, VERSION = 'wamdiff-metrics', 1
DECIMALS = 6
REASONS = 5


@dataclass(frozen=True)
class Measure:
    """What one column comes to over the ticks that have a value."""

    count: int
    mean: float
    p95: float
    lowest: float
    highest: float


@dataclass(frozen=True)
class BagMetrics:
    """What the ticks of one bag come to; `skipped` says why a column has no value at all."""

    bag: str
    duration_s: float
    ticks: int
    plans: int  # ticks with a plan of their own
    status: dict[str, int]
    failures: tuple[
        tuple[str, int], ...
    ]  # why ticks have no plan, numbers left out, and how often
    metrics: dict[str, Measure]
    skipped: dict[str, str]
    age_ms: Distribution | None
    jitter_ms: Distribution | None  # how far intervals between plans' t0 are off the period
    worst: tuple[int, ...]  # ticks, see `worst_ticks`


@dataclass(frozen=True, eq=False)
class Judged:
    """The values of one bag: column name to [N] of the replay's ticks, NaN where there is none."""

    replay: BagReplay
    values: dict[str, np.ndarray]
    skipped: dict[str, str]

    def metrics(self) -> BagMetrics:
        """Return what the values come to."""
        replay = self.replay
        failures = [
            _kind(reason)
            for reason, own in zip(replay.reasons, replay.own, strict=True)
            if not own
        ]
        t0_ms = replay.t0_ns[replay.own] * 1e-6
        jitter = np.abs(np.diff(t0_ms) - replay.info['period_ns'] * 1e-6)
        jitter = jitter[np.diff(np.flatnonzero(replay.own)) == 1]
        return BagMetrics(
            bag=replay.name,
            duration_s=replay.duration_s,
            ticks=len(replay.tick),
            plans=int(replay.own.sum()),
            status=dict(sorted(Counter(replay.status).items())),
            failures=tuple(Counter(failures).most_common(REASONS)),
            metrics={
                name: measure
                for name, values in self.values.items()
                if (measure := measure_of(values)) is not None
            },
            skipped=self.skipped,
            age_ms=Distribution.of(replay.age_ms[np.isfinite(replay.age_ms)]),
            jitter_ms=Distribution.of(jitter),
            worst=tuple(int(replay.tick[place]) for place in self.worst()),
        )

    def worst(self, count: int = 6, apart_s: float = 2.0) -> list[int]:
        """Return the places of the worst ticks by `RANKED`, each 2 s from the others.

        A tick without a plan counts as one that stands still.
        """
        error = self.values[RANKED]
        order = np.argsort(-np.nan_to_num(error, nan=-1.0), kind='stable')
        found: list[int] = []
        for place in order[: np.isfinite(error).sum()].tolist():
            away_ns = np.abs(self.replay.grid_ns[found] - self.replay.grid_ns[place])
            if (away_ns >= apart_s * 1e9).all():
                found.append(place)
            if len(found) == count:
                break
        return found


def _kind(reason: str) -> str:
    """Return a reason without its numbers, which differ from tick to tick."""
    return re.sub(r'(?<![\w^])[-+]?\d+(\.\d+)?(e[-+]?\d+)?', '…', reason) or 'no reason given'


def measure_of(values: np.ndarray) -> Measure | None:
    """Return the measure of values [N], NaN left out; None for none."""
    known = values[np.isfinite(values)]
    if not len(known):
        return None
    numbers = known.mean(), np.percentile(known, 95), known.min(), known.max()
    return Measure(len(known), *map(float, numbers))


def judge(replay: BagReplay, moments: Sequence[RatedMoment] = ()) -> Judged:
    """Judge every tick; `moments` of this bag were rated by people."""
    skipped: dict[str, str] = {}
    comforts = tick_values.comforts(replay, skipped)
    values = {
        **tick_values.publication(replay),
        **tick_values.displacements(replay),
        **tick_values.open_loop(replay, skipped),
        **tick_values.rater_feedback(replay, moments, skipped),
        **comforts,
        **tick_values.in_world(replay, comforts, skipped),
        **tick_values.shifts(replay),
    }
    ordered = {column.name: values[column.name] for column in COLUMNS if column.name in values}
    return Judged(replay, ordered, skipped)


def write(judged: Judged, folder: Path) -> None:
    """Write metrics.json and metrics.csv, one row per tick."""
    content = {'format': FORMAT, 'format_version': VERSION, **asdict(judged.metrics())}
    (folder / 'metrics.json').write_text(to_json(content), 'utf8')
    text = io.StringIO()
    rows = csv.writer(text, lineterminator='\n')
    rows.writerow(['tick', 'grid_ns', 'status', *judged.values])
    replay = judged.replay
    columns = zip(*judged.values.values(), strict=True)
    for tick, grid_ns, status, values in zip(
        replay.tick, replay.grid_ns, replay.status, columns, strict=True
    ):
        cells = ('' if np.isnan(value) else f'{round(value, DECIMALS):g}' for value in values)
        rows.writerow([tick, grid_ns, status, *cells])
    (folder / 'metrics.csv').write_text(text.getvalue(), 'utf8')


def to_json(content: Any) -> str:
    """Return JSON with numbers rounded to 1e-6 and a new line at its end."""
    return json.dumps(_rounded(content), indent=1, ensure_ascii=False, allow_nan=False) + '\n'


def _rounded(content: Any) -> Any:
    if isinstance(content, float):
        return round(content, DECIMALS)
    if isinstance(content, dict):
        return {key: _rounded(value) for key, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [_rounded(value) for value in content]
    return content
