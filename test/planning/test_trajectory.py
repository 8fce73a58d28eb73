import math

import numpy as np
import pytest
from comma_drive import comma_drive
from hypothesis import given
from hypothesis import strategies as st
from kinematics import assert_consistent, assert_well_formed
from scipy.spatial.transform import Rotation

from wamdiff_ros.planning.trajectory import to_fixed, trajectory_from_waypoints
from wamdiff_ros.types import EgoState

TIMES_S = np.arange(1, 9) * 0.5


def along_x(distances_m):
    return np.stack([distances_m, np.zeros(8)], axis=1)


def on_circle(radius_m, distances_m):
    angle = distances_m / radius_m
    return radius_m * np.stack([np.sin(angle), 1 - np.cos(angle)], axis=1)


def test_straight_with_constant_speed():
    trajectory = trajectory_from_waypoints(along_x(10 * TIMES_S), (10.0, 0.0), 0.1)
    assert_consistent(trajectory, velocity=1e-9, acceleration=1e-9, rate=1e-9)
    assert np.allclose(trajectory.xy_base_m[:, 0], trajectory.time_ns * 1e-8)
    assert np.allclose(trajectory.speed_mps, 10.0)
    for values in (trajectory.acceleration_mps2, trajectory.heading_base_rad):
        assert np.allclose(values, 0.0, atol=1e-9)


@pytest.mark.parametrize('radius_m', [20.0, -20.0, 40.0, -100.0])
def test_circle_has_its_curvature_within_one_percent(radius_m):
    trajectory = trajectory_from_waypoints(on_circle(radius_m, 8 * TIMES_S), (8.0, 0.0), 0.1)
    assert_consistent(trajectory, velocity=0.05)
    # The last half second has no waypoint beyond it: within 3 % on the tightest circle.
    known = trajectory.time_ns <= 3_500_000_000
    assert np.allclose(trajectory.curvature_1pm[known], 1 / radius_m, rtol=0.01)
    assert np.allclose(trajectory.curvature_1pm, 1 / radius_m, rtol=0.03)
    assert np.allclose(trajectory.heading_rate_radps[known], 8.0 / radius_m, rtol=0.01)
    assert np.allclose(trajectory.speed_mps, 8.0, rtol=0.001)
    assert trajectory.heading_base_rad[-1] == pytest.approx(32.0 / radius_m, rel=0.01)


BRAKING_M = np.where(TIMES_S < 2.5, 5 * TIMES_S - TIMES_S**2, 6.25)


def test_braking_to_standstill():
    trajectory = trajectory_from_waypoints(along_x(BRAKING_M), (5.0, 0.0), 0.01)
    assert_consistent(trajectory, velocity=0.01, acceleration=0.05)
    assert trajectory.speed_mps[0] == 5.0
    standing = trajectory.time_ns > 3_000_000_000
    assert np.abs(trajectory.speed_mps[standing]).max() < 0.1
    assert (trajectory.curvature_1pm[standing] == 0).all()
    assert np.abs(trajectory.heading_base_rad).max() < 1e-6


def test_standing_start():
    trajectory = trajectory_from_waypoints(along_x(0.75 * TIMES_S**2), (0.0, 0.0), 0.01)
    assert_consistent(trajectory, velocity=0.01, acceleration=0.02)
    assert trajectory.speed_mps[0] == 0.0
    assert trajectory.speed_mps[-1] == pytest.approx(6.0, abs=0.01)
    assert np.allclose(trajectory.acceleration_mps2, 1.5, atol=0.05)


def test_reverse_keeps_the_heading_with_negative_speed():
    angle = 2.0 * TIMES_S / 15
    waypoints = 15 * np.stack([-np.sin(angle), 1 - np.cos(angle)], axis=1)
    trajectory = trajectory_from_waypoints(waypoints, (-2.0, 0.0), 0.05)
    assert_consistent(trajectory)
    assert np.allclose(trajectory.speed_mps, -2.0, rtol=0.001)
    # To the left behind: the heading turns clockwise.
    assert trajectory.heading_base_rad[-1] == pytest.approx(-8 / 15, rel=0.01)
    assert np.allclose(trajectory.curvature_1pm, 1 / 15, rtol=0.01)


def test_forward_then_backward_does_not_turn_round():
    trajectory = trajectory_from_waypoints(along_x(4 * TIMES_S - TIMES_S**2), (4.0, 0.0), 0.05)
    assert_consistent(trajectory)
    assert np.abs(trajectory.heading_base_rad).max() < 1e-6
    assert trajectory.speed_mps[-1] == pytest.approx(-4.0, abs=0.01)
    assert np.allclose(trajectory.acceleration_mps2, -2.0, atol=0.01)


