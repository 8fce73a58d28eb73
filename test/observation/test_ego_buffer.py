import math
from dataclasses import replace

import numpy as np
import pytest
from comma_drive import comma_drive
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from wamdiff_ros.observation.ego_buffer import EgoBuffer, EgoError
from wamdiff_ros.observation.not_ready import NotReady
from wamdiff_ros.types import EgoState

SECOND = 1_000_000_000
MS = 1_000_000


def state(stamp_ns, **more):
    values = {
        'fixed_frame': 'odom',
        'base_frame': 'base_link',
        'position_fixed_m': (0.0, 0.0, 0.0),
        'orientation_xyzw': (0.0, 0.0, 0.0, 1.0),
        'velocity_base_mps': (0.0, 0.0),
        'yaw_rate_radps': 0.0,
        'acceleration_base_mps2': (math.nan, math.nan),  # must never be looked at
    }
    return EgoState(stamp_ns=stamp_ns, **(values | more))


def circle(stamp_ns, speed_mps=10.0, yaw_rate_radps=0.4, roll_pitch=(0.0, 0.0), offset=(0, 0, 0)):
    """A drive on a circle in a tilted plane."""
    angle = yaw_rate_radps * stamp_ns * 1e-9
    radius_m = speed_mps / yaw_rate_radps
    tilt = Rotation.from_euler('XY', roll_pitch)
    xyz = radius_m * np.array([math.sin(angle), 1 - math.cos(angle), 0])
    orientation = tilt * Rotation.from_euler('Z', angle)
    return state(
        stamp_ns,
        position_fixed_m=tuple(tilt.apply(xyz) + offset),
        orientation_xyzw=tuple(orientation.as_quat()),
        velocity_base_mps=(speed_mps, 0.0),
        yaw_rate_radps=yaw_rate_radps,
    )


def buffer_with(states, max_gap_ns=100 * MS, duration_ns=3 * SECOND):
    buffer = EgoBuffer(duration_ns, max_gap_ns)
    for entry in states:
        buffer.add(entry)
    return buffer


def assert_same_motion(found, wanted, metres):
    assert found.stamp_ns == wanted.stamp_ns
    assert np.allclose(found.position_fixed_m, wanted.position_fixed_m, rtol=0, atol=metres)
    turned = (
        Rotation.from_quat(found.orientation_xyzw).inv()
        * Rotation.from_quat(wanted.orientation_xyzw)
    ).magnitude()
    assert turned < 1e-6
    assert np.allclose(found.velocity_base_mps, wanted.velocity_base_mps)
    assert found.yaw_rate_radps == pytest.approx(wanted.yaw_rate_radps)


@given(
    time_ns=st.integers(0, SECOND),
    period_ns=st.integers(5 * MS, 100 * MS),
    yaw_rate=st.sampled_from([-0.6, 0.4]),
    roll_pitch=st.tuples(st.floats(-0.3, 0.3), st.floats(-0.3, 0.3)),
)
def test_interpolation_follows_a_circle_on_a_slope(time_ns, period_ns, yaw_rate, roll_pitch):
    drive = {'yaw_rate_radps': yaw_rate, 'roll_pitch': roll_pitch, 'offset': (4e5, -5e6, 300)}
    buffer = buffer_with(circle(t, **drive) for t in range(0, SECOND + period_ns, period_ns))
    # Sagitta of the chord that is driven in one period.
    sagitta_m = 10.0 * abs(yaw_rate) * (period_ns * 1e-9) ** 2 / 8
    assert_same_motion(buffer.at(time_ns), circle(time_ns, **drive), sagitta_m + 1e-6)


@given(beyond_ns=st.integers(0, 100 * MS), yaw_rate=st.sampled_from([-0.6, 1e-9, 0.4]))
def test_extrapolation_keeps_speed_and_yaw_rate(beyond_ns, yaw_rate):
    drive = {'yaw_rate_radps': yaw_rate, 'roll_pitch': (0.1, -0.2)}
    buffer = buffer_with([circle(0, **drive), circle(50 * MS, **drive)])
    time_ns = 50 * MS + beyond_ns
    assert_same_motion(buffer.at(time_ns), circle(time_ns, **drive), 1e-6)


def test_sideways_velocity_is_extrapolated_to_the_left():
    buffer = buffer_with([state(0, velocity_base_mps=(0.0, 2.0))])
    assert buffer.at(100 * MS).position_fixed_m == pytest.approx((0.0, 0.2, 0.0))


def test_opposite_signs_of_a_quaternion_do_not_turn_the_vehicle():
    drive = [circle(0), circle(50 * MS)]
    flipped = tuple(-value for value in drive[1].orientation_xyzw)
    buffer = buffer_with([drive[0], replace(drive[1], orientation_xyzw=flipped)])
    assert_same_motion(buffer.at(25 * MS), circle(25 * MS), 0.01)


