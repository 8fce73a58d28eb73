"""The planner's subscriptions: callbacks only store, complaints name the topic and the reason.

`poll`, called once a second, looks at the graph: it finds out which of the two image types a
camera topic carries, and whether any publisher's QoS or type keeps messages from arriving.
"""

import copy
import time
from collections import Counter
from collections.abc import Callable

from geometry_msgs.msg import AccelWithCovarianceStamped
from nav_msgs.msg import Odometry
from rclpy.node import Node
from rclpy.qos import (
    QoSCompatibility,
    qos_check_compatible,
)
from rclpy.qos_overriding_options import QoSOverridingOptions
from rclpy.subscription import Subscription
from sensor_msgs.msg import CompressedImage, Image

from wamdiff_ros.msg import NavigationCommand

from ..camera_parameters import Camera
from ..observation import messages
from ..observation.image_decoding import ENCODINGS
from ..observation.synchronizer import Synchronizer
from ..parameters import Parameters
from .diagnostics import RateMeter
from .qos import IMAGE_IN, LATCHED, MOTION_IN

IMAGE_TYPES = {'raw': Image, 'compressed': CompressedImage}
COMPLAINT_PERIOD_NS = 5_000_000_000
# No frame of this age is planned from, whatever max_frame_age_s. Younger ones are late rather than
# wrong, and the synchroniser says how old they are.
FAR_BEHIND_NS = 10_000_000_000


