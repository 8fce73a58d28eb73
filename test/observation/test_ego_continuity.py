"""Jumps of odometry, and poses that do not go with their twists."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from comma_drive import comma_drive
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from wamdiff_ros.observation.ego_buffer import EgoBuffer
from wamdiff_ros.observation.ego_continuity import break_between, disagreement
from wamdiff_ros.types import EgoState

SECOND = 1_000_000_000


def drive(rate_hz, speed_mps=10.0, yaw_rate_radps=0.3, seconds=2.0, twist=None):
    """States on a circle; `twist` replaces the velocity that is told."""
    states = []
    for i in range(round(seconds * rate_hz)):
        time_s = i / rate_hz
        angle = yaw_rate_radps * time_s
        radius_m = speed_mps / yaw_rate_radps
        states.append(
            EgoState(
                round(time_s * SECOND),
                'odom',
                'base_link',
                (radius_m * math.sin(angle), radius_m * (1 - math.cos(angle)), 0.0),
                tuple(Rotation.from_euler('z', angle).as_quat()),
                twist or (speed_mps, 0.0),
                yaw_rate_radps,
                (0.0, 0.0),
            )
        )
    return states


@given(
    rate_hz=st.sampled_from([5, 10, 20, 50, 100, 400]),
    speed_mps=st.floats(-5.0, 50.0),
    yaw_rate_radps=st.sampled_from([-0.6, 1e-3, 0.5]),
)
def test_a_plain_drive_neither_jumps_nor_disagrees_at_any_rate(rate_hz, speed_mps, yaw_rate_radps):
    states = drive(rate_hz, speed_mps, yaw_rate_radps)
    assert not any(break_between(a, b, 1.0) for a, b in pairwise(states))
    assert disagreement(states) == ''


def test_a_real_drive_neither_jumps_nor_disagrees():
    states = comma_drive()
    assert not any(break_between(a, b, 1.0) for a, b in pairwise(states))
    assert not any(disagreement(states[i : i + 60]) for i in range(0, len(states), 20))


@given(step_m=st.floats(4.0, 1e6), angle=st.floats(-3.1, 3.1))
def test_a_teleport_is_a_jump_that_gives_its_size(step_m, angle):
    before, after = drive(50)[:2]
    x, y, z = after.position_fixed_m
    moved = (x + step_m * math.cos(angle), y + step_m * math.sin(angle), z)
    reason = break_between(before, replace(after, position_fixed_m=moved), 1.0)
    assert reason.startswith('odometry jumped by ')
    told_m = float(reason.split()[3])
    assert told_m == pytest.approx(math.dist(before.position_fixed_m, moved), abs=0.06)


def test_a_turn_on_the_spot_is_a_jump():
    before, after = drive(50)[:2]
    turned = replace(after, orientation_xyzw=(0.0, 0.0, 1.0, 0.0))
    assert break_between(before, turned, 1.0) == 'odometry turned by 180 degrees in 0.020 s'
    # The other sign of a quaternion is the same orientation.
    flipped = tuple(-value for value in after.orientation_xyzw)
    assert break_between(before, replace(after, orientation_xyzw=flipped), 1.0) == ''


def test_what_a_vehicle_may_drive_in_a_gap_is_no_jump():
    states = drive(50, speed_mps=30.0, yaw_rate_radps=0.1)
    assert break_between(states[0], states[-1], 1.0) == ''


@pytest.mark.parametrize('frame', ['fixed_frame', 'base_frame'])
def test_another_frame_is_named(frame):
    before, after = drive(50)[:2]
    reason = break_between(before, replace(after, **{frame: 'map'}), 1.0)
    assert reason.startswith("odometry changed from 'base_link' in 'odom' to ")
    assert "'map'" in reason


@pytest.mark.parametrize(
    ('wrong', 'told'),
    [
        ((36.0, 0.0), '(36.0, 0.0)'),  # km/h
        ((0.0, 10.0), '(0.0, 10.0)'),  # in another frame
        ((0.0, 0.0), '(0.0, 0.0)'),  # not filled in
        ((-10.0, 0.0), '(-10.0, 0.0)'),  # x to the back
    ],
)
@pytest.mark.parametrize('rate_hz', [10, 50])
def test_a_twist_of_the_wrong_unit_frame_or_sign_disagrees(wrong, told, rate_hz):
    reason = disagreement(drive(rate_hz, twist=wrong))
    assert f'the twist says {told}' in reason
    assert 'child_frame_id' in reason


def test_a_twist_in_the_fixed_frame_disagrees_once_the_vehicle_has_turned():
    west = Rotation.from_euler('z', math.pi / 2)
    states = [
        replace(
            state,
            position_fixed_m=tuple(west.apply(state.position_fixed_m)),
            orientation_xyzw=tuple((west * Rotation.from_quat(state.orientation_xyzw)).as_quat()),
            velocity_base_mps=(0.0, 10.0),
        )
        for state in drive(50, yaw_rate_radps=1e-3)
    ]
    assert 'move with (10.0, 0.0) m/s forward and left' in disagreement(states)


def test_too_little_says_nothing():
    assert disagreement(drive(50, twist=(99.0, 0.0))[:20]) == ''
    assert disagreement(drive(2, twist=(99.0, 0.0))) == ''


@pytest.mark.parametrize(
    'bad',
    [
        {'position_fixed_m': (math.inf, 0.0, 0.0)},
        {'position_fixed_m': (math.nan, 0.0, 0.0)},
        {'orientation_xyzw': (0.0, 0.0, 0.0, 0.0)},
        {'orientation_xyzw': (5.0, 0.0, 0.0, 0.0)},
        {'velocity_base_mps': (math.inf, 0.0)},
    ],
)
def test_a_message_that_is_refused_breaks_no_stream(bad):
    before, after = drive(50)[:2]
    buffer = EgoBuffer(3 * SECOND, SECOND)
    buffer.add(before)
    assert buffer.break_before(replace(after, **bad), 1.0) == ''
    far = replace(after, position_fixed_m=(900.0, 0.0, 0.0))
    assert buffer.break_before(far, 1.0)
    assert buffer.break_before(replace(far, stamp_ns=before.stamp_ns), 1.0) == ''  # a duplicate


def test_noise_of_a_standing_vehicle_does_not_disagree():
    rng = np.random.default_rng(0)
    states = [
        replace(state, position_fixed_m=(*(rng.normal(0, 0.05, 2)), 0.0))
        for state in drive(20, speed_mps=0.0, yaw_rate_radps=1e-3)
    ]
    assert disagreement(states) == ''
