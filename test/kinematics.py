"""Independent checks of a Trajectory, by numeric differentiation of its own points."""

import numpy as np


def assert_well_formed(trajectory):
    count = len(trajectory.time_ns)
    assert trajectory.time_ns.dtype == np.int64
    assert trajectory.time_ns[0] == 0
    assert (np.diff(trajectory.time_ns) > 0).all()
    assert trajectory.xy_base_m.shape == (count, 2)
    for name in (
        'heading_base_rad',
        'speed_mps',
        'acceleration_mps2',
        'heading_rate_radps',
        'curvature_1pm',
    ):
        values = getattr(trajectory, name)
        assert values.shape == (count,), name
        assert np.isfinite(values).all(), name
    assert np.array_equal(trajectory.xy_base_m[0], [0.0, 0.0])
    assert trajectory.heading_base_rad[0] == 0.0


def assert_consistent(trajectory, *, velocity=0.02, acceleration=0.02, rate=0.02, skip=()):
    """Compare every interval's mean rates with the states at its two ends; skip some intervals."""
    assert_well_formed(trajectory)
    duration_s = np.diff(trajectory.time_ns) * 1e-9
    keep = np.ones(len(duration_s), bool)
    keep[list(skip)] = False

    def mean(values):
        return (values[1:] + values[:-1])[keep] / 2

    def slope(values):
        return (np.diff(values, axis=0).T / duration_s).T[keep]

    heading = trajectory.heading_base_rad
    ahead = np.stack([np.cos(heading), np.sin(heading)], axis=1)
    velocity_mps = ahead * trajectory.speed_mps[:, None]
    assert np.abs(slope(trajectory.xy_base_m) - mean(velocity_mps)).max() < velocity
    error = slope(trajectory.speed_mps) - mean(trajectory.acceleration_mps2)
    assert np.abs(error).max() < acceleration
    assert np.abs(slope(heading) - mean(trajectory.heading_rate_radps)).max() < rate
    turned = trajectory.curvature_1pm * trajectory.speed_mps
    assert np.allclose(turned, trajectory.heading_rate_radps, atol=1e-9)