class Sensors:
    """Feeds `synchronizer` from the topics, from construction until `destroy`.

    `reset(reason)` is called when the odometry does not go on from where it was. Messages stamped
    more than `jump_threshold_s` ahead of the node's clock, or far behind it, are refused.
    """

    def __init__(
        self,
        node: Node,
        parameters: Parameters,
        synchronizer: Synchronizer,
        reset: Callable[[str], None],
    ) -> None:
        self._node = node
        self._max_ahead_ns = round(parameters.jump_threshold_s * 1e9)
        self._max_jump_m = parameters.max_odometry_jump_m
        self._cameras = cameras = parameters.camera_settings
        self._synchronizer = synchronizer
        self._reset = reset
        names = (*(c.name for c in cameras), 'odometry', 'acceleration')
        self._rates = {name: RateMeter() for name in names}
        self._complaints: Counter[tuple[str, str]] = Counter()  # by topic and kind
        self._dropped: dict[tuple[str, str], str] = {}  # the newest reason of each, not yet told
        self._said_ns: dict[tuple[str, str], int] = {}  # when each was logged
        self._obstacles: list[str] = []  # in the graph, as of the last poll
        self._disagreement = ''  # of poses and twists, then
        self._undecodable = {camera.name: 0 for camera in cameras}
        self._subscriptions: dict[str, Subscription] = {}  # by input name
        self._subscribe('odometry', Odometry, 'odometry', self._on_odometry, MOTION_IN)
        self._subscribe(
            'acceleration',
            AccelWithCovarianceStamped,
            'acceleration',
            self._on_acceleration,
            MOTION_IN,
        )
        self._subscribe(
            'navigation_command',
            NavigationCommand,
            'navigation_command',
            self._on_command,
            LATCHED,
        )
        self.poll()

    def destroy(self) -> None:
        """Take back all subscriptions."""
        for subscription in self._subscriptions.values():
            self._node.destroy_subscription(subscription)
        self._subscriptions.clear()

    def poll(self) -> None:
        """Find image types that are not known yet, and whatever keeps messages away."""
        obstacles = []
        for camera in self._cameras:
            if camera.name not in self._subscriptions:
                obstacles += self._find_camera(camera)
            counters = self._synchronizer.frames[camera.name].counters()
            if counters.undecodable > self._undecodable[camera.name]:
                self._undecodable[camera.name] = counters.undecodable
                self._complain(camera.topic, 'decoding', counters.last_error)
        for subscription in self._subscriptions.values():
            obstacles += self._check_publishers(subscription)
        self._disagreement = self._synchronizer.ego.disagreement()
        if self._disagreement:
            self._complaints['odometry', 'disagreement'] += 1
            self._log('odometry', 'disagreement', self._disagreement)
        for text in obstacles:
            if text not in self._obstacles:
                self._node.get_logger().error(text)
        self._obstacles = obstacles

    def obstacles(self) -> tuple[str, ...]:
        """Return what is wrong with the inputs until somebody mends it, one sentence each."""
        wrong = self._disagreement and self._about('odometry', self._disagreement)
        return (*self._obstacles, *filter(None, [wrong]))

    def take_dropped(self) -> tuple[str, ...]:
        """Return why messages were dropped since the last call, one sentence a topic and kind."""
        dropped, self._dropped = self._dropped, {}
        return tuple(self._about(topic, reason) for (topic, _), reason in dropped.items())

    def describe(self) -> dict[str, str]:
        """Return rates, ages and counters for diagnostics."""
        steady_ns, now_ns = time.monotonic_ns(), self._node.get_clock().now().nanoseconds
        frames = {
            name: buffer.newest_before(now_ns)
            for name, buffer in self._synchronizer.frames.items()
        }
        ego = self._synchronizer.ego
        newest_ns = {
            name: None if newest is None else newest.stamp_ns
            for name, newest in {**frames, 'odometry': ego.newest()}.items()
        }
        if self._rates['acceleration'].count:  # one is used
            newest_ns['acceleration'] = ego.newest_acceleration_ns()
        values = {}
        for name, stamp_ns in newest_ns.items():
            values[f'{name}.rate_hz'] = f'{self._rates[name].rate_hz(steady_ns):.1f}'
            age = '' if stamp_ns is None else f'{(now_ns - stamp_ns) / 1e9:.3f}'
            values[f'{name}.age_s'] = age
        first = frames[self._cameras[0].name]
        for camera in self._cameras[1:]:
            near = first and self._synchronizer.frames[camera.name].nearest(first.stamp_ns)
            skew = f'{abs(near.stamp_ns - first.stamp_ns) / 1e9:.3f}' if near else ''
            values[f'{camera.name}.skew_s'] = skew
        counters = self._synchronizer.counters()
        values.update({key: str(value) for key, value in counters.items()})
        values['complaints'] = str(self._complaints.total())
        for (topic, kind), count in self._complaints.items():
            values[f'complaints.{topic}.{kind}'] = str(count)
        values['command'] = self._synchronizer.command.value
        return values

    # -- the graph ----------------------------------------------------------------------------

    def _subscribe(self, name, message_type, topic, callback, qos) -> None:
        self._subscriptions[name] = self._node.create_subscription(
            message_type,
            topic,
            callback,
            copy.copy(qos),  # rclpy writes what is overridden into it
            qos_overriding_options=QoSOverridingOptions.with_default_policies(),
        )

    def _find_camera(self, camera: Camera) -> list[str]:
        """Subscribe as soon as the transport is known; return what is in the way."""
        topic = self._node.resolve_topic_name(camera.topic)
        transport = camera.transport
        if transport == 'auto':
            types = {info.topic_type for info in self._node.get_publishers_info_by_topic(topic)}
            known = [key for key, kind in IMAGE_TYPES.items() if _type_name(kind) in types]
            if not known:
                wanted = ' or '.join(_type_name(kind) for kind in IMAGE_TYPES.values())
                return [f'{topic}: carries {other}, wanted {wanted}' for other in sorted(types)]
            transport = known[0]
        on_frame = self._on_raw if transport == 'raw' else self._on_compressed
        self._subscribe(
            camera.name,
            IMAGE_TYPES[transport],
            camera.topic,
            lambda message: on_frame(camera, message),
            IMAGE_IN,
        )
        return []

    def _check_publishers(self, subscription: Subscription) -> list[str]:
        """Return why messages of publishers on this topic do not arrive."""
        topic, wanted = subscription.topic_name, _type_name(subscription.msg_type)
        obstacles = []
        for info in self._node.get_publishers_info_by_topic(topic):
            compatibility, reason = qos_check_compatible(
                info.qos_profile, subscription.qos_profile
            )
            publisher = f'{topic}: node {info.node_name} publishes'
            if info.topic_type != wanted:
                obstacles.append(f'{publisher} {info.topic_type}, wanted {wanted}')
            elif compatibility == QoSCompatibility.ERROR:
                obstacles.append(f'{publisher} with incompatible QoS, {reason.strip(" ;")}')
        return obstacles

    # -- messages -----------------------------------------------------------------------------

    def _on_raw(self, camera: Camera, message: Image) -> None:
        encoding = camera.encoding or message.encoding
        if encoding.strip().lower() not in ENCODINGS:
            self._complain(
                camera.topic,
                'encoding',
                f'encoding {encoding[:40]!r} is not supported; set the driver to one of '
                f'{", ".join(ENCODINGS)}',
            )
            return
        self._store(camera, message, messages.encoded_raw)

    def _on_compressed(self, camera: Camera, message: CompressedImage) -> None:
        self._store(camera, message, messages.encoded_compressed)

    def _store(self, camera: Camera, message, encoded_frame) -> None:
        self._rates[camera.name].add(time.monotonic_ns())
        try:
            frame = encoded_frame(message, camera)
            self._check_stamp(frame.stamp_ns)
        except ValueError as error:
            self._complain(camera.topic, 'stamp', str(error))
            return
        self._synchronizer.frames[camera.name].add(frame)

    def _on_odometry(self, message: Odometry) -> None:
        self._rates['odometry'].add(time.monotonic_ns())
        try:
            state = messages.ego_state(message)
            self._check_stamp(state.stamp_ns)
            if broken := self._synchronizer.ego.break_before(state, self._max_jump_m):
                self._reset(broken)
            self._synchronizer.ego.add(state)
        except ValueError as error:
            self._complain('odometry', 'value', str(error))

    def _on_acceleration(self, message: AccelWithCovarianceStamped) -> None:
        self._rates['acceleration'].add(time.monotonic_ns())
        try:
            sample = messages.acceleration(message)
            self._check_stamp(sample[0])
            self._synchronizer.ego.add_acceleration(*sample)
        except ValueError as error:
            self._complain('acceleration', 'value', str(error))

    def _on_command(self, message: NavigationCommand) -> None:
        try:
            self._synchronizer.command = messages.command(message)
        except ValueError as error:
            now = self._synchronizer.command.value
            self._complain('navigation_command', 'value', f'{error}; staying with {now!r}')

    def _check_stamp(self, stamp_ns: int) -> None:
        """Raise ValueError for a stamp of another clock than the node's.

        One that is far ahead would push the real ones out of the buffers. One that is far behind
        would be pushed out by those before it, as if nothing had come.
        """
        now_ns = self._node.get_clock().now().nanoseconds
        if not now_ns:
            return  # before the first /clock there is nothing to compare with
        ahead_s = (stamp_ns - now_ns) / 1e9
        if stamp_ns - now_ns > self._max_ahead_ns:
            raise ValueError(
                f'header.stamp is {ahead_s:.3f} s ahead of the clock; check the clocks'
            )
        if now_ns - stamp_ns > FAR_BEHIND_NS:
            raise ValueError(
                f'header.stamp is {-ahead_s:.3f} s behind the clock; check the clocks'
            )

    def _complain(self, topic: str, kind: str, reason: str) -> None:
        """Count a message that is dropped, tell it in diagnostics, and log it now and then."""
        self._complaints[topic, kind] += 1
        self._dropped[topic, kind] = reason
        self._log(topic, kind, reason)

    def _log(self, topic: str, kind: str, reason: str) -> None:
        """Log once in five seconds per topic and kind."""
        now_ns = time.monotonic_ns()
        if now_ns - self._said_ns.get((topic, kind), -COMPLAINT_PERIOD_NS) >= COMPLAINT_PERIOD_NS:
            self._said_ns[topic, kind] = now_ns
            self._node.get_logger().error(self._about(topic, reason))

    def _about(self, topic: str, reason: str) -> str:
        return f'{self._node.resolve_topic_name(topic)}: {reason}'


def _type_name(message_type: type) -> str:
    package, kind = message_type.__module__.split('.')[0], message_type.__name__
    return f'{package}/msg/{kind}'
