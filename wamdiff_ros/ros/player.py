"""Play a recording over DDS, as the sensors of a vehicle would send it.

    python -m wamdiff_ros.ros.player --bag DIR

Plays a bag, a video or numbered images with an ego log. Without --clock every header stamp is
moved onto the system clock, by the same amount, to the time at which the message is sent.
"""

import argparse
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import rclpy
from nav_msgs.msg import Odometry
from rclpy.duration import Duration
from rclpy.node import Node
from rclpy.publisher import Publisher
from rclpy.qos import QoSProfile
from rclpy.signals import SignalHandlerOptions
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import CameraInfo, CompressedImage, Image
from tqdm import tqdm

from wamdiff_ros.msg import NavigationCommand

from ..option_values import positive
from ..recordings.bag import BagError
from ..recordings.sources import SourceError, read_ego, straight_ego
from .conversion import time_message
from .qos import LATCHED, SENSOR_OUT
from .sources import (
    Source,
    bag_source,
    ego_source,
    header_stamp_ns,
    images_source,
    video_source,
)

AWAITED_TYPES = (Image, CompressedImage, Odometry)
CLOCK_PERIOD_S = 0.01
SETTLE_S = 0.3  # a subscriber that this side sees may see this side a little later
DELIVERY_TIMEOUT_S = 5.0


class Player:
    """Publishes the messages of a source, each when it is due on the steady clock."""

    def __init__(
        self,
        node: Node,
        source: Source,
        namespace: str = '',
        clock: bool = False,
    ) -> None:
        """Create the publishers; with `clock`, stamps are kept and /clock is published.

        `namespace` is put before all topics but those of tf.
        """
        self.stop = threading.Event()  # set it to end `play` early
        self.published = 0
        self._source = source
        self._publishers: dict[str, Publisher] = {
            topic: node.create_publisher(kind, _in_namespace(topic, namespace), _qos(topic, kind))
            for topic, kind in source.topics.items()
        }
        self._clock = node.create_publisher(Clock, '/clock', SENSOR_OUT) if clock else None

    def wait_for_subscribers(self, timeout_s: float, count: int = 1) -> str:
        """Wait until images and odometry have `count` subscribers; return the topic without."""
        deadline = time.monotonic() + timeout_s
        for topic, publisher in self._publishers.items():
            if self._source.topics[topic] not in AWAITED_TYPES:
                continue
            while publisher.get_subscription_count() < count:
                if time.monotonic() > deadline:
                    return publisher.topic_name
                if self.stop.wait(0.02):
                    return ''
        self.stop.wait(SETTLE_S)
        return ''

    def play(self, rate: float = 1.0, limit_s: float = float('inf'), progress: Any = None) -> None:
        """Play the source once, `rate` times as fast as recorded, its first `limit_s` seconds."""
        first_ns = None
        for topic, stamp_ns, message in self._source.messages():
            if first_ns is None:
                first_ns = stamp_ns
                start_system_ns, start_steady_ns = time.time_ns(), time.monotonic_ns()
            elapsed_ns = stamp_ns - first_ns
            if elapsed_ns > limit_s * 1e9:
                break
            if not self._wait(start_steady_ns + elapsed_ns / rate, stamp_ns, rate):
                return
            if self._clock is None:
                _move_stamps(message, first_ns, start_system_ns, rate)
            self._publishers[topic].publish(message)
            self.published += 1
            if progress is not None:
                progress.update(elapsed_ns / 1e9 - progress.n)
        if first_ns is None:
            raise SourceError('the source holds no messages')

    def finish(self) -> None:
        """Wait until the subscribers have what was sent."""
        for publisher in self._publishers.values():
            publisher.wait_for_all_acked(Duration(seconds=DELIVERY_TIMEOUT_S))

    def _wait(self, due_steady_ns: float, stamp_ns: int, rate: float) -> bool:
        """Sleep until the instant, keeping /clock running; False once `stop` is set."""
        while (left_s := (due_steady_ns - time.monotonic_ns()) / 1e9) > 0:
            if self._clock is not None:
                self._publish_clock(stamp_ns - round(left_s * rate * 1e9))
                left_s = min(left_s, CLOCK_PERIOD_S)
            if self.stop.wait(left_s):
                return False
        if self._clock is not None:
            self._publish_clock(stamp_ns)
        return not self.stop.is_set()

    def _publish_clock(self, now_ns: int) -> None:
        self._clock.publish(Clock(clock=time_message(now_ns)))


def main(args: list[str] | None = None) -> int:
    """Play what the command line names; SIGINT and SIGTERM end it with exit code 0."""
    rest = rclpy.utilities.remove_ros_args([sys.argv[0], *(args or sys.argv[1:])])
    arguments = _parser().parse_args(rest[1:])
    rclpy.init(
        args=[sys.argv[0], *(args or sys.argv[1:])],
        signal_handler_options=SignalHandlerOptions.NO,
    )
    node = rclpy.create_node('player', namespace=arguments.namespace)
    try:
        return _run(node, arguments)
    except (BagError, SourceError) as error:
        print(f'error: {error}', file=sys.stderr)
        return 1
    finally:
        node.destroy_node()
        rclpy.try_shutdown()


