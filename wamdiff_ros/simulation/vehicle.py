"""The ego vehicle: a kinematic bicycle at the centre of the rear axle, with limits and lag."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class VehicleState:
    """Pose of the centre of the rear axle in the map, and how the vehicle moves."""

    x_m: float
    y_m: float
    heading_rad: float
    speed_mps: float = 0.0  # never negative: there is no reverse
    acceleration_mps2: float = 0.0  # true one, after the actuator's lag
    steering_rad: float = 0.0  # true angle of the front wheels, positive to the left


@dataclass(frozen=True)
class Control:
    """What is asked of the actuators; limits are applied by `step`."""

    acceleration_mps2: float
    steering_rad: float


@dataclass(frozen=True)
class Vehicle:
    """Dimensions and limits of a compact car."""

    wheelbase_m: float = 2.8
    length_m: float = 4.6
    width_m: float = 1.85
    height_m: float = 1.5
    rear_overhang_m: float = 0.9
    track_m: float = 1.6  # between the middles of the wheels of an axle
    steering_limit_rad: float = 0.6
    steering_rate_radps: float = 0.6
    braking_limit_mps2: float = 6.0
    acceleration_limit_mps2: float = 2.5
    acceleration_lag_s: float = 0.2

    @property
    def front_m(self) -> float:
        """Distance from the rear axle to the front bumper."""
        return self.length_m - self.rear_overhang_m

    @property
    def centre_m(self) -> float:
        """Distance from the rear axle to the middle of the footprint."""
        return self.length_m / 2 - self.rear_overhang_m


VEHICLE = Vehicle()


def curvature_of(steering_rad: float) -> float:
    """Return the curvature (1/m) that the rear axle's centre follows."""
    return math.tan(steering_rad) / VEHICLE.wheelbase_m


def steering_for(curvature_1pm: float) -> float:
    """Return the angle of the front wheels for a curvature, within the vehicle's limit."""
    angle = math.atan(curvature_1pm * VEHICLE.wheelbase_m)
    return min(max(angle, -VEHICLE.steering_limit_rad), VEHICLE.steering_limit_rad)


def step(state: VehicleState, control: Control, dt_s: float) -> VehicleState:
    """Return the state `dt_s` later, under a control that is held meanwhile."""
    v = VEHICLE
    wanted = min(max(control.acceleration_mps2, -v.braking_limit_mps2), v.acceleration_limit_mps2)
    acceleration = wanted + (state.acceleration_mps2 - wanted) * math.exp(
        -dt_s / v.acceleration_lag_s
    )
    target = min(max(control.steering_rad, -v.steering_limit_rad), v.steering_limit_rad)
    turn = v.steering_rate_radps * dt_s
    steering = state.steering_rad + min(max(target - state.steering_rad, -turn), turn)

    speed = state.speed_mps + acceleration * dt_s
    if speed <= 0.0:  # brakes hold, they do not push back
        speed = 0.0
        acceleration = max(acceleration, 0.0)
    distance = (state.speed_mps + speed) / 2 * dt_s
    heading_change = distance * curvature_of((state.steering_rad + steering) / 2)
    middle = state.heading_rad + heading_change / 2
    return VehicleState(
        state.x_m + distance * math.cos(middle),
        state.y_m + distance * math.sin(middle),
        state.heading_rad + heading_change,
        speed,
        acceleration,
        steering,
    )