@given(st.lists(st.floats(-0.01, 0.01), min_size=16, max_size=16))
def test_jitter_at_standstill_does_not_swing_the_heading(jitter_m):
    waypoints = np.array(jitter_m).reshape(8, 2)
    trajectory = trajectory_from_waypoints(waypoints, (0.0, 0.0), 0.1)
    assert_well_formed(trajectory)
    assert (trajectory.heading_base_rad == 0).all()
    assert (trajectory.curvature_1pm == 0).all()


def test_heading_after_a_stop_is_that_of_the_last_motion():
    waypoints = on_circle(12.0, BRAKING_M)
    waypoints[5:] += np.array([[0.01, -0.01], [-0.01, 0.01], [0.0, -0.01]])
    trajectory = trajectory_from_waypoints(waypoints, (5.0, 0.0), 0.1)
    standing = trajectory.heading_base_rad[trajectory.time_ns > 2_500_000_000]
    assert np.ptp(standing) == 0.0
    assert standing[0] == pytest.approx(6.25 / 12, abs=0.05)


speeds = st.floats(1.0, 20.0)


@given(
    speed=speeds,
    acceleration=st.floats(-0.2, 1.5),
    curvature=st.floats(-0.05, 0.05),
    interval_s=st.sampled_from([0.02, 0.05]),
)
def test_any_smooth_drive_is_consistent(speed, acceleration, curvature, interval_s):
    t = np.arange(0, 4001) * 1e-3
    angle = curvature * (speed * t + acceleration * t**2 / 2)
    steps = (speed + acceleration * t)[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    way = np.vstack([np.zeros(2), np.cumsum((steps[1:] + steps[:-1]) / 2 * 1e-3, axis=0)])
    trajectory = trajectory_from_waypoints(way[500::500], (speed, 0.0), interval_s)
    assert_consistent(trajectory, velocity=0.05, acceleration=0.2, rate=0.05)
    assert np.allclose(trajectory.xy_base_m[-1], way[-1])
    assert trajectory.speed_mps[0] == pytest.approx(speed)


def test_the_way_passes_every_waypoint():
    waypoints = np.cumsum(np.random.default_rng(0).uniform(0, 3, (8, 2)), axis=0)
    trajectory = trajectory_from_waypoints(waypoints, (3.0, 0.2), 0.1)
    assert np.allclose(trajectory.xy_base_m[5::5], waypoints)


@pytest.mark.parametrize('interval_s', [0.1, 0.3, 0.07, 1 / 3, 0.5, 0.0333, 4.0, 5.0])
def test_times_are_exact_and_end_at_the_horizon(interval_s):
    trajectory = trajectory_from_waypoints(along_x(10 * TIMES_S), (10.0, 0.0), interval_s)
    times_ns = trajectory.time_ns.tolist()
    interval_ns = round(interval_s * 1e9)
    assert times_ns[-1] == 4_000_000_000
    assert times_ns[:-1] == [i * interval_ns for i in range(len(times_ns) - 1)]
    assert min(np.diff(times_ns)) > 1_000_000


def test_tenths_of_seconds_are_whole_nanoseconds():
    trajectory = trajectory_from_waypoints(along_x(10 * TIMES_S), (10.0, 0.0), 0.1)
    assert trajectory.time_ns.tolist() == [i * 100_000_000 for i in range(41)]


@pytest.mark.parametrize(
    ('waypoints', 'velocity', 'words'),
    [
        (along_x(np.full(8, math.nan)), (0.0, 0.0), 'not finite'),
        (along_x(np.full(8, math.inf)), (0.0, 0.0), 'not finite'),
        (along_x(TIMES_S), (math.nan, 0.0), 'velocity'),
        (along_x(TIMES_S), (0.0, math.inf), 'velocity'),
        (np.zeros((0, 2)), (0.0, 0.0), 'shape'),
        (np.zeros((8, 3)), (0.0, 0.0), 'shape'),
        (np.zeros(16), (0.0, 0.0), 'shape'),
    ],
)
def test_bad_input_is_refused(waypoints, velocity, words):
    with pytest.raises(ValueError, match=words):
        trajectory_from_waypoints(waypoints, velocity, 0.1)


def test_interval_of_zero_is_refused():
    with pytest.raises(ValueError, match='interval'):
        trajectory_from_waypoints(along_x(TIMES_S), (1.0, 0.0), 0.0)


@given(
    angles=st.tuples(st.floats(-3, 3), st.floats(-0.4, 0.4), st.floats(-0.4, 0.4)),
    offset=st.sampled_from([(0.0, 0.0, 0.0), (4.5e5, -5.1e6, 812.0)]),
)
def test_fixed_poses_compose_with_the_three_dimensional_ego_pose(angles, offset):
    ego = EgoState(
        0,
        'odom',
        'base_link',
        offset,
        tuple(Rotation.from_euler('ZYX', angles).as_quat()),
        (8.0, 0.0),
        0.0,
        (0.0, 0.0),
    )
    trajectory = trajectory_from_waypoints(on_circle(20.0, 8 * TIMES_S), (8.0, 0.0), 0.5)
    positions_m, quaternions = to_fixed(trajectory, ego)
    assert np.array_equal(positions_m[0], offset)
    assert np.allclose(np.linalg.norm(quaternions, axis=1), 1.0)
    ego_matrix = Rotation.from_euler('ZYX', angles).as_matrix()
    for i, heading in enumerate(trajectory.heading_base_rad):
        xyz = ego_matrix @ [*trajectory.xy_base_m[i], 0.0] + offset
        assert np.allclose(positions_m[i], xyz, rtol=0, atol=1e-6)
        ahead = ego_matrix @ [math.cos(heading), math.sin(heading), 0.0]
        assert np.allclose(Rotation.from_quat(quaternions[i]).apply([1.0, 0, 0]), ahead)
        up = Rotation.from_quat(quaternions[i]).apply([0, 0, 1.0])
        assert np.allclose(up, ego_matrix[:, 2])


def test_a_real_drive_is_met_between_its_waypoints():
    drive = comma_drive()
    for first in range(0, 1100, 25):
        now, ahead = drive[first], drive[first : first + 81]
        to_base = Rotation.from_quat(now.orientation_xyzw).inv()
        xyz_m = to_base.apply(
            [np.subtract(s.position_fixed_m, now.position_fixed_m) for s in ahead]
        )
        turned = to_base * Rotation.from_quat([s.orientation_xyzw for s in ahead])
        facing = turned.apply([1.0, 0.0, 0.0])
        trajectory = trajectory_from_waypoints(xyz_m[10::10, :2], now.velocity_base_mps, 0.05)
        assert_consistent(trajectory, velocity=0.05, acceleration=0.1)
        assert np.abs(trajectory.xy_base_m - xyz_m[:, :2]).max() < 0.05
        headings = np.arctan2(facing[:, 1], facing[:, 0])
        assert np.abs(trajectory.heading_base_rad - headings).max() < 0.03
        speeds_mps = [s.speed_mps for s in ahead]
        assert np.abs(trajectory.speed_mps - speeds_mps).max() < 0.3


def test_smoothing_takes_the_rounding_of_waypoints_out_of_the_acceleration():
    steady = np.stack((6.43 * np.arange(0.5, 4.1, 0.5), np.zeros(8)), axis=1).round(1)
    through, smooth = (
        trajectory_from_waypoints(steady, (6.43, 0.0), 0.1, waypoint_noise_m=noise_m)
        for noise_m in (0.0, 0.1)
    )
    assert np.abs(through.acceleration_mps2).max() > 0.8
    assert np.abs(smooth.acceleration_mps2).max() < 0.2


def test_smoothing_leaves_waypoints_of_constant_acceleration_alone():
    time_s = np.arange(0.5, 4.1, 0.5)
    waypoints = np.stack((8.0 * time_s - 0.7 * time_s**2, 0.1 * time_s**2), axis=1)
    through, smooth = (
        trajectory_from_waypoints(waypoints, (8.0, 0.0), 0.1, waypoint_noise_m=noise_m)
        for noise_m in (0.0, 0.3)
    )
    np.testing.assert_allclose(smooth.xy_base_m, through.xy_base_m, atol=1e-9)


def test_a_smoothed_trajectory_starts_at_the_vehicle_with_its_speed():
    waypoints = np.random.default_rng(0).normal(0, 0.3, (8, 2)) + [
        [5.0 * k, 0] for k in range(1, 9)
    ]
    smooth = trajectory_from_waypoints(waypoints, (10.0, 0.0), 0.1, waypoint_noise_m=0.3)
    assert smooth.xy_base_m[0].tolist() == [0.0, 0.0]
    assert smooth.speed_mps[0] == pytest.approx(10.0)


@given(st.floats(0.01, 1.0), st.integers(0, 1000))
def test_more_smoothing_is_never_rougher_and_less_is_never_farther_from_the_waypoints(
    noise_m, seed
):
    random = np.random.default_rng(seed)
    waypoints = random.normal(0, 0.5, (8, 2)) + [[4.0 * k, 0.0] for k in range(1, 9)]
    jerks, offsets = [], []
    for noise in (noise_m, 2 * noise_m):
        path = trajectory_from_waypoints(waypoints, (8.0, 0.0), 0.1, waypoint_noise_m=noise)
        at_waypoints = path.xy_base_m[5::5]
        offsets.append(np.linalg.norm(at_waypoints - waypoints))
        of_positions = np.diff(path.xy_base_m, 3, axis=0)
        jerks.append(np.linalg.norm(of_positions))
    assert offsets[0] <= offsets[1] + 1e-9
    assert jerks[1] <= jerks[0] * (1 + 1e-6)
