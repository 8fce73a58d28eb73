"""What cameras and odometry do to a planner."""

import contextlib
import math
import time
from copy import deepcopy

import numpy as np
from faults.fault import fault
from planner_bench import stamp_ns, time_message
from rclpy.serialization import serialize_message
from wamdiff_ros.msg import PlannerStatus

HELD, STOP = PlannerStatus.HELD, PlannerStatus.FALLBACK_STOP
HOUR_NS = 3600 * 10**9
ONE_PERIOD_S = 1.0  # a frame, a tick, and what a busy machine adds


@contextlib.contextmanager
def altered(bench, **alter):
    """Publish something else for a while: alter_frame or alter_odometry."""
    for name, function in alter.items():
        setattr(bench, name, function)
    try:
        yield
    finally:
        bench.restore()


def later(message, ahead_ns):
    message.header.stamp = time_message(stamp_ns(message) + ahead_ns)
    return [message]


# -- cameras --------------------------------------------------------------------------------------


@fault(ONE_PERIOD_S)
def camera_stops(scene):
    """The camera sends nothing."""
    scene.bench.camera_on = False
    scene.see(STOP, 'newest frame of camera front is')
    scene.hear('FALLBACK_STOP')
    scene.bench.camera_on = True


@fault(ONE_PERIOD_S)
def camera_freezes(scene):
    """The driver sends its last picture again and again, under new stamps."""
    picture = []

    def freeze(message):
        picture.append(message.data)
        message.data = picture[0]
        return [message]

    with altered(scene.bench, alter_frame=freeze):
        scene.see(HELD, 'camera front has shown one picture for')
        scene.see(STOP)


@fault(ONE_PERIOD_S)
def camera_repeats_one_message(scene):
    """The driver sends its last message again and again, stamp included."""
    first = []

    def repeat(message):
        first.append(message)
        return [first[0]]

    with altered(scene.bench, alter_frame=repeat):
        scene.see(STOP)


@fault(ONE_PERIOD_S)
def camera_duplicates(scene):
    """Every frame comes three times."""
    with altered(scene.bench, alter_frame=lambda message: [message] * 3):
        scene.watch(10)


@fault(ONE_PERIOD_S)
def camera_reorders(scene):
    """Of every two frames the second comes first."""
    waiting = []

    def swap(message):
        waiting.append(deepcopy(message))
        return [waiting.pop(), waiting.pop()] if len(waiting) == 2 else []

    with altered(scene.bench, alter_frame=swap):
        scene.watch(15)


@fault(ONE_PERIOD_S)
def camera_is_an_hour_ahead(scene):
    """Its clock is set wrong."""
    with altered(scene.bench, alter_frame=lambda message: later(message, HOUR_NS)):
        scene.see(STOP)
        scene.hear('s ahead of the clock; check the clocks')


@fault(ONE_PERIOD_S)
def camera_is_an_hour_behind(scene):
    """Its clock is set wrong."""
    with altered(scene.bench, alter_frame=lambda message: later(message, -HOUR_NS)):
        scene.see(STOP)
        scene.hear('/camera/front/image: header.stamp is 3600.')
        scene.hear('s behind the clock; check the clocks')


@fault(ONE_PERIOD_S)
def camera_sends_an_unknown_encoding(scene):
    """Somebody has reconfigured the driver."""
    scene.bench.encoding = 'h264'
    scene.see(STOP)
    scene.hear("encoding 'h264' is not supported")
    scene.bench.encoding = 'rgb8'


@fault(ONE_PERIOD_S)
def camera_cuts_its_images_short(scene):
    """Fewer bytes than height and step promise."""

    def cut(message):
        message.data = message.data[:-100]
        return [message]

    with altered(scene.bench, alter_frame=cut):
        scene.see(STOP)
        scene.hear('are fewer than')


