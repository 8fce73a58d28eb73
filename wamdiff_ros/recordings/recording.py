"""A bag as the planner's sensors saw it: its messages in the order of their header stamps.

The first reading takes in the motion and the stamps of the pictures; the second one the pictures
themselves, of which it holds only those that the recorder wrote out of order.
"""

import json
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from scipy.ndimage import median_filter

from ..camera_parameters import Camera
from ..observation import messages
from ..observation.camera_info import pinhole_of
from ..observation.frame_buffer import EncodedFrame
from ..parameters import Parameters
from ..pinhole import Pinhole
from .bag import BagReader
from .bag_files import BagError
from .timeline import TRUTH_TOPIC
from .topics import IMAGE_TYPES, TopicChoice, choose_topics

CAMERA_INFO_TYPE, TRANSFORM_TYPE = 'sensor_msgs/msg/CameraInfo', 'tf2_msgs/msg/TFMessage'
NEIGHBOURS = 10  # on each side, whose median a stamp has to be near to
NOTES = 20  # of refused messages, the most frequent ones
UNUSED_NS = np.iinfo(np.int64).max  # in place of the stamp of a picture that is not used


class Recording:
    """What of a bag goes to the planner; raises BagError where nothing can be planned from it.

    `motion` holds (stamp, name, noun) in the order of stamps: an EgoState of 'odometry', (stamp,
    forward, left) of 'acceleration', a Command of 'navigation_command'. `worlds` is a simulator's
    ground truth as (stamp, JSON object). `camera` is the camera that sets t0, where the bag
    describes it, and `first_ns` … `last_ns` are the stamps of its pictures. `used` counts
    messages by the planner's names, `notes` says what is odd about the bag.
    """

    def __init__(self, reader: BagReader, parameters: Parameters, choice: TopicChoice) -> None:
        self._reader = reader
        self._cameras = {camera.name: camera for camera in parameters.camera_settings}
        self._max_ahead_ns = round(parameters.jump_threshold_s * 1e9)
        self.topics = choose_topics(reader.topics, parameters, choice)
        self._camera_of = {topic: self._cameras[n] for n, topic in self.topics.cameras.items()}
        self.notes = list(reader.notes)
        self.camera: Pinhole | None = None
        self.worlds: list[tuple[int, dict[str, Any]]] = []
        self._pictures: list[tuple[str, int]] = []  # (camera, stamp), as in the file
        self._stored: dict[str, list[tuple[int, Any]]] = defaultdict(list)  # likewise, by name
        self._refused: Counter[str] = Counter()
        self._read()
        self._leave_out_strays()
        entries = [(ns, name, noun) for name, kept in self._stored.items() for ns, noun in kept]
        self.motion = sorted(entries, key=lambda entry: entry[0])
        self.used = Counter(name for _, name, _ in self.motion)
        self.used.update(f'camera.{name}' for name, ns in self._pictures if ns != UNUSED_NS)
        for reason, count in self._refused.most_common(NOTES):
            self.notes.append(f'{reason} ({count} of the messages)')
        self.first_ns, self.last_ns = self._span()

    def pictures(self) -> Iterator[EncodedFrame | None]:
        """Read the pictures as they are in the file, None for one that is not used."""
        stored = self._reader.serialised(self._camera_of)
        # Not strict: a damaged bag has ended in the first reading.
        for (_, stamp_ns), (topic, kind, _, cdr) in zip(self._pictures, stored, strict=False):
            if stamp_ns == UNUSED_NS:
                yield None
            else:
                message = self._reader.deserialise(topic, kind, cdr)
                yield _encoded(message, kind, self._camera_of[topic])

    def pictures_before(self, times_ns: Iterable[int]) -> Iterator[tuple[int, EncodedFrame]]:
        """Yield (time, newest picture of the first camera by then), in the order of the file."""
        first = next(iter(self._cameras))
        stamps_ns = sorted(ns for name, ns in self._pictures if name == first and ns != UNUSED_NS)
        wanted: dict[int, list[int]] = defaultdict(list)
        for time_ns in times_ns:
            if at := bisect_right(stamps_ns, time_ns):
                wanted[stamps_ns[at - 1]].append(time_ns)
        for frame in self.pictures():
            if not wanted:
                return
            if frame is not None and frame.camera == first:
                for time_ns in wanted.pop(frame.stamp_ns, ()):
                    yield time_ns, frame

    def least_stamps_ahead(self) -> list[int]:
        """Return, for each picture of the file, the least stamp from there on [ns]."""
        stamps_ns = np.array([ns for _, ns in self._pictures], np.int64)
        return np.minimum.accumulate(stamps_ns[::-1])[::-1].tolist()

    # -- the first reading --------------------------------------------------------------------

    def _read(self) -> None:
        infos: list[Any] = []
        transforms: list[Any] = []
        frame_ids: dict[str, str] = {}
        sinks = self._sinks(infos, transforms)
        try:
            for topic, kind, _, cdr in self._reader.serialised({*sinks, *self._camera_of}):
                camera = self._camera_of.get(topic)
                if camera is not None:
                    self._pictures.append((camera.name, UNUSED_NS))
                try:
                    message = self._reader.deserialise(topic, kind, cdr)
                    if camera is None:
                        sinks[topic](message)
                        continue
                    frame_ids.setdefault(camera.name, message.header.frame_id)
                    stamp_ns = _encoded(message, kind, camera).stamp_ns
                    self._pictures[-1] = (camera.name, stamp_ns)
                except (ValueError, BagError) as error:
                    self._refused[f'{topic}: {error}'] += 1
        except BagError as error:
            self.notes.append(f'{error}; what comes before is used')
        self.worlds.sort(key=lambda world: world[0])
        frame_id = frame_ids.get(next(iter(self._cameras)))
        infos = [info for info in infos if info.header.frame_id == frame_id]
        self.camera = pinhole_of(infos[0], transforms) if infos else None

    def _sinks(self, infos: list, transforms: list) -> dict[str, Callable[[Any], None]]:
        """Return what takes the messages of each topic but the pictures'."""
        stored = self._stored

        def add_state(message):
            state = messages.ego_state(message)
            stored['odometry'].append((state.stamp_ns, state))

        def add_acceleration(message):
            sample = messages.acceleration(message)
            stored['acceleration'].append((sample[0], sample))

        def add_command(message):
            command = messages.command(message)
            stamp_ns = messages.stamp_ns(message.header.stamp)
            stored['navigation_command'].append((stamp_ns, command))

        def add_world(message):
            try:
                world = json.loads(message.data)
                self.worlds.append((int(world['stamp_ns']), world))
            except (KeyError, TypeError) as error:
                raise ValueError(f'is no ground truth ({error!r})') from error

        topics = self.topics
        named = {topics.acceleration: add_acceleration, topics.command: add_command}
        sinks = {topic: sink for topic, sink in named.items() if topic is not None}
        sinks[topics.odometry] = add_state
        for topic, (kind, _) in self._reader.topics.items():
            if topic == TRUTH_TOPIC:
                sinks[topic] = add_world
            elif kind == CAMERA_INFO_TYPE:
                sinks[topic] = infos.append
            elif kind == TRANSFORM_TYPE and 'static' in topic:
                sinks[topic] = lambda message: transforms.extend(message.transforms)
        return sinks

    # -- stamps -------------------------------------------------------------------------------

    def _leave_out_strays(self) -> None:
        for name, topic in self.topics.cameras.items():
            at = [i for i, (n, ns) in enumerate(self._pictures) if n == name and ns != UNUSED_NS]
            for i in self._strays(topic, [self._pictures[i][1] for i in at]):
                self._pictures[at[i]] = (name, UNUSED_NS)
        for name in ('odometry', 'acceleration'):
            topic = getattr(self.topics, name)
            strays = self._strays(topic, [stamp_ns for stamp_ns, _ in self._stored[name]])
            self._stored[name] = [e for i, e in enumerate(self._stored[name]) if i not in strays]

    def _strays(self, topic: str | None, stamps: list[int]) -> set[int]:
        """Return which stamps are of another time than those around them in the file.

        Raises BagError when they go back and stay there: the buffers know one time only.
        """
        if len(stamps) < 3:
            return set()
        stamps_ns = np.array(stamps, np.int64)
        period_ns = int(np.median(np.abs(np.diff(stamps_ns))))
        limit_ns = self._max_ahead_ns + NEIGHBOURS * period_ns
        middle_ns = median_filter(stamps_ns, 2 * NEIGHBOURS + 1, mode='mirror')
        astray = np.abs(stamps_ns - middle_ns) > limit_ns
        if astray.any():
            reason = f'{topic}: header.stamp is of another time than those around it'
            self._refused[reason] += int(astray.sum())
        kept_ns = stamps_ns[~astray]
        back_ns = np.maximum.accumulate(kept_ns) - kept_ns
        if back_ns.max(initial=0) > limit_ns:
            raise BagError(
                f'{self._reader.path}: the stamps on {topic} go back by '
                f'{back_ns.max() / 1e9:.1f} s, so it holds several runs; record them one by one'
            )
        return set(np.flatnonzero(astray).tolist())

    def _span(self) -> tuple[int, int]:
        """Return the stamps of the first camera's first and last picture. Raises BagError."""
        path, first = self._reader.path, next(iter(self._cameras))
        reasons = '; '.join(self.notes) or 'they are empty'
        for name, topic in self.topics.cameras.items():
            if not self.used[f'camera.{name}']:
                raise BagError(f'{path}: no picture on {topic} can be used ({reasons})')
        if not self.used['odometry']:
            raise BagError(f'{path}: no message on {self.topics.odometry} can be used ({reasons})')
        stamps_ns = [ns for name, ns in self._pictures if name == first and ns != UNUSED_NS]
        motion_ns = [stamp_ns for stamp_ns, _ in self._stored['odometry']]
        if max(stamps_ns) < min(motion_ns) or max(motion_ns) < min(stamps_ns):
            raise BagError(
                f'{path}: the pictures on {self.topics.cameras[first]} are stamped '
                f'{min(stamps_ns) / 1e9:.1f} to {max(stamps_ns) / 1e9:.1f} s, the odometry on '
                f'{self.topics.odometry} {min(motion_ns) / 1e9:.1f} to {max(motion_ns) / 1e9:.1f} '
                's: two clocks; make the drivers use one'
            )
        return min(stamps_ns), max(stamps_ns)


def _encoded(message: Any, kind: str, camera: Camera) -> EncodedFrame:
    raw = kind == IMAGE_TYPES['raw']
    return (messages.encoded_raw if raw else messages.encoded_compressed)(message, camera)
