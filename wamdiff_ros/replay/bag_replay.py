"""Replay one bag into a folder; docs/replay.md says what is in there."""

import json
import shutil
from collections import Counter, defaultdict
from dataclasses import asdict
from pathlib import Path
from typing import Any

import cv2
from tqdm import tqdm

from ..evaluation import metrics
from ..message_time import header_ns
from ..observation.image_decoding import ImageError
from ..parameters import Parameters
from ..pinhole import Pinhole
from ..recordings.bag import BagReader, BagWriter, typestore
from ..recordings.bag_files import BagError
from ..recordings.recording import NOTES, Recording
from ..runtime.stream import Session
from . import plan_messages
from .ground_truth import GroundTruth
from .replay_loop import ReplayLoop
from .replay_run import read_bag
from .replay_settings import ReplaySettings
from .tick_row import plain, tick_row, timing_row, to_line

THUMBNAIL_WIDTH, THUMBNAIL_QUALITY = 480, 85
LATENCY_LIMIT_NS = 10**9  # stamps farther than this from the bag's time are of another clock


def replay_bag(
    session: Session, settings: ReplaySettings, bag: Path, folder: Path, label: str = ''
) -> dict[str, Any]:
    """Replay `bag` into `folder`, which may hold an earlier attempt; return bag.json.

    `label` is shown beside the progress bar. Raises BagError, and OSError where the folder cannot
    be written; bag.json says `done` only when everything else is there.
    """
    make_room(folder)
    info: dict[str, Any] = {
        'name': folder.name, 'path': str(bag), 'status': 'pending', 'reason': '',
        'settings': settings.digest,
    }  # fmt: skip
    write_json(folder / 'bag.json', info)
    parameters = settings.parameters
    with BagReader(bag) as reader:
        recording = Recording(reader, parameters, settings.choice)
        start_ns, end_ns = _span(bag, recording, settings)
        loop = ReplayLoop(session, parameters, recording, start_ns, end_ns)
        with BagWriter(folder / 'bag') as output:
            notes = list(recording.notes)
            if settings.with_input:
                notes += _copy_input(reader, recording, output)
            counts = _write_ticks(session, parameters, recording, loop, folder, output, label)
        notes += [f'{reason} ({n} messages)' for reason, n in loop.refused.most_common(NOTES)]
        notes += loop.undecodable
        notes += [f'an inference failed:\n{loop.failure}'] if loop.failure else []
        info |= {
            'topics': recording.topics.to_json(),
            'messages': dict(sorted(recording.used.items())),
            'counters': loop.counters,
            'notes': notes,
            'start_ns': start_ns,
            'end_ns': end_ns,
            'period_ns': parameters.period_ns,
            'ticks': dict(sorted(counts.items())),
            'backend': session.backend,
            'camera': _camera(recording.camera),
        }
        write_json(folder / 'bag.json', info)
        judged = metrics.judge(read_bag(folder))
        metrics.write(judged, folder)
        _write_thumbnails(recording, judged, folder)
    info['status'] = 'done'
    write_json(folder / 'bag.json', info)
    return info


def make_room(folder: Path) -> None:
    """Make the folder, or empty it if it is of an earlier attempt. Raises BagError."""
    if folder.exists() and any(folder.iterdir()):
        if read_info(folder) is None:
            raise BagError(f'{folder}: is in the way and not of `wamdiff replay`; move it')
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)