@pytest.mark.parametrize(
    ('time_ms', 'words'),
    [
        (-1, 'odometry begins 0.001 s after t0'),
        (301, 'odometry ends 0.101 s (limit 0.100 s) before t0'),
        (50, 'odometry has a gap of 0.150 s (limit 0.100 s) around t0'),
    ],
)
def test_reasons_give_the_figures(time_ms, words):
    buffer = buffer_with([state(0), state(150 * MS), state(200 * MS)])
    with pytest.raises(NotReady) as not_ready:
        buffer.at(time_ms * MS)
    assert not_ready.value.reason == words


def test_empty_buffer_is_not_ready():
    with pytest.raises(NotReady, match='no odometry yet'):
        buffer_with([]).at(0)


def test_exact_stamp_needs_no_neighbour():
    buffer = buffer_with([state(0), state(SECOND)])
    assert buffer.at(0).stamp_ns == 0


BAD_VALUES = [
    ({'position_fixed_m': (0.0, math.nan, 0.0)}, 'position_fixed_m'),
    ({'velocity_base_mps': (math.inf, 0.0)}, 'velocity_base_mps'),
    ({'yaw_rate_radps': -math.inf}, 'yaw_rate_radps'),
    ({'orientation_xyzw': (0.0, 0.0, math.nan, 1.0)}, 'orientation_xyzw'),
    ({'velocity_base_mps': (100.0, 120.0)}, 'faster than 150 m/s'),
    ({'yaw_rate_radps': -30.0}, 'yaw_rate_radps -30.0 is faster than 10 rad/s; check its source'),
    ({'position_fixed_m': (0.0, -1e300, 0.0)}, 'is farther than 1e'),
    ({'orientation_xyzw': (0.0, 0.0, 0.0, 0.0)}, 'norm 0'),
    ({'orientation_xyzw': (0.0, 0.0, 0.0, 1.2)}, 'norm 1.2'),
    ({'fixed_frame': 'map'}, "'map'"),
    ({'base_frame': 'imu'}, "'imu'"),
]


@pytest.mark.parametrize(('values', 'words'), BAD_VALUES)
def test_bad_state_is_refused_and_nothing_is_lost(values, words):
    buffer = buffer_with([state(0), state(50 * MS)])
    with pytest.raises(EgoError, match=words):
        buffer.add(state(100 * MS, **values))
    assert len(buffer) == 2
    assert buffer.at(75 * MS).stamp_ns == 75 * MS
    counters = buffer.counters()
    assert (counters.received, counters.refused) == (3, 1)
    assert words in counters.last_error


def test_quaternion_near_unit_norm_is_normalised():
    buffer = buffer_with([state(0, orientation_xyzw=(0.0, 0.0, 0.0, 1.05))])
    assert buffer.at(0).orientation_xyzw == (0.0, 0.0, 0.0, 1.0)


def test_frames_may_change_after_clear():
    buffer = buffer_with([state(0)])
    buffer.clear()
    buffer.add(state(1, fixed_frame='map'))
    assert buffer.newest().fixed_frame == 'map'


def test_duplicates_are_counted_and_out_of_order_states_sorted_in():
    drive = [circle(t * MS) for t in (0, 100, 50, 100)]
    buffer = buffer_with(drive)
    assert len(buffer) == 3
    assert buffer.counters().duplicate == 1
    assert_same_motion(buffer.at(50 * MS), circle(50 * MS), 1e-9)


def test_history_is_bounded_by_time():
    buffer = buffer_with((state(t) for t in range(0, 10 * SECOND, 10 * MS)), duration_ns=SECOND)
    assert len(buffer) == 101


def test_acceleration_is_derived_from_speed():
    speeds = [(t, 5.0 - 2.0 * t * 1e-9) for t in range(0, SECOND, 20 * MS)]
    buffer = buffer_with(
        state(t, velocity_base_mps=(v, 0.0), yaw_rate_radps=0.3) for t, v in speeds
    )
    found = buffer.at(750 * MS)
    assert found.acceleration_base_mps2 == pytest.approx((-2.0, 3.5 * 0.3))


def test_derived_acceleration_does_not_look_ahead():
    speeds = [(t, 5.0 if t <= SECOND else 0.0) for t in range(0, 2 * SECOND, 20 * MS)]
    buffer = buffer_with(state(t, velocity_base_mps=(v, 0.0)) for t, v in speeds)
    assert buffer.at(SECOND).acceleration_base_mps2 == pytest.approx((0.0, 0.0), abs=1e-9)


