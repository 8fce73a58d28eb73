import math

import pytest

from wamdiff_ros.simulation.vehicle import (
    VEHICLE,
    Control,
    VehicleState,
    curvature_of,
    steering_for,
    step,
)


def drive(state: VehicleState, control: Control, steps: int) -> VehicleState:
    for _ in range(steps):
        state = step(state, control, 0.1)
    return state


def test_steady_steering_drives_a_circle_of_the_bicycle_models_radius():
    radius = 12.0
    angle = steering_for(1 / radius)
    state = VehicleState(radius, 0.0, math.pi / 2, 5.0, 0.0, angle)
    for _ in range(100):
        state = step(state, Control(0.0, angle), 0.1)
        assert math.hypot(state.x_m, state.y_m) == pytest.approx(radius, abs=0.02)
    assert state.heading_rad == pytest.approx(math.pi / 2 + 50.0 / radius)


def test_acceleration_follows_the_control_with_a_first_order_lag():
    state = step(VehicleState(0, 0, 0, 5.0), Control(1.0, 0.0), 0.2)
    assert state.acceleration_mps2 == pytest.approx(1 - math.exp(-1))


def test_controls_beyond_the_limits_do_no_more_than_the_limits():
    state = VehicleState(0, 0, 0, 10.0)
    wild = drive(state, Control(100.0, 9.0), 30)
    limit = Control(VEHICLE.acceleration_limit_mps2, VEHICLE.steering_limit_rad)
    assert wild == drive(state, limit, 30)
    assert step(state, Control(0.0, 9.0), 0.1).steering_rad == pytest.approx(0.06)
    braking = drive(VehicleState(0, 0, 0, 30.0), Control(-100.0, 0.0), 20)
    assert braking.acceleration_mps2 == pytest.approx(-6.0, abs=0.01)


def test_braking_ends_at_rest_and_never_in_reverse():
    state = drive(VehicleState(0, 0, 0, 3.0), Control(-4.0, 0.3), 40)
    assert state.speed_mps == 0.0
    assert state.acceleration_mps2 == 0.0
    assert drive(state, Control(-4.0, 0.3), 5) == state


def test_steering_and_curvature_are_inverse_of_each_other():
    assert curvature_of(steering_for(-0.1)) == pytest.approx(-0.1)
