"""Ask checkpoints about records that they were not trained on, as the node asks: side by side.

Each record goes to all checkpoints before the next one, and another one begins each time, so that
whatever else the machine does slows all of them alike.
"""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from tqdm import tqdm

from ..runtime.session import PlanningSession
from ..training.conversations import read_description
from ..training.records import OBJECTS, WAYPOINTS, DrivingRecord
from ..training.shards import Shards


class HeldOutError(ValueError):
    """The data is not what checkpoints can be judged on; the message names the record."""


@dataclass(frozen=True, eq=False)
class Answers:
    """What one checkpoint answered; arrays have a row for each of N records.

    A refused answer has no offsets (NaN). A description that cannot be read says "no" of every
    object and is right about nothing.
    """

    offset_m: np.ndarray  # [N, 8, 2] from the truth, along and across its way
    refusals: Counter[str]  # reasons
    forwards: np.ndarray  # [N] of the decoder: denoising and commits, or one per token
    tokens: np.ndarray  # [N]
    seconds: np.ndarray  # [N] from the picture to the plan
    decode_s: np.ndarray  # [N] the decoder's part of it
    description_s: np.ndarray  # [N] with the prefix of the plan cached, as in the node
    readable: np.ndarray  # bool [N]
    objects: np.ndarray  # bool [N, 12]
    longitudinal_right: np.ndarray  # bool [N]
    lateral_right: np.ndarray  # bool [N]

    @property
    def parsed(self) -> np.ndarray:
        """Bool [N]: where there is a plan."""
        return ~np.isnan(self.offset_m[:, 0, 0])

    @property
    def distance_m(self) -> np.ndarray:
        """L2 distance of every waypoint from the truth, [N, 8]; 0 where there is no plan."""
        return np.linalg.norm(np.nan_to_num(self.offset_m), axis=2)


def choose(shards: Shards, count: int) -> list[DrivingRecord]:
    """Return `count` records spread evenly over the data, or all; raises HeldOutError."""
    if not len(shards):
        raise HeldOutError(f'{", ".join(map(str, shards.paths))}: there are no records')
    places = np.linspace(0, len(shards) - 1, min(count, len(shards))).round().astype(int)
    records = []
    for place in map(int, places):
        record = shards[place]
        if not isinstance(record, DrivingRecord):
            raise HeldOutError(
                f'record {shards.key(place)} is a converted conversation without waypoints; give '
                'shards of `wamdiff data generate OUT --split validation`'
            )
        records.append(record)
    return records


def ask(sessions: Sequence[PlanningSession], records: Sequence[DrivingRecord]) -> list[Answers]:
    """Return the answers of every session to all records."""
    rows: list[list[dict]] = [[] for _ in sessions]
    for session in sessions:
        _ask_one(session, records[0])  # the first answer pays for first use
    with tqdm(
        total=len(records) * len(sessions), desc='answering', unit='record', disable=None
    ) as bar:
        for number, record in enumerate(records):
            for turn in range(len(sessions)):
                place = (number + turn) % len(sessions)
                rows[place].append(_ask_one(sessions[place], record))
                bar.update()
    return [_stack(one) for one in rows]


def offsets_m(waypoints_base_m: np.ndarray, truth_base_m: np.ndarray) -> np.ndarray:
    """Return the offsets [8, 2] of waypoints [8, 2] from the truth, along and across its way.

    The way at a waypoint is the truth's own last displacement; a vehicle that stands keeps the
    last one, at first straight ahead.
    """
    steps = np.diff(truth_base_m, axis=0, prepend=np.zeros((1, 2)))
    ahead, directions = np.array([1.0, 0.0]), []
    for step in steps:
        length = np.linalg.norm(step)
        ahead = step / length if length > 0.05 else ahead
        directions.append(ahead)
    along = np.array(directions)
    across = np.stack((-along[:, 1], along[:, 0]), axis=1)  # to the left
    offset = waypoints_base_m - truth_base_m
    return np.stack(((offset * along).sum(axis=1), (offset * across).sum(axis=1)), axis=1)


def _ask_one(session: PlanningSession, record: DrivingRecord) -> dict:
    frames = session.window_frames
    if frames > 1:
        record.shown(frames)  # it has them
        session.reset()
        for ago in range(frames - 1, 0, -1):
            session.show(record.observation(ago=ago))
    observation = record.observation()
    start = time.perf_counter()
    result = session.plan(observation)
    planned = time.perf_counter()
    try:
        description, _ = session.describe(observation)
    except FloatingPointError:
        description = None
        session.reset()
    described = time.perf_counter()
    offset = np.full((WAYPOINTS, 2), np.nan)
    if result.plan is not None:
        offset = offsets_m(result.plan.waypoints_base_m, record.waypoints_base_m)
    said = read_description(description.text) if description else None
    return {
        'offset_m': offset,
        'refusals': result.reason,
        'forwards': result.counts.denoising_forwards + result.counts.commit_forwards,
        'tokens': result.counts.answer_tokens,
        'seconds': planned - start,
        'decode_s': dict(result.timings.stages_ns)['decode'] / 1e9,
        'description_s': described - planned,
        'readable': said is not None,
        'objects': [said is not None and said.objects[name] for name in OBJECTS],
        'longitudinal_right': said is not None and said.longitudinal == record.longitudinal,
        'lateral_right': said is not None and said.lateral == record.lateral,
    }


def _stack(rows: list[dict]) -> Answers:
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    reasons = Counter(reason for reason in columns.pop('refusals') if reason)
    arrays = {name: np.array(values) for name, values in columns.items()}
    return Answers(refusals=reasons, **arrays)
