"""The replay of one bag as a video: each tick's camera picture, with what was published in it.

Made of the recording and of ticks.jsonl when the replay is done, so that painting takes no time
from what is measured, and changes nothing of what is left.
"""

import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial.transform import Rotation
from tqdm import tqdm

from ..observation.image_decoding import ImageError
from ..observation.not_ready import NotReady
from ..observation.synchronizer import Synchronizer
from ..parameters import Parameters
from ..pictures.overlay_painter import NO_CAMERA_INFO, Instant, OverlayPainter, video_camera
from ..pictures.video import VideoWriter
from ..planning.figure import DrawnPlan, Footprint, in_base
from ..recordings.bag import BagReader
from ..recordings.bag_files import BagError
from ..recordings.recording import Recording
from ..types import EgoState, PlanStatus
from .feed import Feed
from .ground_truth import GroundTruth
from .replay_run import VIDEO, read_ticks
from .replay_settings import ReplaySettings

REASON_LETTERS = 90  # in the picture, up to the view from above


def write_video(settings: ReplaySettings, bag: Path, folder: Path) -> None:
    """Write plan.mp4, a frame per tick, into `folder`, which holds the replay of `bag`.

    Raises BagError, ReplayError, VideoError, and OSError where it cannot be written.
    """
    parameters, part = settings.parameters, folder / f'part.{VIDEO}'
    ticks = sum(1 for _ in read_ticks(folder))
    with BagReader(bag) as reader:
        recording = Recording(reader, parameters, settings.choice)
        first = _first_picture(bag, recording, parameters.camera_settings[0].name)
        drive = _Drive(recording, parameters, np.zeros_like(first))
        painter = _painter(recording, first.shape, settings.model, parameters)
        try:
            with VideoWriter(part, *painter.frame_size, 1e9 / parameters.period_ns) as video:
                rows = tqdm(
                    read_ticks(folder), f'{folder.name}: video', ticks, unit='frame', disable=None
                )
                said = ''
                for tick, row in enumerate(rows):
                    if row['description'] is not None:
                        said = row['description']['text']
                    drive.go_on_to(row['grid_ns'])
                    picture = painter.paint(_instant(row, drive, said))
                    video.add(picture, tick * parameters.period_ns * 1e-9)
            part.replace(folder / VIDEO)
        finally:
            part.unlink(missing_ok=True)


class _Drive:
    """The recording as of an instant: `rgb` is the first camera's picture, `ego` the vehicle then.

    `ego` is None where odometry does not say; a picture that cannot be decoded leaves the one
    before it.
    """

    def __init__(self, recording: Recording, parameters: Parameters, rgb: np.ndarray) -> None:
        synchronizer = Synchronizer(parameters)
        camera = parameters.camera_settings[0].name
        self.rgb = rgb
        self.ego: EgoState | None = None
        self._shown_ns = -1
        self._truth = GroundTruth.of(recording, parameters)
        self._frames, self._buffer = synchronizer.frames[camera], synchronizer.ego
        # A drive that does not go on from the one before takes no picture away.
        self._feed = Feed(recording, synchronizer, parameters, lambda _: self._buffer.clear())

    def go_on_to(self, time_ns: int) -> None:
        """Take in what is stamped up to `time_ns`; never back."""
        self._feed.until(time_ns)
        while (frame := self._frames.newest_before(time_ns)) is not None:
            if frame.stamp_ns <= self._shown_ns:
                break
            try:
                self.rgb, self._shown_ns = frame.decode(), frame.stamp_ns
            except ImageError as error:
                self._frames.reject(frame, str(error))
        try:
            self.ego = self._buffer.at(self._shown_ns)
        except NotReady:
            self.ego = None

    def driven_base_m(self) -> np.ndarray:
        """Return the way [M, 3] of the seconds to come, in base, as far as it is known."""
        return np.zeros((0, 3)) if self.ego is None else self._truth.way_ahead(self.ego)


def _first_picture(bag: Path, recording: Recording, camera: str) -> np.ndarray:
    for frame in recording.pictures():
        if frame is not None and frame.camera == camera:
            try:
                return frame.decode()
            except ImageError:
                continue  # is among the replay's notes
    raise BagError(f'{bag}: no picture of camera {camera} can be decoded')


def _painter(
    recording: Recording, shape: tuple[int, ...], model: str, parameters: Parameters
) -> OverlayPainter:
    height, width, _ = shape
    note = f'replay of {model}'
    if recording.camera is None:
        note += f'; {NO_CAMERA_INFO}'
    camera = video_camera(recording.camera, width, height)
    return OverlayPainter(camera, note, Footprint.of(parameters), judging=True)


def _instant(row: dict[str, Any], drive: _Drive, said: str) -> Instant:
    reason = textwrap.shorten(row['reason'], REASON_LETTERS, placeholder=' …')
    return Instant(
        rgb=drive.rgb,
        speed_mps=None if drive.ego is None else drive.ego.speed_mps,
        plan=_drawn(row, drive.ego),
        driven_base_m=drive.driven_base_m(),
        description=said,
        chips=(f'go {row["command"]}',),
        faults=(reason,) if reason else (),
    )


def _drawn(row: dict[str, Any], ego: EgoState | None) -> DrawnPlan | None:
    """Return what the tick published, in base at `ego`; None while WAITING."""
    path, start = row['trajectory'], row['ego']
    if path is None:
        return None
    base = Rotation.from_quat(start['orientation_xyzw'])
    x_m, heading_rad = np.array(path['x_base_m']), np.array(path['heading_base_rad'])
    xyz_m = np.stack([x_m, path['y_base_m'], 0 * x_m], axis=-1)
    ahead = np.stack([np.cos(heading_rad), np.sin(heading_rad), 0 * heading_rad], axis=-1)
    plan = DrawnPlan(
        status=PlanStatus[row['status']],
        age_s=row['age_ns'] * 1e-9,
        time_s=np.array(path['time_s']),
        speed_mps=np.array(path['speed_mps']),
        positions_m=base.apply(xyz_m) + start['position_fixed_m'],
        headings=base.apply(ahead),
    )
    if ego is None or ego.fixed_frame != start['fixed_frame']:
        return replace(plan, positions_m=None, headings=None)
    return in_base(plan, ego)
