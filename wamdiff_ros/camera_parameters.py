"""The parameters of each camera, `camera.<name>.*`, for the names in `cameras`."""

from dataclasses import dataclass
from typing import Any

from .parameter_values import ParameterError

TRANSPORTS = ('auto', 'raw', 'compressed')
CAMERA_DESCRIPTIONS = {
    'topic': 'Image topic, sensor_msgs/Image or sensor_msgs/CompressedImage.',
    'transport': 'auto takes the message type that is on the topic, raw and compressed insist.',
    'encoding': 'Taken in place of what raw images say of themselves, for a driver that labels '
    'them wrongly (yuv422 that is yuyv); empty believes them.',
    'stamp_offset_s': "Added to the camera's stamps, for a driver that stamps late or early [s].",
}


@dataclass(frozen=True)
class Camera:
    """One camera of the list `cameras`, from the parameters `camera.<name>.*`."""

    name: str
    topic: str
    transport: str = 'auto'
    encoding: str = ''
    stamp_offset_s: float = 0.0


def camera_defaults(name: str) -> dict[str, Any]:
    """Return the per-camera parameters of the camera `name` with their defaults."""
    return {
        f'camera.{name}.topic': f'camera/{name}/image',
        f'camera.{name}.transport': 'auto',
        f'camera.{name}.encoding': '',
        f'camera.{name}.stamp_offset_s': 0.0,
    }


def camera_settings(cameras, values) -> tuple[Camera, ...]:
    """Return the settings of `cameras` from {camera: {key: value}}; raises ParameterError."""
    for camera in values:
        if camera not in cameras:
            raise ParameterError(
                f'camera.{camera}.*: there is no camera {camera!r} in cameras {list(cameras)}'
            )
    settings = []
    for camera in cameras:
        given = values.get(camera, {})
        for key in given:
            if key not in CAMERA_DESCRIPTIONS:
                raise ParameterError(f'camera.{camera}.{key}: no such parameter')
        prefix = f'camera.{camera}.'
        merged = {k[len(prefix) :]: v for k, v in camera_defaults(camera).items()} | given
        for key, kind in (
            ('topic', str), ('transport', str), ('encoding', str), ('stamp_offset_s', float),
        ):  # fmt: skip
            if key == 'stamp_offset_s' and type(merged[key]) is int:
                merged[key] = float(merged[key])
            if type(merged[key]) is not kind:
                raise ParameterError(f'{prefix}{key}: {merged[key]!r} is not a {kind.__name__}')
        if not merged['topic']:
            raise ParameterError(f"{prefix}topic: is empty, name the camera's image topic")
        if merged['transport'] not in TRANSPORTS:
            raise ParameterError(
                f'{prefix}transport: {merged["transport"]!r} is not one of {", ".join(TRANSPORTS)}'
            )
        if merged['encoding']:
            from .observation.image_decoding import ENCODINGS  # OpenCV, for --help too heavy

            if merged['encoding'] not in ENCODINGS:
                raise ParameterError(
                    f'{prefix}encoding: {merged["encoding"]!r} is not one of '
                    f'{", ".join(ENCODINGS)}'
                )
        if not abs(merged['stamp_offset_s']) <= 1.0:
            raise ParameterError(
                f'{prefix}stamp_offset_s: {merged["stamp_offset_s"]} is outside -1 … 1'
            )
        settings.append(Camera(camera, **merged))
    topics = [camera.topic for camera in settings]
    for topic in topics:
        if topics.count(topic) > 1:
            raise ParameterError(f'camera.*.topic: two cameras share the topic {topic!r}')
    return tuple(settings)
