"""What one training record holds: JSON beside its encoded images (docs/data.md).

What it teaches is the business of conversations.py, how records lie in files that of shards.py.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np
from PIL import Image as Picture

from ..types import CameraFrame, Command, EgoState, Observation

WAYPOINTS = 8  # every 0.5 s
SOURCES = ('expert', 'perturbed', 'dagger')
# The critical objects of a description, always written in this order.
OBJECTS = (
    'nearby_vehicle',
    'pedestrian',
    'cyclist',
    'construction',
    'traffic_element',
    'weather_condition',
    'road_hazard',
    'emergency_vehicle',
    'animal',
    'special_vehicle',
    'conflicting_vehicle',
    'door_opening_vehicle',
)
FORMATS = ('JPEG', 'PNG', 'WEBP')  # the other fifty decoders are doors that nobody needs
FRAME_INTERVAL_NS = 100_000_000  # between the frames of one record
_IMAGE_NAME = re.compile(r'(?P<camera>.*?)(?:-(?P<ago>[0-9]{1,3}))?(?:\.|^)[^.]*$', re.DOTALL)
PLACEHOLDER = '<image>'  # of an image in the text of a converted conversation


class RecordError(ValueError):
    """A record was refused; the message names the field, the value and what was wanted."""


@dataclass(frozen=True, eq=False)
class DrivingRecord:
    """One instant of the driving world, and what there is to learn from it.

    `images` maps member names, in the order of the cameras, to encoded pictures: 'jpg' for the
    front camera alone, else 'front.jpg', 'left.jpg', … Each may have pictures of some frames
    earlier before it, the oldest first: 'front-2.jpg', 'front-1.jpg', 'front.jpg'.
    """

    seed: int  # of the route
    time_s: float  # since the route's start
    source: str  # who drove: one of SOURCES
    command: Command
    velocity_base_mps: tuple[float, float]  # forward, left
    acceleration_base_mps2: tuple[float, float]
    yaw_rate_radps: float
    waypoints_base_m: np.ndarray  # [8, 2], every 0.5 s: the expert's plan
    objects: Mapping[str, bool]  # OBJECTS
    explanation: str
    longitudinal: str
    lateral: str
    images: Mapping[str, bytes]
    # What is where in the front picture, for vision pre-training: (kind, left, top, right,
    # bottom) in fractions of its width and height, see simulation/boxes.py.
    boxes: tuple[tuple[str, float, float, float, float], ...] = ()

    def shown(self, frames: int) -> tuple[int, ...]:
        """Return which of the images, by place, are the newest so many frames of each camera.

        Raises RecordError where there are fewer.
        """
        ages = [frames_ago(name) for name in self.images]
        if frames - 1 > max(ages, default=0):
            raise RecordError(
                f'images {list(self.images)} hold no {frames} frames of a camera; generate the '
                f'data with --frames {frames}'
            )
        return tuple(place for place, age in enumerate(ages) if age < frames)

    def observation(self, decode: bool = True, ago: int = 0) -> Observation:
        """Return what the planner would be given; without `decode` the frames have no pixels.

        With `ago` what the cameras saw so many frames of 0.1 s earlier; the rest is of now.
        """
        t0_ns = round(self.time_s * 1e9) - ago * FRAME_INTERVAL_NS
        blank = np.zeros((0, 0, 3), np.uint8)
        frames = tuple(
            CameraFrame(camera_of(name), t0_ns, decode_image(data) if decode else blank)
            for name, data in self.images.items()
            if frames_ago(name) == ago
        )
        ego = EgoState(
            stamp_ns=t0_ns,
            fixed_frame='odom',
            base_frame='base_link',
            position_fixed_m=(0.0, 0.0, 0.0),
            orientation_xyzw=(0.0, 0.0, 0.0, 1.0),
            velocity_base_mps=self.velocity_base_mps,
            yaw_rate_radps=self.yaw_rate_radps,
            acceleration_base_mps2=self.acceleration_base_mps2,
        )
        return Observation(t0_ns, frames, ego, self.command)

    def to_json(self) -> dict[str, Any]:
        """Return the record without its pictures, as plain JSON values."""
        return {
            'seed': self.seed,
            'time_s': round(self.time_s, 3),
            'source': self.source,
            'command': self.command.value,
            'velocity_base_mps': [round(float(v), 3) for v in self.velocity_base_mps],
            'acceleration_base_mps2': [round(float(v), 3) for v in self.acceleration_base_mps2],
            'yaw_rate_radps': round(float(self.yaw_rate_radps), 4),
            'waypoints_base_m': np.round(self.waypoints_base_m, 3).tolist(),
            'objects': {name: bool(self.objects[name]) for name in OBJECTS},
            'explanation': self.explanation,
            'longitudinal': self.longitudinal,
            'lateral': self.lateral,
            'images': list(self.images),
            'boxes': [[kind, *(round(edge, 4) for edge in edges)] for kind, *edges in self.boxes],
        }


@dataclass(frozen=True, eq=False)
class ConversationRecord:
    """One converted question and answer about images, see conversion.py."""

    question: str  # with one '<image>' per image
    answer: str
    images: Mapping[str, bytes]

    def to_json(self) -> dict[str, Any]:
        """Return the record without its pictures, as plain JSON values."""
        return {
            'conversations': [
                {'from': 'human', 'value': self.question},
                {'from': 'gpt', 'value': self.answer},
            ],
            'images': list(self.images),
        }


Record = DrivingRecord | ConversationRecord


def decode_image(data: bytes) -> np.ndarray:
    """Return an encoded picture as RGB uint8 [H, W, 3]; raises RecordError."""
    try:
        return np.asarray(Picture.open(BytesIO(data), formats=FORMATS).convert('RGB'))
    except (OSError, ValueError, SyntaxError, Picture.DecompressionBombError) as error:
        raise RecordError(f'a picture of {len(data)} bytes cannot be decoded: {error}') from error


def camera_of(image_name: str) -> str:
    """Return the camera of an image's member name: 'left' for 'left-1.jpg', 'front' for 'jpg'."""
    return _IMAGE_NAME.match(image_name)['camera'] or 'front'


