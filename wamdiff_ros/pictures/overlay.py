"""Render a recording as a video: the plan in force, drawn into each camera frame.

Above the picture lies what the planner said about itself, below it what it said about the
scene; the inset shows the plan and the path that was really driven from above.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from ..message_time import header_ns
from ..observation.image_decoding import decode_compressed, decode_raw
from ..pinhole import Pinhole
from ..planning.figure import DrawnPlan
from ..recordings.bag import BagError, read_messages
from ..recordings.timeline import Timeline, read_timeline
from ..types import PlanStatus
from .overlay_painter import Instant, OverlayPainter, Shapes, video_camera
from .video import VideoWriter

SILENT_AFTER_NS = 1_000_000_000  # a plan that nobody renewed for so long is no longer shown


@dataclass(frozen=True, eq=False)
class Overlay:
    """What was rendered; `still` is one RGB frame of it to show elsewhere."""

    frames: int
    still: np.ndarray


def render_overlay(
    bag: Path,
    output: Path,
    camera: Pinhole | None = None,
    image_topic: str | None = None,
    note: str = '',
    shapes_of: Callable[[dict[str, Any]], Shapes] = lambda truth: (),
) -> Overlay:
    """Render the recording `bag` as the mp4 file `output`.

    Without `camera` the recording's own CameraInfo and transform apply, or else a level camera
    with 60 degrees horizontal field of view, 1.5 m high and 1.5 m before base_link. `note` is
    shown in every frame, and `shapes_of` makes what is seen from above of a simulator's ground
    truth. Raises BagError and VideoError.
    """
    timeline = read_timeline(bag, image_topic)
    stamps_ns, first = _image_stamps(bag, timeline)
    height, width = first.shape[:2]
    painter = OverlayPainter(video_camera(camera or timeline.camera, width, height), note)
    rate_hz = (len(stamps_ns) - 1) * 1e9 / max(stamps_ns[-1] - stamps_ns[0], 1)
    still, still_rank = None, -1
    with VideoWriter(output, *painter.frame_size, rate_hz) as video:
        frames = tqdm(
            _frames(bag, timeline), 'rendering', len(stamps_ns), unit='frame', disable=None
        )
        for index, (stamp_ns, rgb) in enumerate(frames):
            instant = _instant_at(timeline, stamp_ns, rgb, shapes_of)
            picture = painter.paint(instant)
            video.add(picture, (stamp_ns - stamps_ns[0]) / 1e9)
            rank = _still_rank(instant, index / len(stamps_ns))
            if rank > still_rank:
                still, still_rank = picture, rank
    return Overlay(len(stamps_ns), still)


def _frames(bag: Path, timeline: Timeline) -> Iterator[tuple[int, np.ndarray]]:
    for _, _, _, message in read_messages(bag, [timeline.image_topic]):
        yield header_ns(message), _decoded(message)


def _image_stamps(bag: Path, timeline: Timeline) -> tuple[list[int], np.ndarray]:
    stamps_ns, first = [], None
    for _, _, _, message in read_messages(bag, [timeline.image_topic]):
        first = _decoded(message) if first is None else first
        stamps_ns.append(header_ns(message))
    if first is None:
        raise BagError(f'{bag}: holds no images on {timeline.image_topic}')
    return stamps_ns, first


def _decoded(message: Any) -> np.ndarray:
    if hasattr(message, 'format'):
        return decode_compressed(message.data, message.format)
    return decode_raw(
        message.encoding, message.height, message.width, message.step, message.data,
        bool(message.is_bigendian),
    )  # fmt: skip


def _instant_at(timeline: Timeline, stamp_ns: int, rgb: np.ndarray, shapes_of) -> Instant:
    ego, plan = timeline.ego.at(stamp_ns), timeline.plan_at(stamp_ns)
    drawn, driven = None, np.zeros((0, 3))
    if plan is not None and stamp_ns - plan.published_ns <= SILENT_AFTER_NS:
        known = ego is not None and len(plan.time_s) >= 2
        where = (timeline.plan_in_base(plan, ego) if known else None) or (None, None)
        age_s = (stamp_ns - plan.t0_ns) / 1e9
        drawn = DrawnPlan(plan.status, age_s, plan.time_s, plan.speed_mps, *where)
    if ego is not None:
        ahead = timeline.ego.times_ns - stamp_ns
        driven = ego.to_base(timeline.ego.positions_m[(ahead >= 0) & (ahead <= 4e9)])
    speed_mps = None if ego is None else ego.speed_mps
    instant = Instant(rgb, speed_mps, drawn, driven, timeline.description_at(stamp_ns))
    if truth := timeline.truth_at(stamp_ns):
        instant = replace(
            instant,
            chips=(f'go {truth["command"]}',),
            faults=tuple(truth['faults']),
            shapes_base_m=shapes_of(truth),
        )
    return instant


def _still_rank(instant: Instant, progress: float) -> float:
    """Prefer frames of about two fifths of the way with a plan of their own and words."""
    shown = 0 if instant.plan is None else 2 if instant.plan.status is PlanStatus.NOMINAL else 1
    return 10 * shown + 5 * bool(instant.description) + 1 - abs(progress - 0.4)
