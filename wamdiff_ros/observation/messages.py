"""From messages to what the buffers hold; those of rclpy and those that rosbags reads alike.

Every function takes a message by its fields' names and raises ValueError, with a reason, for one
that cannot be used.
"""

from functools import partial
from typing import Any

from ..camera_parameters import Camera
from ..message_time import nanoseconds
from ..types import Command, EgoState
from .frame_buffer import EncodedFrame
from .image_decoding import decode_compressed, decode_raw


def stamp_ns(stamp: Any) -> int:
    """Return a header's stamp in nanoseconds; raises ValueError for a stamp nobody set."""
    time_ns = nanoseconds(stamp)
    if time_ns == 0:
        raise ValueError('header.stamp is zero; the driver must stamp its messages')
    return time_ns


def encoded_raw(message: Any, camera: Camera) -> EncodedFrame:
    """Wrap a sensor_msgs/Image without copying it; raises ValueError for a zero stamp."""
    decode = partial(
        decode_raw,
        camera.encoding or message.encoding,
        message.height,
        message.width,
        message.step,
        message.data,
        bool(message.is_bigendian),
    )
    return EncodedFrame(_camera_stamp_ns(message, camera), camera.name, decode)


def encoded_compressed(message: Any, camera: Camera) -> EncodedFrame:
    """Wrap a CompressedImage without copying it; raises ValueError for a zero stamp."""
    decode = partial(decode_compressed, message.data, message.format)
    return EncodedFrame(_camera_stamp_ns(message, camera), camera.name, decode)


def _camera_stamp_ns(message: Any, camera: Camera) -> int:
    return stamp_ns(message.header.stamp) + round(camera.stamp_offset_s * 1e9)


def ego_state(message: Any) -> EgoState:
    """Take pose (in the header's frame) and twist (in the child's) from a nav_msgs/Odometry.

    An empty child frame is read as base_link, as in REP-105; acceleration is left at zero for
    the ego buffer to fill in. Raises ValueError for a zero stamp or an empty header frame.
    """
    if not message.header.frame_id:
        raise ValueError('header.frame_id is empty; the driver must name its fixed frame')
    position, orientation = message.pose.pose.position, message.pose.pose.orientation
    twist = message.twist.twist
    return EgoState(
        stamp_ns=stamp_ns(message.header.stamp),
        fixed_frame=message.header.frame_id,
        base_frame=message.child_frame_id or 'base_link',
        position_fixed_m=(position.x, position.y, position.z),
        orientation_xyzw=(orientation.x, orientation.y, orientation.z, orientation.w),
        velocity_base_mps=(twist.linear.x, twist.linear.y),
        yaw_rate_radps=twist.angular.z,
        acceleration_base_mps2=(0.0, 0.0),
    )


def acceleration(message: Any) -> tuple[int, float, float]:
    """Return (stamp [ns], forward, left) of an AccelWithCovarianceStamped [m/s^2].

    Raises ValueError for a zero stamp.
    """
    linear = message.accel.accel.linear
    return stamp_ns(message.header.stamp), linear.x, linear.y


def command(message: Any) -> Command:
    """Return the command; raises ValueError for a value that is none of the constants."""
    commands = {
        message.STRAIGHT: Command.STRAIGHT,
        message.LEFT: Command.LEFT,
        message.RIGHT: Command.RIGHT,
    }
    if message.command not in commands:
        known = ', '.join(f'{value} {command.value}' for value, command in commands.items())
        raise ValueError(f'command {message.command} is none of {known}')
    return commands[message.command]