def test_noise_of_the_speed_is_averaged():
    rng = np.random.default_rng(0)
    buffer = EgoBuffer(3 * SECOND, 100 * MS)
    for t in range(0, SECOND, 20 * MS):
        buffer.add(state(t, velocity_base_mps=(8 + 1.5 * t * 1e-9 + rng.normal(0, 0.02), 0.0)))
    assert buffer.at(980 * MS).acceleration_base_mps2[0] == pytest.approx(1.5, abs=0.15)


@pytest.mark.parametrize('stamps_ms', [[0], [0, 100], [0, 50, 100]])
def test_short_history_gives_no_forward_acceleration(stamps_ms):
    buffer = buffer_with(state(t * MS, velocity_base_mps=(t * 0.1, 0.0)) for t in stamps_ms)
    assert buffer.at(stamps_ms[-1] * MS).acceleration_base_mps2 == (0.0, 0.0)


def test_measured_acceleration_is_used_and_interpolated():
    buffer = buffer_with([state(0), state(50 * MS), state(100 * MS)])
    buffer.add_acceleration(0, 1.0, -1.0)
    buffer.add_acceleration(100 * MS, 3.0, 0.0)
    assert buffer.at(25 * MS).acceleration_base_mps2 == pytest.approx((1.5, -0.75))
    assert buffer.at(130 * MS).acceleration_base_mps2 == (3.0, 0.0)


def test_lost_acceleration_is_a_reason_and_no_silent_change():
    buffer = buffer_with([state(0), state(50 * MS), state(150 * MS)])
    buffer.add_acceleration(0, 1.0, 0.0)
    with pytest.raises(NotReady, match=r'acceleration ends 0\.150 s \(limit 0\.100 s\) before t0'):
        buffer.at(150 * MS)


@pytest.mark.parametrize(
    ('stamp_ns', 'forward_mps2', 'words'),
    [
        (5 * SECOND, math.nan, 'nan'),
        (5 * SECOND, -math.inf, 'inf'),
        (5 * SECOND, 981.0, r'981.0.*is not below 100 m/s\^2'),  # in hundredths
        (1 * SECOND, 1.0, 'acceleration is 4.000 s older than odometry'),
    ],
)
def test_bad_acceleration_is_refused_and_changes_nothing(stamp_ns, forward_mps2, words):
    buffer = buffer_with([state(5 * SECOND)])
    with pytest.raises(EgoError, match=words):
        buffer.add_acceleration(stamp_ns, forward_mps2, 0.0)
    assert buffer.counters().refused == 1
    assert buffer.at(5 * SECOND).acceleration_base_mps2 == (0.0, 0.0)


def test_acceleration_before_any_odometry_is_not_waited_for_later():
    buffer = EgoBuffer(3 * SECOND, 100 * MS)
    buffer.add_acceleration(1 * SECOND, 1.0, 0.0)
    buffer.add(state(60 * SECOND))
    assert buffer.at(60 * SECOND).acceleration_base_mps2 == (0.0, 0.0)


def test_a_real_drive_is_met_between_every_second_sample():
    drive = comma_drive()
    buffer = buffer_with(drive[::2], max_gap_ns=110 * MS, duration_ns=100 * SECOND)
    for state_between in drive[21:-1:2]:
        found = buffer.at(state_between.stamp_ns)
        error_m = np.subtract(found.position_fixed_m, state_between.position_fixed_m)
        assert np.hypot(*error_m[:2]) < 0.02
        assert found.speed_mps == pytest.approx(state_between.speed_mps, abs=0.1)
        turned = Rotation.from_quat(found.orientation_xyzw).inv() * Rotation.from_quat(
            state_between.orientation_xyzw
        )
        assert turned.magnitude() < 0.01


def test_derived_acceleration_of_a_real_drive_is_its_change_of_speed():
    drive = comma_drive()
    buffer = buffer_with(drive, duration_ns=100 * SECOND)
    derived_mps2 = [buffer.at(s.stamp_ns).acceleration_base_mps2[0] for s in drive[10:]]
    speeds_mps = np.array([s.speed_mps for s in drive])
    gained_mps2 = (speeds_mps[10:] - speeds_mps[:-10]) / 0.5
    assert np.std(derived_mps2 - gained_mps2) < 0.3 * np.std(gained_mps2)
    assert np.mean(derived_mps2) == pytest.approx(np.mean(gained_mps2), abs=0.02)


def test_newest_before_a_time_is_not_from_its_future():
    buffer = buffer_with(state(stamp_ns) for stamp_ns in (10, 20, 30))
    assert buffer.newest_before(29).stamp_ns == 20
    assert buffer.newest_before(30).stamp_ns == 30
    assert buffer.newest_before(9) is None