@fault(ONE_PERIOD_S, jpeg=True)
def every_jpeg_is_corrupt(scene):
    """The link to the camera is broken."""

    def cut(message):
        message.data = message.data[: len(message.data) // 2]
        return [message]

    with altered(scene.bench, alter_frame=cut):
        scene.see(STOP)
        scene.hear('truncated or corrupt')


@fault(ONE_PERIOD_S, jpeg=True)
def one_percent_of_many_frames_is_corrupt(scene):
    """Frames at 500 Hz; of every hundred one has flipped bytes and is cut short."""
    rng = np.random.default_rng(5)

    def damage(message):
        data = np.array(message.data)
        data[rng.integers(2, len(data), 20)] = rng.integers(0, 256, 20)
        message.data = data[: rng.integers(2, len(data))].tobytes()
        return [message]

    bench = scene.bench
    bench.camera_on = False
    plain = bench.alter_frame
    for i in range(scene.many_frames):
        bench.alter_frame = damage if i % 100 == 99 else plain
        bench.publish_frame(bench.now_ns())
        time.sleep(0.002)
    bench.restore()


# -- odometry -------------------------------------------------------------------------------------


@fault(ONE_PERIOD_S)
def odometry_stops(scene):
    """It sends nothing."""
    scene.bench.odometry_on = False
    scene.see(STOP, 'odometry ends')
    scene.bench.odometry_on = True


@fault(ONE_PERIOD_S)
def odometry_teleports(scene):
    """It is suddenly 100 m to the left, and later back."""

    def shift(message):
        message.pose.pose.position.y += 100.0
        return [message]

    resets = scene.resets()
    with altered(scene.bench, alter_odometry=shift):
        scene.see(PlannerStatus.NOMINAL, above=resets)
    scene.see(above=resets + 1)


@fault(ONE_PERIOD_S)
def odometry_is_nan(scene):
    """Its filter has diverged."""

    def spoil(message):
        message.twist.twist.linear.x = math.nan
        return [message]

    with altered(scene.bench, alter_odometry=spoil):
        scene.see(STOP)
        scene.hear('is not finite')


@fault(ONE_PERIOD_S)
def odometry_has_no_orientation(scene):
    """Its quaternion is all zeros, as from a filter without an IMU."""

    def spoil(message):
        message.pose.pose.orientation.w = 0.0
        return [message]

    with altered(scene.bench, alter_odometry=spoil):
        scene.see(STOP)
        scene.hear('publish a unit quaternion')


@fault(ONE_PERIOD_S)
def odometry_is_in_kilometres_an_hour(scene):
    """Its twist has another unit than its pose."""

    def scale(message):
        message.twist.twist.linear.x *= 3.6
        return [message]

    with altered(scene.bench, alter_odometry=scale):
        scene.hear('the twist says (18.0, 0.0)')


@fault(ONE_PERIOD_S)
def odometry_is_an_hour_ahead(scene):
    """Its clock is set wrong."""
    with altered(scene.bench, alter_odometry=lambda message: later(message, HOUR_NS)):
        scene.see(STOP)
        scene.hear('s ahead of the clock; check the clocks')


@fault(ONE_PERIOD_S)
def odometry_is_an_hour_behind(scene):
    """Its clock is set wrong."""
    with altered(scene.bench, alter_odometry=lambda message: later(message, -HOUR_NS)):
        scene.see(STOP)
        scene.hear('/odometry: header.stamp is 3600.')
        scene.hear('s behind the clock; check the clocks')


@fault(ONE_PERIOD_S)
def odometry_slows_to_ten_hertz(scene):
    """Three of four messages are lost."""
    count = []

    def thin(message):
        count.append(None)
        return [message] if len(count) % 4 == 0 else []

    with altered(scene.bench, alter_odometry=thin):
        scene.watch(10)


# -- anything -------------------------------------------------------------------------------------


@fault(ONE_PERIOD_S)
def random_bytes_come_as_messages(scene):
    """A publisher of another version, or a broken network: bytes that are no message."""
    rng = np.random.default_rng(11)
    good = [serialize_message(message) for message in scene.bench.newest_messages()]

    def damage(cdr):
        data = np.frombuffer(cdr, np.uint8).copy()
        at = rng.integers(0, min(len(data), 120), 6)
        data[at] = rng.integers(0, 256, 6)
        end = rng.integers(1, len(data)) if rng.random() < 0.3 else len(data)
        return data[:end].tobytes()

    for _ in range(200):
        for cdr, publisher in zip(good, scene.bench.publishers(), strict=True):
            publisher.publish(damage(cdr))
            publisher.publish(rng.bytes(rng.integers(0, 200)))
        time.sleep(0.005)
    scene.watch(5)
