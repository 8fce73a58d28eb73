"""Which topics of a bag are the planner's inputs: as named, as asked for, or the only ones."""

from collections.abc import Mapping
from dataclasses import dataclass

from ..parameters import Parameters
from .bag_files import BagError

IMAGE_TYPES = {'raw': 'sensor_msgs/msg/Image', 'compressed': 'sensor_msgs/msg/CompressedImage'}
ODOMETRY_TYPE = 'nav_msgs/msg/Odometry'
ACCELERATION_TYPE = 'geometry_msgs/msg/AccelWithCovarianceStamped'
COMMAND_TYPE = 'wamdiff_ros/msg/NavigationCommand'
ODOMETRY, ACCELERATION, COMMAND = '/odometry', '/acceleration', '/navigation_command'

Available = Mapping[str, tuple[str, int]]  # topic -> (type name, number of messages)


@dataclass(frozen=True)
class TopicChoice:
    """What the command line says about topics; `remap` is {topic of the bag: planner's name}."""

    camera: str | None = None
    odometry: str | None = None
    remap: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Topics:
    """The topics of a bag that are used; cameras by their names, the one that sets t0 first."""

    cameras: dict[str, str]
    odometry: str
    acceleration: str | None
    command: str | None

    def to_json(self) -> dict[str, str]:
        """Return {planner's name: topic of the bag}."""
        named = {f'camera.{name}': topic for name, topic in self.cameras.items()}
        named['odometry'] = self.odometry
        optional = {'acceleration': self.acceleration, 'navigation_command': self.command}
        return {**named, **{name: topic for name, topic in optional.items() if topic}}


def choose_topics(available: Available, parameters: Parameters, choice: TopicChoice) -> Topics:
    """Return the topics to use. Raises BagError with the candidates and the option to choose.

    An input is on the topic of its own name, after `remap`; cameras and odometry that are not
    there are looked for by their type.
    """
    for there, _ in choice.remap:
        if absolute(there) not in available:
            raise BagError(f'--remap {there}: there is no such topic; {_listing(available)}')
    names = {absolute(there): absolute(here) for there, here in choice.remap}
    seen = {names.get(topic, topic): topic for topic in available}
    cameras = {}
    for camera in parameters.camera_settings:
        types = [kind for key, kind in IMAGE_TYPES.items() if camera.transport in (key, 'auto')]
        alone = len(parameters.camera_settings) == 1
        if choice.camera is not None and not alone:
            raise BagError(
                f'--camera {choice.camera}: there are {len(parameters.camera_settings)} cameras; '
                f'use --remap {choice.camera}:={camera.topic}'
            )
        option = '--camera TOPIC' if alone else f'--remap TOPIC:={camera.topic}'
        wanted = absolute(camera.topic)
        cameras[camera.name] = _one(
            available, seen, wanted, types, choice.camera, option, f'camera {camera.name}', alone
        )
    odometry = _one(
        available, seen, ODOMETRY, [ODOMETRY_TYPE], choice.odometry, '--odometry TOPIC', 'odometry'
    )
    return Topics(
        cameras,
        odometry,
        _optional(available, seen, ACCELERATION, ACCELERATION_TYPE),
        _optional(available, seen, COMMAND, COMMAND_TYPE),
    )


def absolute(topic: str) -> str:
    """Return the name with its leading slash."""
    return '/' + topic.lstrip('/')


def _one(
    available: Available,
    seen: Mapping[str, str],
    wanted: str,
    types: list[str],
    named: str | None,
    option: str,
    what: str,
    search: bool = True,
) -> str:
    """Return the topic that is named, has the wanted name, or is the only one of the types."""
    kinds = ' or '.join(types)
    if named is not None:
        topic = absolute(named)
        if topic not in available:
            raise BagError(f'{named}: there is no such topic; {_listing(available)}')
        if available[topic][0] not in types:
            raise BagError(f'{topic}: carries {available[topic][0]}, wanted {kinds}')
        return topic
    if wanted in seen:
        topic = seen[wanted]
        if available[topic][0] not in types:
            raise BagError(f'{topic}: carries {available[topic][0]}, wanted {kinds}')
        return topic
    fitting = [t for t, (kind, count) in available.items() if kind in types and count]
    # The same pictures in another transport.
    fitting = [t for t in fitting if t.removesuffix('/compressed') not in set(fitting) - {t}]
    if not fitting:
        raise BagError(f'no {kinds} for {what}; {_listing(available)}')
    if len(fitting) > 1 or not search:
        raise BagError(
            f'several topics may be {what}; choose with {option}: '
            f'{_listing({topic: available[topic] for topic in sorted(fitting)})}'
        )
    return fitting[0]


def _optional(
    available: Available, seen: Mapping[str, str], name: str, type_name: str
) -> str | None:
    topic = seen.get(name)
    if topic is not None and available[topic][0] != type_name:
        raise BagError(f'{topic}: carries {available[topic][0]}, wanted {type_name}')
    return topic


def _listing(available: Available) -> str:
    topics = [f'{topic} ({kind}, {count} messages)' for topic, (kind, count) in available.items()]
    return f'the bag has {", ".join(topics) or "no topics"}' if topics else 'the bag is empty'
