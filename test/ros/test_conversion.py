"""Messages from nouns and back: exact times, the right frame."""

import numpy as np
import pytest
from builtin_interfaces.msg import Time
from hypothesis import given
from hypothesis import strategies as st
from nav_msgs.msg import Odometry
from sensor_msgs.msg import Image
from wamdiff_ros.msg import NavigationCommand, PlannedTrajectory

from wamdiff_ros.camera_parameters import Camera
from wamdiff_ros.message_time import nanoseconds
from wamdiff_ros.observation import messages
from wamdiff_ros.planning.publication import Publication
from wamdiff_ros.planning.trajectory import trajectory_from_waypoints
from wamdiff_ros.ros import conversion
from wamdiff_ros.types import Command, EgoState, Plan, PlanStatus

pytestmark = pytest.mark.ros

T0_NS = 1_700_000_000_123_456_789
WEST = (0.0, 0.0, np.sqrt(0.5), np.sqrt(0.5))  # heading along the fixed frame's y axis


def ego(**changes):
    values = {
        'stamp_ns': T0_NS,
        'fixed_frame': 'map',
        'base_frame': 'base_link',
        'position_fixed_m': (100.0, 50.0, 2.0),
        'orientation_xyzw': WEST,
        'velocity_base_mps': (4.0, 0.0),
        'yaw_rate_radps': 0.0,
        'acceleration_base_mps2': (0.0, 0.0),
    }
    return EgoState(**(values | changes))


def publication():
    waypoints = np.array([[2.0 * (i + 1), 0.0] for i in range(8)])
    trajectory = trajectory_from_waypoints(waypoints, (4.0, 0.0), 0.1)
    plan = Plan(T0_NS, ego(), waypoints, trajectory)
    return Publication(PlanStatus.HELD, plan, 300_000_000, T0_NS + 10**9, 'late')


@given(st.integers(-(2**31) * 10**9, 2**31 * 10**9 - 1))
def test_durations_keep_every_nanosecond(duration_ns):
    message = conversion.duration_message(duration_ns)
    assert 0 <= message.nanosec < 10**9
    assert nanoseconds(message) == duration_ns


@given(st.integers(1, 2**31 * 10**9 - 1))
def test_stamps_keep_every_nanosecond(time_ns):
    assert messages.stamp_ns(conversion.time_message(time_ns)) == time_ns


def test_stamp_that_nobody_set_is_refused():
    with pytest.raises(ValueError, match='stamp is zero'):
        messages.stamp_ns(Time())


def test_trajectory_in_the_fixed_frame_starts_at_the_vehicles_pose_and_follows_its_heading():
    message = conversion.planned_trajectory(publication(), 7, in_fixed_frame=True)
    assert message.header.frame_id == 'map'
    assert messages.stamp_ns(message.header.stamp) == T0_NS
    assert (message.sequence, message.status) == (7, PlannedTrajectory.HELD)
    first, last = message.points[0].pose, message.points[-1].pose
    assert (first.position.x, first.position.y, first.position.z) == pytest.approx((100, 50, 2))
    assert (first.orientation.z, first.orientation.w) == pytest.approx(WEST[2:])
    assert (last.position.x, last.position.y) == pytest.approx((100, 66))


def test_trajectory_in_the_base_frame_starts_at_its_origin():
    message = conversion.planned_trajectory(publication(), 7, in_fixed_frame=False)
    assert message.header.frame_id == 'base_link'
    first, last = message.points[0].pose, message.points[-1].pose
    assert (first.position.x, first.position.y, first.orientation.w) == (0, 0, 1)
    assert (last.position.x, last.position.y) == pytest.approx((16, 0))


def test_path_is_stamped_with_the_time_at_which_each_pose_is_reached():
    trajectory = conversion.planned_trajectory(publication(), 7, in_fixed_frame=True)
    path = conversion.path(trajectory)
    stamps_ns = [messages.stamp_ns(pose.header.stamp) for pose in path.poses]
    assert stamps_ns == [T0_NS + i * 100_000_000 for i in range(41)]


def test_odometry_gives_pose_in_its_header_and_twist_in_its_child_frame():
    message = Odometry(child_frame_id='rear_axle')
    message.header.frame_id = 'odom'
    message.header.stamp = conversion.time_message(T0_NS)
    message.pose.pose.position.x = 3.0
    message.pose.pose.orientation.w = 1.0
    message.twist.twist.linear.x = 4.0
    message.twist.twist.linear.y = -0.5
    message.twist.twist.angular.z = 0.1
    state = messages.ego_state(message)
    assert (state.stamp_ns, state.fixed_frame, state.base_frame) == (T0_NS, 'odom', 'rear_axle')
    assert state.position_fixed_m == (3.0, 0.0, 0.0)
    assert state.orientation_xyzw == (0.0, 0.0, 0.0, 1.0)
    assert state.velocity_base_mps == (4.0, -0.5)
    assert state.yaw_rate_radps == 0.1


def test_odometry_without_a_frame_is_refused():
    message = Odometry()
    message.header.stamp = conversion.time_message(T0_NS)
    with pytest.raises(ValueError, match='frame_id is empty'):
        messages.ego_state(message)


def test_stamp_offset_is_added_to_the_cameras_stamps():
    message = Image()
    message.header.stamp = conversion.time_message(T0_NS)
    frame = messages.encoded_raw(message, Camera('front', 'image', stamp_offset_s=-0.02))
    assert frame.stamp_ns == T0_NS - 20_000_000


def test_an_encoding_of_the_camera_replaces_the_label_of_its_driver():
    message = Image(encoding='yuv422', height=2, width=2, step=4, data=[200, 128, 50, 128] * 2)
    message.header.stamp = conversion.time_message(T0_NS)
    as_labelled = messages.encoded_raw(message, Camera('front', 'image')).decode()
    as_it_is = messages.encoded_raw(message, Camera('front', 'image', encoding='yuyv')).decode()
    assert as_labelled[0, 0, 0] == as_labelled[0, 1, 0]  # luma read from where chroma is
    assert as_it_is[0, 0, 0] > as_it_is[0, 1, 0] + 100


def test_every_command_has_its_constant_and_others_are_refused():
    constants = (NavigationCommand.STRAIGHT, NavigationCommand.LEFT, NavigationCommand.RIGHT)
    commands = {messages.command(NavigationCommand(command=value)) for value in constants}
    assert commands == set(Command)
    with pytest.raises(ValueError, match='command 3 is none of'):
        messages.command(NavigationCommand(command=3))
