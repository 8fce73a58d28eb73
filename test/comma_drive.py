"""A minute of a real drive as ego states; its test is skipped where the recording is absent."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from wamdiff_ros.types import EgoState

RECORDING = Path(__file__).parents[2] / 'shared' / 'footage' / 'comma_ego_20hz.npz'


def comma_drive() -> list[EgoState]:
    """Return 1200 states, 50 ms apart; the fixed frame is the base frame of the first one."""
    if not RECORDING.is_file():
        pytest.skip(f'no recording {RECORDING.name} in ../shared/footage')
    return _states()


@cache
def _states() -> list[EgoState]:
    recorded = np.load(RECORDING)
    stamps_ns = (recorded['frame_times_s'] * 1e9).astype(int).tolist()
    # Recorded with y to the right and z down, in an earth-centred frame, w first.
    flip = Rotation.from_euler('x', np.pi)
    in_earth = Rotation.from_quat(np.roll(recorded['orientations_ecef_wxyz'], -1, axis=1)) * flip
    velocities_mps = in_earth.inv().apply(recorded['velocities_ecef_mps'])
    from_earth = in_earth[0].inv()
    positions_m = recorded['positions_ecef_m'] - recorded['positions_ecef_m'][0]
    yaw_rates_radps = np.gradient(
        np.unwrap((from_earth * in_earth).as_euler('ZYX')[:, 0]), recorded['frame_times_s']
    )
    return [
        EgoState(
            stamp_ns,
            'odom',
            'base_link',
            tuple(position_m),
            tuple(quaternion),
            tuple(velocity_mps[:2]),
            yaw_rate_radps,
            (0.0, 0.0),
        )
        for stamp_ns, position_m, quaternion, velocity_mps, yaw_rate_radps in zip(
            stamps_ns,
            from_earth.apply(positions_m).tolist(),
            (from_earth * in_earth).as_quat().tolist(),
            velocities_mps.tolist(),
            yaw_rates_radps.tolist(),
            strict=True,
        )
    ]