def read_info(folder: Path) -> dict[str, Any] | None:
    """Return the bag.json of a folder, None when there is none that can be read."""
    try:
        info = json.loads((folder / 'bag.json').read_text('utf8'))
    except (OSError, ValueError):
        return None
    return info if isinstance(info, dict) and 'settings' in info else None


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write the file at once, so that it is never found half written."""
    text = json.dumps(plain(content), indent=1, ensure_ascii=False, allow_nan=False)
    part = path.with_name(path.name + '.part')
    part.write_text(text + '\n', 'utf8')
    part.replace(path)


def _span(bag: Path, recording: Recording, settings: ReplaySettings) -> tuple[int, int]:
    start_ns = recording.first_ns + round(settings.start_s * 1e9)
    if start_ns > recording.last_ns:
        lasts_s = (recording.last_ns - recording.first_ns) / 1e9
        raise BagError(f'{bag}: lasts {lasts_s:.1f} s, so --start {settings.start_s:g} is beyond')
    if settings.duration_s is None:
        return start_ns, recording.last_ns
    return start_ns, min(recording.last_ns, start_ns + round(settings.duration_s * 1e9))


def _write_ticks(
    session: Session,
    parameters: Parameters,
    recording: Recording,
    loop: ReplayLoop,
    folder: Path,
    output: BagWriter,
    label: str,
) -> Counter[str]:
    """Go through the ticks and write them down; return how many there were of each status."""
    truth = GroundTruth.of(recording, parameters)
    in_fixed_frame = parameters.trajectory_frame == 'fixed'
    counts: Counter[str] = Counter()
    with (
        (folder / 'ticks.jsonl').open('w', encoding='utf8', newline='\n') as rows,
        (folder / 'timings.jsonl').open('w', encoding='utf8', newline='\n') as timings,
    ):
        bar = tqdm(loop.ticks(), label or folder.name, len(loop), unit='tick', disable=None)
        for tick in bar:
            row = tick_row(tick, truth)
            rows.write(to_line(row))
            timings.write(to_line(timing_row(tick)))
            counts[row['status']] += 1
            published = plan_messages.tick_messages(
                tick, row['truth_base_m'], in_fixed_frame, session, loop.counters
            )
            for topic, message in published:
                output.write_message(topic, tick.now_ns, message)
    return counts


def _copy_input(reader: BagReader, recording: Recording, output: BagWriter) -> list[str]:
    """Copy all topics but /clock and the planner's own; return what had to be left out."""
    camera = next(iter(recording.topics.cameras.values()))
    _, kind, time_ns, cdr = next(reader.serialised([camera]))
    ahead_ns = header_ns(reader.deserialise(camera, kind, cdr)) - time_ns
    offset_ns = 0 if abs(ahead_ns) < LATENCY_LIMIT_NS else ahead_ns
    left_out = {'/clock', *plan_messages.TOPICS}
    notes = []
    for topic, (kind, _) in reader.topics.items():
        if kind not in typestore().fielddefs:
            left_out.add(topic)
            notes.append(f'{topic}: {kind} is not known here, so it is not in the output bag')
    try:
        for topic, kind, time_ns, cdr in reader.serialised(set(reader.topics) - left_out):
            output.write(topic, kind, time_ns + offset_ns, cdr)
    except BagError:
        pass  # where a damaged recording ends is among its notes already
    return notes


def _write_thumbnails(recording: Recording, judged: metrics.Judged, folder: Path) -> None:
    """Write the pictures that the worst ticks planned from."""
    replay, ticks_at = judged.replay, defaultdict(list)
    for place in judged.worst():
        time_ns = int(replay.t0_ns[place]) or int(replay.grid_ns[place])
        ticks_at[time_ns].append(int(replay.tick[place]))
    (folder / 'thumbnails').mkdir()
    for time_ns, frame in recording.pictures_before(ticks_at):
        try:
            rgb = frame.decode()
        except ImageError:
            continue  # counted as undecodable already
        height = max(1, round(THUMBNAIL_WIDTH * rgb.shape[0] / rgb.shape[1]))
        small = cv2.resize(rgb, (THUMBNAIL_WIDTH, height), interpolation=cv2.INTER_AREA)
        quality = [cv2.IMWRITE_JPEG_QUALITY, THUMBNAIL_QUALITY]
        _, jpeg = cv2.imencode('.jpg', small[..., ::-1], quality)
        for tick in ticks_at[time_ns]:
            (folder / 'thumbnails' / f'{tick:06d}.jpg').write_bytes(jpeg.tobytes())


def _camera(camera: Pinhole | None) -> dict[str, Any] | None:
    return None if camera is None else plain(asdict(camera))