def _run(node: Node, arguments: argparse.Namespace) -> int:
    source = _source(arguments)
    for note in source.notes:
        node.get_logger().warning(note)
    if arguments.rate != 1.0 and not arguments.clock:
        node.get_logger().warning(
            f'--rate {arguments.rate:g} without --clock: the motion between the stamps is '
            'faster or slower than the velocities say'
        )
    player = Player(node, source, arguments.namespace, arguments.clock)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: player.stop.set())
    if arguments.wait_for > 0:
        missing = player.wait_for_subscribers(arguments.wait_for, arguments.subscribers)
        if missing:
            print(
                f'error: {missing}: fewer than {arguments.subscribers} subscribers after '
                f'{arguments.wait_for:g} s; is the planner active, in this ROS domain?',
                file=sys.stderr,
            )
            return 3
    node.get_logger().info('playing')
    while not player.stop.is_set():
        total = min(source.duration_ns / 1e9 or float('inf'), arguments.seconds)
        with tqdm(
            total=total if total < float('inf') else None, desc='playing', disable=None,
            bar_format='{desc} {percentage:3.0f}%|{bar}| {n:.1f}/{total:.1f} s',
        ) as progress:  # fmt: skip
            player.play(arguments.rate, arguments.seconds, progress)
        if not arguments.loop:
            break
    player.finish()
    node.get_logger().info(f'published {player.published} messages')
    return 0


def _source(arguments: argparse.Namespace) -> Source:
    if arguments.bag is not None:
        return bag_source(arguments.bag, arguments.topics, arguments.raw)
    if arguments.images is not None:
        poses = arguments.ego or arguments.images / 'poses.txt'
        if arguments.ego is None and not poses.exists():
            ego = straight_ego(arguments.speed)
        else:
            ego = read_ego(poses, arguments.image_rate)
        return images_source(arguments.images, ego, arguments.image_rate, arguments.raw)
    ego = straight_ego(arguments.speed) if arguments.ego is None else read_ego(arguments.ego)
    if arguments.video is not None:
        return video_source(arguments.video, ego, arguments.raw)
    return ego_source(ego)


def _in_namespace(topic: str, namespace: str) -> str:
    return topic if topic.startswith('/tf') else namespace.rstrip('/') + topic


def _move_stamps(message: Any, from_ns: int, to_ns: int, rate: float) -> None:
    """Move the stamps of the header, and of the headers of transforms, onto another clock."""
    for stamped in (message, *getattr(message, 'transforms', ())):
        if header_ns := header_stamp_ns(stamped):
            stamped.header.stamp = time_message(to_ns + round((header_ns - from_ns) / rate))


def _qos(topic: str, kind: type) -> QoSProfile:
    latched = kind in (CameraInfo, NavigationCommand) or topic.endswith('tf_static')
    return LATCHED if latched else SENSOR_OUT


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description='Play a recording over DDS, as the sensors of a vehicle would send it. '
        'ROS arguments work too: --ros-args -r /camera/front/image:=/front renames a topic.',
    )
    what = parser.add_argument_group('what is played (one of them)')
    one = what.add_mutually_exclusive_group(required=True)
    one.add_argument('--bag', type=Path, help='rosbag2 recording, mcap or sqlite3')
    one.add_argument('--video', type=Path, help='video file')
    one.add_argument(
        '--images',
        type=Path,
        metavar='DIR',
        help='numbered images; poses.txt (KITTI) in there is the ego motion',
    )
    one.add_argument('--ego-only', action='store_true', help='only --ego, no images')
    what.add_argument(
        '--ego',
        type=Path,
        metavar='FILE',
        help='ego motion for images: .csv with t_s,x_m,y_m,yaw_rad, '
        '.txt with KITTI poses, .npz with ECEF poses',
    )
    what.add_argument(
        '--speed',
        type=float,
        default=15.0,
        metavar='MPS',
        help='without an ego log: straight on at this speed (%(default)s)',
    )
    what.add_argument(
        '--image-rate',
        type=positive,
        default=10.0,
        metavar='HZ',
        help='rate of --images (%(default)s)',
    )
    what.add_argument('--topics', nargs='+', metavar='TOPIC', help='of the bag, only these')
    how = parser.add_argument_group('how it is played')
    how.add_argument('--rate', type=positive, default=1.0, help='times as fast as recorded')
    how.add_argument('--loop', action='store_true', help='again and again until stopped')
    how.add_argument(
        '--seconds',
        type=positive,
        default=float('inf'),
        metavar='S',
        help='only the first S seconds',
    )
    how.add_argument(
        '--clock', action='store_true', help='publish /clock and keep the recorded stamps'
    )
    how.add_argument('--raw', action='store_true', help='send sensor_msgs/Image in bgr8')
    how.add_argument(
        '--wait-for',
        type=float,
        default=0.0,
        metavar='S',
        help='first wait so long for subscribers of images and odometry',
    )
    how.add_argument(
        '--subscribers',
        type=int,
        default=1,
        metavar='N',
        help='how many of them there must be (%(default)s)',
    )
    how.add_argument('--namespace', default='', help='put before all topics but /tf')
    return parser  # fmt: skip


if __name__ == '__main__':
    sys.exit(main())