def frames_ago(image_name: str) -> int:
    """Return how many frames before the record's instant an image was taken: 1 of 'left-1.jpg'."""
    return int(_IMAGE_NAME.match(image_name)['ago'] or 0)


def read_record(values: Any, images: Mapping[str, bytes]) -> Record:
    """Return the record of parsed JSON and all its pictures; raises RecordError."""
    names = _take(values, 'images', list)
    if not all(isinstance(name, str) for name in names):
        raise RecordError(f'images {_short(names)} are not names')
    missing = [name for name in names if name not in images]
    if missing:
        raise RecordError(f'images {missing} are named but not there, there are {list(images)}')
    images = {name: images[name] for name in names}
    if 'conversations' in values:
        return read_conversation(values['conversations'], images)
    command = _take(values, 'command', str)
    if command not in [c.value for c in Command]:
        raise RecordError(f'command {command!r} is none of {[c.value for c in Command]}')
    source = _take(values, 'source', str)
    if source not in SOURCES:
        raise RecordError(f'source {source!r} is none of {SOURCES}')
    objects = _take(values, 'objects', dict)
    if set(objects) != set(OBJECTS) or any(type(said) is not bool for said in objects.values()):
        raise RecordError(f'objects {objects!r} must say true or false for exactly {OBJECTS}')
    return DrivingRecord(
        seed=_take(values, 'seed', int),
        time_s=float(_numbers(values, 'time_s')),
        source=source,
        command=Command(command),
        velocity_base_mps=tuple(_numbers(values, 'velocity_base_mps', 2).tolist()),
        acceleration_base_mps2=tuple(_numbers(values, 'acceleration_base_mps2', 2).tolist()),
        yaw_rate_radps=float(_numbers(values, 'yaw_rate_radps')),
        waypoints_base_m=_numbers(values, 'waypoints_base_m', WAYPOINTS, 2),
        objects={name: objects[name] for name in OBJECTS},
        explanation=_take(values, 'explanation', str),
        longitudinal=_take(values, 'longitudinal', str),
        lateral=_take(values, 'lateral', str),
        images=images,
        boxes=_boxes(values),
    )


def read_conversation(turns: Any, images: Mapping[str, bytes]) -> ConversationRecord:
    """Return the record of one question and its answer; raises RecordError.

    turns: [{"from": "human", "value": …}, {"from": "gpt", "value": …}]; the question marks the
    place of each image with "<image>".
    """
    if not isinstance(turns, list) or [_speaker(turn) for turn in turns] != ['human', 'gpt']:
        raise RecordError(
            f'conversations {_short(turns)} must be one question from "human" and one answer '
            'from "gpt"; write longer ones as several entries'
        )
    question, answer = (_take(turn, 'value', str) for turn in turns)
    marks = question.count(PLACEHOLDER)
    if marks != len(images):
        raise RecordError(
            f'the question has {marks} times {PLACEHOLDER} for {len(images)} images: '
            f'{_short(question)}'
        )
    return ConversationRecord(question, answer, images)


def _speaker(turn: Any) -> Any:
    return turn.get('from') if isinstance(turn, dict) else None


def _take(values: Any, name: str, kind: type) -> Any:
    if not isinstance(values, dict):
        raise RecordError(f'the record is a {type(values).__name__}, wanted an object')
    if name not in values:
        raise RecordError(f'{name} is missing, there are {sorted(values)}')
    if type(values[name]) is not kind:
        raise RecordError(f'{name} {_short(values[name])} is not a {kind.__name__}')
    return values[name]


def _numbers(values: dict, name: str, *shape: int) -> np.ndarray:
    """Return finite numbers as float64 of `shape`."""
    if name not in values:
        raise RecordError(f'{name} is missing, there are {sorted(values)}')
    try:
        array = np.array(values[name], dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        array = np.array(math.nan)
    if array.shape != shape or not np.isfinite(array).all():
        wanted = f'{list(shape)} finite numbers' if shape else 'a finite number'
        raise RecordError(f'{name} {_short(values[name])} is not {wanted}')
    return array


def _boxes(values: dict) -> tuple[tuple[str, float, float, float, float], ...]:
    if 'boxes' not in values:
        return ()
    boxes = _take(values, 'boxes', list)
    for box in boxes:
        if not (
            isinstance(box, list)
            and [type(entry) for entry in box] == [str, float, float, float, float]
            and all(0 <= edge <= 1 for edge in box[1:])
        ):
            raise RecordError(f'boxes hold {_short(box)}, wanted a kind and four numbers 0 … 1')
    return tuple(tuple(box) for box in boxes)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else text[:117] + '...'
