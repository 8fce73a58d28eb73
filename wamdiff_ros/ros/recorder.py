"""Record topics into an mcap bag as they arrive, without a rosbag2 installation.

    python -m wamdiff_ros.ros.recorder --out DIR

Records what a planner publishes, until SIGINT or SIGTERM.
"""

import argparse
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import rclpy
from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.qos import QoSProfile
from rclpy.signals import SignalHandlerOptions
from rclpy.subscription import Subscription

from ..recordings.bag import BagError, BagWriter
from .qos import RECORDED
from .sources import message_type

QUIET_S, DRAIN_LIMIT_S = 0.3, 3.0
PLANNER_OUTPUTS = {
    'trajectory': 'wamdiff_ros/msg/PlannedTrajectory',
    'candidates': 'wamdiff_ros/msg/CandidateTrajectories',
    'scene_description': 'wamdiff_ros/msg/SceneDescription',
    'status': 'wamdiff_ros/msg/PlannerStatus',
    'path': 'nav_msgs/msg/Path',
    'markers': 'visualization_msgs/msg/MarkerArray',
}


def planner_topics(node_name: str = '/planner') -> dict[str, tuple[str, QoSProfile]]:
    """Return {topic: (type name, QoS)} of everything that a planner publishes."""
    topics = {f'{node_name}/{name}': (kind, RECORDED) for name, kind in PLANNER_OUTPUTS.items()}
    return {**topics, '/diagnostics': ('diagnostic_msgs/msg/DiagnosticArray', RECORDED)}


class Recorder:
    """Writes every message of `topics`, {topic: (type name, QoS)}, into a new bag.

    The bag's time of a message is when it was sent. Use it as a context manager: the bag is
    finished on every way out. Raises BagError, from the constructor or while spinning.
    """

    def __init__(
        self, node: Node, bag: Path, topics: Mapping[str, tuple[str, QoSProfile]]
    ) -> None:
        self.counts: Counter[str] = Counter()
        self.newest: dict[str, bytes] = {}  # topic -> CDR of its newest message
        self._writer = BagWriter(bag)
        self._node = node
        self._subscriptions = [
            node.create_subscription(
                message_type(type_name), topic, self._callback(topic, type_name), qos, raw=True
            )
            for topic, (type_name, qos) in topics.items()
        ]

    def without_publisher(self) -> set[str]:
        """Return the topics whose publisher has not been found yet."""
        topics = {subscription.topic_name for subscription in self._subscriptions}
        return {topic for topic in topics if not self._node.count_publishers(topic)}

    def close(self) -> None:
        """Stop listening and finish the bag; closing twice is fine."""
        for subscription in self._subscriptions:
            self._node.destroy_subscription(subscription)
        self._subscriptions = []
        self._writer.close()

    def __enter__(self) -> 'Recorder':
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _callback(self, topic: str, type_name: str):
        # rclpy of ROS 2 Humble does not tell when a message was sent.
        if hasattr(Subscription, 'CallbackType'):
            return partial(self._on_message_sent, topic, type_name)
        return partial(self._on_message, topic, type_name)

    def _on_message_sent(self, topic: str, type_name: str, cdr: bytes, info: dict) -> None:
        self._write(topic, type_name, info['source_timestamp'] or time.time_ns(), cdr)

    def _on_message(self, topic: str, type_name: str, cdr: bytes) -> None:
        self._write(topic, type_name, time.time_ns(), cdr)

    def _write(self, topic: str, type_name: str, stamp_ns: int, cdr: bytes) -> None:
        self._writer.write(topic, type_name, stamp_ns, cdr)
        self.counts[topic] += 1
        self.newest[topic] = cdr


class RecorderNode:
    """A recorder with a node and a context of its own, which leaves signals to the program.

    As a context manager it also records what had been sent but not taken when the block ended,
    so end the senders within the block: then none of their messages is cut off.
    """

    def __init__(self, bag: Path, topics: Mapping[str, tuple[str, QoSProfile]]) -> None:
        self._context = Context()
        rclpy.init(context=self._context, signal_handler_options=SignalHandlerOptions.NO)
        self._node = rclpy.create_node('recorder', context=self._context)
        self._executor = SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self._node)
        try:
            self.recorder = Recorder(self._node, bag, topics)
        except BaseException:
            self._shut_down()
            raise

    def spin_for(self, duration_s: float) -> None:
        """Record for this long."""
        deadline = time.monotonic() + duration_s
        while (left_s := deadline - time.monotonic()) > 0:
            self._executor.spin_once(left_s)

    def __enter__(self) -> 'RecorderNode':
        return self

    def __exit__(self, kind: object, error: BaseException | None, *_: object) -> None:
        with ExitStack() as stack:  # a second Ctrl-C, too, leaves a finished bag
            stack.callback(self._shut_down)
            stack.callback(self.recorder.close)
            if not isinstance(error, BagError):  # a full disk is full
                self._drain()

    def _drain(self) -> None:
        """Record until nothing has come for a while; others may go on sending for ever."""
        deadline, before = time.monotonic() + DRAIN_LIMIT_S, None
        while before != self.recorder.counts and time.monotonic() < deadline:
            before = self.recorder.counts.copy()
            self.spin_for(QUIET_S)

    def _shut_down(self) -> None:
        self._executor.shutdown()
        self._node.destroy_node()
        self._context.try_shutdown()


def main(args: list[str] | None = None) -> int:
    """Record a planner; SIGINT and SIGTERM end it with exit code 0."""
    parser = argparse.ArgumentParser(description='Record what a planner publishes, as mcap.')
    parser.add_argument('--out', type=Path, required=True, metavar='DIR', help='new folder')
    parser.add_argument(
        '--planner', default='/planner', metavar='NAME', help='of the node (%(default)s)'
    )
    rest = rclpy.utilities.remove_ros_args([sys.argv[0], *(args or sys.argv[1:])])
    arguments = parser.parse_args(rest[1:])
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    try:
        with RecorderNode(arguments.out, planner_topics(arguments.planner)) as recorder:
            while not stop.is_set():
                recorder.spin_for(0.1)
    except BagError as error:
        print(f'error: {error}', file=sys.stderr)
        return 1
    return 0


if __name__ == '__main__':
    sys.exit(main())
