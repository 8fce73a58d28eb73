"""What the demo shows to the planner: topics, and the command of the process that sends them."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .parameters import Parameters
from .pinhole import Pinhole
from .recordings.bag import bag_duration_ns, bag_topics
from .recordings.sources import image_files
from .recordings.timeline import IMAGE_TYPES, TRUTH_TOPIC, read_camera

if TYPE_CHECKING:  # the painter imports OpenCV, and every command imports this file
    from .pictures.overlay_painter import Shapes

SEED, SECONDS = 0, 30.0  # of the route that is driven where none is asked for
ODOMETRY_TOPIC = '/odometry'
IMAGE_TOPIC = '/camera/front/image'  # on which the player sends videos and images
COMPRESSED_TYPE = 'sensor_msgs/msg/CompressedImage'
ODOMETRY_TYPE = 'nav_msgs/msg/Odometry'
CAMERA_INFO_TYPE = 'sensor_msgs/msg/CameraInfo'
CAMERA_INFO_TOPIC = '/camera/front/camera_info'
TRUTH_TYPE = 'std_msgs/msg/String'
# Of a bag, these are played besides the cameras' images and the odometry.
OTHER_TYPES = (
    CAMERA_INFO_TYPE,
    'geometry_msgs/msg/AccelWithCovarianceStamped',
    'tf2_msgs/msg/TFMessage',
    'wamdiff_ros/msg/NavigationCommand',
)


class DemoError(RuntimeError):
    """The demo cannot go on; the message says why and what to do."""


class DemoSource:
    """The world or the recording that the command line names, the world by default.

    `sender` is the process that sends it, `streams` are the topics with their types as planner
    and recorder hear them, `frames` is the number of images of the first camera, None when it is
    not known.
    """

    def __init__(self, arguments: argparse.Namespace, parameters: dict[str, Any]) -> None:
        checked = Parameters.from_mapping(parameters)
        self._wanted = ['/' + camera.topic.lstrip('/') for camera in checked.camera_settings]
        self.image_topic = self._wanted[0]
        self.sender, self.doing = 'player', 'playing'
        self.camera_infos: list[str] = []
        self.streams: dict[str, str] = {}
        self.frames: int | None = None
        self._command = [sys.executable, '-m', 'wamdiff_ros.ros.player']
        self._ros_arguments: list[str] = []
        self._bag: Path | None = None
        self.in_world = not (arguments.bag or arguments.video or arguments.images)
        if self.in_world:
            self._use_world(arguments, checked)
            return
        _refuse(arguments, ('seed', 'routes'), 'goes without a recording')
        if arguments.bag is not None:
            self._use_bag(arguments)
        else:
            self._use_pictures(arguments)
        self._command += ['--wait-for', '30', '--subscribers', '2']
        if arguments.seconds is not None:
            self._command += ['--seconds', str(arguments.seconds)]

    def command(self, folder: Path) -> list[str]:
        """Return the command of the sender; a simulator leaves its score in `folder`."""
        command = [*self._command, '--ros-args', *self._ros_arguments]
        return [*command, '-p', f'out:={folder}'] if self.in_world else command

    def camera(self) -> Pinhole | None:
        """Return the camera, if the source describes it."""
        if self.in_world:
            from .simulation.cameras import CAMERAS

            return CAMERAS['front']
        return None if self._bag is None else read_camera(self._bag)

    def shapes_of(self, truth: dict[str, Any]) -> 'Shapes':
        """Return what a ground truth of the world looks like from above."""
        from .simulation.ground_truth import bodies_of, lights_of
        from .simulation.top_view import TopView
        from .simulation.world import World

        seed = truth['seed']
        if seed not in self._views:
            self._views = {seed: TopView(World(seed).scene)}
        position_map_m = truth['x_m'], truth['y_m']
        return self._views[seed].shapes(
            bodies_of(truth), lights_of(truth), position_map_m, truth['heading_rad']
        )

    def _use_world(self, arguments: argparse.Namespace, parameters: Parameters) -> None:
        _refuse(arguments, ('image_topic', 'odometry_topic'), 'goes with --bag')
        _refuse(arguments, ('ego', 'speed'), 'goes with --video or --images')
        if len(self._wanted) > 1:
            raise DemoError(
                f'the world shows one camera, the parameters ask for {", ".join(self._wanted)}'
            )
        if parameters.trajectory_frame != 'fixed':
            raise DemoError('the simulator follows trajectories with trajectory_frame: fixed only')
        self.sender, self.doing = 'simulator', 'driving'
        self._views: dict[int, Any] = {}  # of the newest seed
        self._command = [sys.executable, '-m', 'wamdiff_ros.ros.simulator_node']
        # JPEG keeps the recording small.
        values = {
            'seed': SEED if arguments.seed is None else arguments.seed,
            'routes': arguments.routes or 1, 'compressed': 'true',
            'seconds': float(arguments.seconds or SECONDS), 'wait_s': 30.0, 'to_the_end': 'true',
        }  # fmt: skip
        for name, value in values.items():
            self._ros_arguments += ['-p', f'{name}:={value}']
        if self.image_topic != IMAGE_TOPIC:
            self._ros_arguments += ['-r', f'{IMAGE_TOPIC}:={self.image_topic}']
        self.streams = {
            self.image_topic: COMPRESSED_TYPE, ODOMETRY_TOPIC: ODOMETRY_TYPE,
            TRUTH_TOPIC: TRUTH_TYPE,
        }  # fmt: skip
        self.camera_infos = [CAMERA_INFO_TOPIC]

    def _use_bag(self, arguments: argparse.Namespace) -> None:
        _refuse(arguments, ('ego', 'speed'), 'goes with --video or --images')
        self._bag = bag = arguments.bag
        topics = bag_topics(bag)
        images = self._images(arguments.image_topic, topics)
        odometry = self._one(
            arguments.odometry_topic, ODOMETRY_TOPIC, (ODOMETRY_TYPE,), topics, '--odometry-topic'
        )
        pairs = {**images, odometry: ODOMETRY_TOPIC}
        self.streams = {there: topics[here][0] for here, there in pairs.items()}
        others = [topic for topic, (kind, _) in topics.items() if kind in OTHER_TYPES]
        self.camera_infos = [topic for topic in others if topics[topic][0] == CAMERA_INFO_TYPE]
        self._command += ['--bag', str(bag), '--topics', *pairs, *others]
        renamed = [f'{here}:={there}' for here, there in pairs.items() if here != there]
        for pair in renamed:
            self._ros_arguments += ['-r', pair]
        first = next(here for here, there in images.items() if there == self.image_topic)
        self.frames = topics[first][1]
        duration_s = bag_duration_ns(bag) / 1e9
        if arguments.seconds is not None and duration_s > arguments.seconds:
            self.frames = round(self.frames * arguments.seconds / duration_s)

    def _use_pictures(self, arguments: argparse.Namespace) -> None:
        _refuse(arguments, ('image_topic', 'odometry_topic'), 'goes with --bag')
        if len(self._wanted) > 1:
            raise DemoError(
                f'a video shows one camera, the parameters ask for {", ".join(self._wanted)}'
            )
        if arguments.video is not None:
            if not arguments.video.is_file():
                raise DemoError(f'{arguments.video}: no such video')
            self._command += ['--video', str(arguments.video)]
        else:
            self.frames = len(image_files(arguments.images))
            self._command += ['--images', str(arguments.images)]
        for option in ('ego', 'speed'):
            if (value := getattr(arguments, option)) is not None:
                self._command += [f'--{option}', str(value)]
        self.streams = {self.image_topic: COMPRESSED_TYPE, ODOMETRY_TOPIC: ODOMETRY_TYPE}
        self.camera_infos = [CAMERA_INFO_TOPIC]
        if self.image_topic != IMAGE_TOPIC:
            self._ros_arguments = ['-r', f'{IMAGE_TOPIC}:={self.image_topic}']

    def _images(self, named: str | None, topics: dict) -> dict[str, str]:
        """Return {topic in the bag: topic that the planner hears}."""
        if len(self._wanted) == 1:
            wanted = self._wanted[0]
            return {self._one(named, wanted, IMAGE_TYPES, topics, '--image-topic'): wanted}
        if named is not None:
            raise DemoError('--image-topic is for one camera; name each topic in --params')
        missing = [topic for topic in self._wanted if topic not in topics]
        if missing:
            raise DemoError(
                f'{self._bag}: has no {", ".join(missing)}; it has {", ".join(topics)}'
            )
        return {topic: topic for topic in self._wanted}

    def _one(self, named, wanted: str, types: tuple, topics: dict, option: str) -> str:
        """Return the topic of the bag to take: the named, the wanted, or the only one."""
        fitting = [topic for topic, (kind, _) in topics.items() if kind in types]
        if named is not None:
            fitting = [topic for topic in fitting if topic == named]
        elif wanted in fitting:
            return wanted
        if len(fitting) == 1:
            return fitting[0]
        kinds = ' or '.join(types)
        if not fitting:
            raise DemoError(
                f'{self._bag}: has no {kinds}{f" on {named}" if named else ""}; '
                f'it has {", ".join(topics) or "nothing"}'
            )
        raise DemoError(f'{self._bag}: name one of {", ".join(fitting)} with {option}')


def _refuse(arguments: argparse.Namespace, options: tuple[str, ...], reason: str) -> None:
    """Refuse options that this kind of source would not heed."""
    for option in options:
        if getattr(arguments, option) is not None:
            raise DemoError(f'--{option.replace("_", "-")} {reason}')
