"""Messages of the type store, which takes no ROS installation: the few that are made often."""

from collections.abc import Sequence
from typing import Any

from .bag import typestore


def message(name: str, /, **fields: Any) -> Any:
    """Return a message of the type store; every field has to be given."""
    return typestore().types[name](**fields)


def header(stamp_ns: int, frame_id: str) -> Any:
    """Return a Header."""
    return message('std_msgs/msg/Header', stamp=time(stamp_ns), frame_id=frame_id)


def pose(position_m: Sequence[float], quaternion: Sequence[float]) -> Any:
    """Return a Pose of x, y, z [m] and x, y, z, w."""
    x, y, z = position_m
    qx, qy, qz, qw = quaternion
    return message(
        'geometry_msgs/msg/Pose',
        position=message('geometry_msgs/msg/Point', x=x, y=y, z=z),
        orientation=message('geometry_msgs/msg/Quaternion', x=qx, y=qy, z=qz, w=qw),
    )


def time(time_ns: int) -> Any:
    """Return a Time."""
    sec, nanosec = divmod(time_ns, 10**9)
    return message('builtin_interfaces/msg/Time', sec=sec, nanosec=nanosec)


def duration(duration_ns: int) -> Any:
    """Return a Duration."""
    sec, nanosec = divmod(duration_ns, 10**9)
    return message('builtin_interfaces/msg/Duration', sec=sec, nanosec=nanosec)
