"""Integer nanoseconds out of ROS messages, those of rclpy and those that rosbags reads alike."""

from typing import Any


def nanoseconds(time: Any) -> int:
    """Return a builtin_interfaces Time or Duration in nanoseconds."""
    return time.sec * 1_000_000_000 + time.nanosec


def header_ns(message: Any) -> int:
    """Return the stamp of a message's header in nanoseconds."""
    return nanoseconds(message.header.stamp)
