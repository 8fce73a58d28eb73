"""One Observation out of everything that has arrived."""

from dataclasses import fields

from ..parameters import Parameters
from ..types import CameraFrame, Command, Observation
from .ego_buffer import EgoBuffer
from .frame_buffer import EncodedFrame, FrameBuffer
from .image_decoding import ImageError
from .not_ready import NotReady
from .picture_guard import PictureGuard

FRAMES_PER_CAMERA = 8  # held encoded; a tick uses the newest, or the next when that is broken
EGO_HISTORY_NS = 3_000_000_000


class Synchronizer:
    """Holds a FrameBuffer per camera, the EgoBuffer and the command in force.

    Callbacks add to `frames[camera]` and `ego` and set `command`; one inference thread calls
    `observe`. Stamps are those of the messages plus the camera's stamp offset.
    """

    def __init__(self, parameters: Parameters):
        self._cameras = parameters.camera_settings
        self._max_age_ns = round(parameters.max_frame_age_s * 1e9)
        self._max_skew_ns = round(parameters.max_camera_skew_s * 1e9)
        self.frames = {camera.name: FrameBuffer(FRAMES_PER_CAMERA) for camera in self._cameras}
        self.ego = EgoBuffer(EGO_HISTORY_NS, round(parameters.max_ego_gap_s * 1e9))
        self.command = Command(parameters.default_command)
        self._decoded: dict[str, CameraFrame] = {}
        self._pictures = {
            camera.name: PictureGuard(parameters.max_frozen_m) for camera in self._cameras
        }

    def observe(self, now_ns: int) -> Observation:
        """Return the observation at the newest usable frame of the first camera.

        Usable is a frame that each other camera has a frame near to: where those arrive later,
        the newest is not yet. No frame stamped after `now_ns` is used. A frame that cannot be
        decoded is dropped, counted, and the next newest one tried. Two calls may return the same
        t0. Raises NotReady with the reason.
        """
        failure = ''
        while True:
            try:
                chosen = self._choose(now_ns)
                ego = self.ego.at(chosen[0].stamp_ns)
            except NotReady as not_ready:
                raise NotReady(not_ready.reason + failure) from None
            try:
                frames = tuple(self._decode(frame) for frame in chosen)
            except _Undecodable as undecodable:
                failure = f'; a newer frame of camera {undecodable} was dropped'
                continue
            for frame in frames:
                if frozen := self._pictures[frame.camera].check(frame, ego):
                    raise NotReady(frozen)
            return Observation(chosen[0].stamp_ns, frames, ego, self.command)

    def reset(self) -> None:
        """Forget frames and ego states; the command stays in force and the counters go on."""
        for buffer in self.frames.values():
            buffer.clear()
        self.ego.clear()
        self._decoded = {}
        for guard in self._pictures.values():
            guard.reset()

    def counters(self) -> dict[str, int | str]:
        """Return all counters by name, `front.received`, `odometry.refused`, for diagnostics."""
        buffers: dict[str, FrameBuffer | EgoBuffer] = {**self.frames, 'odometry': self.ego}
        sources = {name: buffer.counters() for name, buffer in buffers.items()}
        return {
            f'{source}.{f.name}': getattr(counters, f.name)
            for source, counters in sources.items()
            for f in fields(counters)
        }

    def _choose(self, now_ns: int) -> list[EncodedFrame]:
        """Return one frame per camera, the one that sets t0 first."""
        first, *others = self._cameras
        frame = self.frames[first.name].newest_before(now_ns)
        if frame is None:
            raise NotReady(self._nothing_from(first, now_ns))
        age_ns = now_ns - frame.stamp_ns
        if age_ns > self._max_age_ns:
            raise NotReady(
                f'newest frame of camera {first.name} is {age_ns * 1e-9:.3f} s old, '
                f'limit {self._max_age_ns * 1e-9:.3f} s'
            )
        newest_misses = None
        while frame is not None and now_ns - frame.stamp_ns <= self._max_age_ns:
            try:
                return [frame, *self._near(frame, others, now_ns)]
            except NotReady as not_ready:
                newest_misses = newest_misses or not_ready
            frame = self.frames[first.name].newest_before(frame.stamp_ns - 1)
        raise newest_misses

    def _near(self, frame: EncodedFrame, others: list, now_ns: int) -> list[EncodedFrame]:
        """Return the frame of each other camera that goes with `frame`."""
        chosen = []
        for camera in others:
            near = self.frames[camera.name].nearest(frame.stamp_ns, latest_ns=now_ns)
            if near is None:
                raise NotReady(self._nothing_from(camera, now_ns))
            skew_ns = abs(near.stamp_ns - frame.stamp_ns)
            if skew_ns > self._max_skew_ns:
                raise NotReady(
                    f'nearest frame of camera {camera.name} is {skew_ns * 1e-9:.3f} s from t0, '
                    f'limit {self._max_skew_ns * 1e-9:.3f} s'
                )
            chosen.append(near)
        return chosen

    def _nothing_from(self, camera, now_ns: int) -> str:
        ahead = self.frames[camera.name].oldest()
        if ahead is None:
            return f'no frame from camera {camera.name} yet (topic {camera.topic})'
        return (
            f'all frames of camera {camera.name} are from the future, the next by '
            f'{(ahead.stamp_ns - now_ns) * 1e-9:.3f} s; check the clocks or '
            f'camera.{camera.name}.stamp_offset_s'
        )

    def _decode(self, frame: EncodedFrame) -> CameraFrame:
        """Decode once: a frame may serve several ticks."""
        last = self._decoded.get(frame.camera)
        if last is not None and last.stamp_ns == frame.stamp_ns:
            return last
        try:
            decoded = CameraFrame(frame.camera, frame.stamp_ns, frame.decode())
        except ImageError as error:
            self.frames[frame.camera].reject(frame, str(error))
            raise _Undecodable(f'{frame.camera} ({error})') from error
        self._decoded[frame.camera] = decoded
        return decoded


class _Undecodable(Exception):
    """A chosen frame turned out to be broken and has left its buffer."""
