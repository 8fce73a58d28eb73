"""What the player plays, as messages: bags, videos, numbered images and ego logs."""

import array
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from nav_msgs.msg import Odometry
from rclpy.serialization import deserialize_message
from sensor_msgs.msg import CameraInfo, CompressedImage, Image

from ..message_time import header_ns
from ..recordings import sources
from ..recordings.bag import BagReader, read_serialised
from ..recordings.sources import SourceError
from ..types import EgoState
from .conversion import time_message

IMAGE_TOPIC = '/camera/front/image'
CAMERA_INFO_TOPIC = '/camera/front/camera_info'
ODOMETRY_TOPIC = '/odometry'
CAMERA_FRAME = 'camera_front_optical'
START_NS = 10**9  # a clock at zero counts as not set, so recordings without a clock begin at 1 s
JPEG_QUALITY = 90
# Another player of these would disturb the system that listens.
NOT_PLAYED_TOPICS = ('/clock', '/rosout', '/parameter_events', '/diagnostics')
OWN_COMMAND_TYPE = 'wamdiff_ros/msg/NavigationCommand'
LATENCY_LIMIT_NS = 10**9  # stamps farther than this from the bag's time are of another clock


@dataclass(frozen=True)
class Source:
    """Messages on a time line: every header stamp is of the clock of `stamp_ns`."""

    topics: dict[str, type]
    messages: Callable[[], Iterator[tuple[str, int, Any]]]  # (topic, stamp_ns, message)
    notes: tuple[str, ...] = ()  # what a user should know about it
    duration_ns: int = 0  # 0 when it is not known


def bag_source(bag: Path, topics: Collection[str] | None = None, raw: bool = False) -> Source:
    """Return the bag's messages; without `topics`, all but a planner's own. Raises BagError."""
    types: dict[str, type] = {}
    with BagReader(bag) as reader:
        available, notes, duration_ns = reader.topics, reader.notes, reader.duration_ns
    for topic in topics or ():
        if topic not in available:
            raise SourceError(f'{bag}: holds no topic {topic}; it has {", ".join(available)}')
    for topic, (type_name, _) in sorted(available.items()):
        if topic in (topics or ()) or (not topics and _is_input(topic, type_name)):
            try:
                types[topic] = message_type(type_name)
            except (ImportError, AttributeError):
                notes.append(f'{topic}: left out, {type_name} is not installed here')
    if not types:
        raise SourceError(f'{bag}: holds nothing to play; it has {", ".join(available) or "none"}')

    def messages():
        offset_ns = None
        for topic, _, time_ns, cdr in read_serialised(bag, types):
            message = deserialize_message(cdr, types[topic])
            if offset_ns is None and (header_ns := header_stamp_ns(message)):
                ahead_ns = header_ns - time_ns
                offset_ns = 0 if abs(ahead_ns) < LATENCY_LIMIT_NS else ahead_ns
            if raw and types[topic] is CompressedImage:
                message = _decoded(message)
            yield topic, time_ns + (offset_ns or 0), message

    published = {t: Image if raw and c is CompressedImage else c for t, c in types.items()}
    return Source(published, messages, tuple(notes), duration_ns)


def video_source(path: Path, ego: Iterable[EgoState], raw: bool = False) -> Source:
    """Return a video's frames together with the ego motion, until the shorter of them ends."""

    def pictures():
        for time_ns, bgr in sources.video_frames(path):
            yield time_ns, raw_image(bgr) if raw else jpeg_image(bgr)

    return _pictures_source(pictures, ego, raw)


def images_source(
    folder: Path, ego: Iterable[EgoState], rate_hz: float, raw: bool = False
) -> Source:
    """Return numbered images at `rate_hz` together with the ego motion."""
    files = sources.image_files(folder)

    def pictures():
        for i, path in enumerate(files):
            time_ns = round(i * 1e9 / rate_hz)
            if raw:
                yield time_ns, raw_image(_read_image(path))
            else:
                kind = 'png' if path.suffix.lower() == '.png' else 'jpeg'
                yield time_ns, _compressed(path.read_bytes(), kind)

    first = _read_image(files[0])
    calib = folder / 'calib.txt'
    info = _camera_info(calib, first.shape) if calib.exists() else None
    source = _pictures_source(pictures, ego, raw, info)
    return Source(source.topics, source.messages, (), round(len(files) * 1e9 / rate_hz))


def ego_source(ego: Iterable[EgoState]) -> Source:
    """Return odometry alone."""

    def messages():
        for state in ego:
            yield ODOMETRY_TOPIC, START_NS + state.stamp_ns, odometry(state, START_NS)

    return Source({ODOMETRY_TOPIC: Odometry}, messages)


