"""The plan as Autoware's trajectory message, where autoware_planning_msgs is installed."""

import math

from rclpy.node import Node

from wamdiff_ros.msg import PlannedTrajectory

TOPIC = '~/autoware_trajectory'


class AutowareTrajectory:
    """Publishes every plan as autoware_planning_msgs/Trajectory too, until `destroy`."""

    @classmethod
    def create(cls, node: Node) -> 'AutowareTrajectory | None':
        """Return the output, or None where the messages are not installed."""
        try:
            from autoware_planning_msgs.msg import Trajectory, TrajectoryPoint
        except ImportError:
            return None
        return cls(node, Trajectory, TrajectoryPoint)

    def __init__(self, node: Node, message: type, point: type) -> None:
        self._node, self._message, self._point = node, message, point
        self._publisher = node.create_publisher(message, TOPIC, 10)

    def destroy(self) -> None:
        """Take back the publisher."""
        self._node.destroy_publisher(self._publisher)

    def publish(self, trajectory: PlannedTrajectory) -> None:
        """Send the same points under the same stamp and frame.

        Autoware's acceleration counts positive where the pace grows, also in reverse; the wheel
        angles stay zero, for they are the controller's business.
        """
        points = [
            self._point(
                time_from_start=point.time_from_start,
                pose=point.pose,
                longitudinal_velocity_mps=point.speed_mps,
                acceleration_mps2=math.copysign(1.0, point.speed_mps) * point.acceleration_mps2,
                heading_rate_rps=point.heading_rate_radps,
            )
            for point in trajectory.points
        ]
        self._publisher.publish(self._message(header=trajectory.header, points=points))