def message_type(type_name: str) -> type:
    """Return the class of 'pkg/msg/Name'; raises ImportError or AttributeError."""
    package, _, name = type_name.split('/')
    return getattr(import_module(f'{package}.msg'), name)


def header_stamp_ns(message: Any) -> int:
    """Return the header's stamp, 0 where there is none."""
    return header_ns(message) if hasattr(message, 'header') else 0


def jpeg_image(bgr: np.ndarray) -> CompressedImage:
    """Return a JPEG message of uint8 BGR [height, width, 3]; the stamp is left open."""
    _, data = cv2.imencode('.jpg', bgr, [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])
    return _compressed(data.tobytes(), 'jpeg')


def raw_image(bgr: np.ndarray) -> Image:
    """Return a bgr8 message of uint8 BGR [height, width, 3]; the stamp is left open."""
    height, width, _ = bgr.shape
    image = Image(height=height, width=width, encoding='bgr8', step=3 * width)
    image.header.frame_id = CAMERA_FRAME
    # An array is taken over as it is; bytes would be checked and copied one by one.
    image.data = array.array('B', bgr.tobytes())
    return image


def odometry(state: EgoState, offset_ns: int = 0) -> Odometry:
    """Return the ego state as a message, stamped `offset_ns` later."""
    message = Odometry(child_frame_id=state.base_frame)
    message.header.stamp = time_message(state.stamp_ns + offset_ns)
    message.header.frame_id = state.fixed_frame
    position, orientation = message.pose.pose.position, message.pose.pose.orientation
    position.x, position.y, position.z = state.position_fixed_m
    orientation.x, orientation.y, orientation.z, orientation.w = state.orientation_xyzw
    message.twist.twist.linear.x, message.twist.twist.linear.y = state.velocity_base_mps
    message.twist.twist.angular.z = state.yaw_rate_radps
    return message


def _pictures_source(pictures, ego, raw, info: CameraInfo | None = None) -> Source:
    def messages():
        if info is not None:
            info.header.stamp = time_message(START_NS)
            yield CAMERA_INFO_TOPIC, START_NS, info
        states = iter(ego)
        state = next(states, None)
        for time_ns, image in pictures():
            while state is not None and state.stamp_ns <= time_ns:
                yield ODOMETRY_TOPIC, START_NS + state.stamp_ns, odometry(state, START_NS)
                state = next(states, None)
            image.header.stamp = time_message(START_NS + time_ns)
            yield IMAGE_TOPIC, START_NS + time_ns, image
            if state is None:
                return

    topics = {ODOMETRY_TOPIC: Odometry, IMAGE_TOPIC: Image if raw else CompressedImage}
    if info is not None:
        topics[CAMERA_INFO_TOPIC] = CameraInfo
    return Source(topics, messages)


def _is_input(topic: str, type_name: str) -> bool:
    own = type_name.startswith('wamdiff_ros/') and type_name != OWN_COMMAND_TYPE
    shown = type_name in ('visualization_msgs/msg/MarkerArray', 'nav_msgs/msg/Path')
    return not (own or shown or topic in NOT_PLAYED_TOPICS)


def _compressed(data: bytes, kind: str) -> CompressedImage:
    image = CompressedImage(format=kind, data=array.array('B', data))
    image.header.frame_id = CAMERA_FRAME
    return image


def _decoded(message: CompressedImage) -> Image:
    bgr = cv2.imdecode(np.frombuffer(message.data, np.uint8), cv2.IMREAD_COLOR)
    if bgr is None:
        raise SourceError(f'a {message.format} image of the bag cannot be decoded')
    image = raw_image(bgr)
    image.header = message.header
    return image


def _read_image(path: Path) -> np.ndarray:
    bgr = cv2.imread(str(path), cv2.IMREAD_COLOR)
    if bgr is None:
        raise SourceError(f'{path}: cannot be decoded as an image')
    return bgr


def _camera_info(calib: Path, shape: tuple) -> CameraInfo:
    fx, fy, cx, cy = sources.kitti_intrinsics(calib)
    info = CameraInfo(height=shape[0], width=shape[1], distortion_model='plumb_bob')
    info.header.frame_id = CAMERA_FRAME
    info.d = [0.0] * 5
    info.k = [fx, 0.0, cx, 0.0, fy, cy, 0.0, 0.0, 1.0]
    info.r = [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]
    info.p = [fx, 0.0, cx, 0.0, 0.0, fy, cy, 0.0, 0.0, 0.0, 1.0, 0.0]
    return info
