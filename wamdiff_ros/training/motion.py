"""Samples of plain motion: where a vehicle goes from its speed and acceleration alone.

Enough to make a checkpoint whose answers can be parsed and projected into a picture, without a
world to drive in. It knows nothing of what the camera sees.
"""

from dataclasses import dataclass

import numpy as np

from ..types import EgoState

HORIZON_S = 4.0
WAYPOINTS = 8
# Drivers let go: accelerations and yaw rates fade with these time constants [s].
ACCELERATION_FADES_S = 2.0
YAW_RATE_FADES_S = 2.5
STEP_S = 0.02


@dataclass(frozen=True, eq=False)
class Motion:
    """One vehicle's velocity, acceleration (base frame, forward and left) and its future."""

    velocity_base_mps: tuple[float, float]
    acceleration_base_mps2: tuple[float, float]
    waypoints_base_m: np.ndarray  # [8, 2], every 0.5 s

    def ego(self) -> EgoState:
        """Return the vehicle's state at time 0, at the origin of the fixed frame."""
        return EgoState(
            stamp_ns=0,
            fixed_frame='odom',
            base_frame='base_link',
            position_fixed_m=(0.0, 0.0, 0.0),
            orientation_xyzw=(0.0, 0.0, 0.0, 1.0),
            velocity_base_mps=self.velocity_base_mps,
            yaw_rate_radps=0.0,
            acceleration_base_mps2=self.acceleration_base_mps2,
        )


def sample_motion(random: np.random.Generator) -> Motion:
    """Draw a motion of ordinary driving: 0 to 24 m/s, lateral acceleration within 3 m/s^2."""
    speed = random.uniform(0.0, 24.0)
    if random.random() < 0.05:
        speed = 0.0
    acceleration = float(np.clip(random.normal(0.0, 1.2), -4.0, 2.5))
    lateral = float(np.clip(random.normal(0.0, 0.8), -3.0, 3.0))
    # Curvature of at most 0.1 1/m: slow vehicles cannot have much lateral acceleration.
    lateral = float(np.clip(lateral, -0.1 * speed**2, 0.1 * speed**2))
    drift = random.normal(0.0, 0.01 * speed)
    velocity = (round(speed, 2), round(drift, 2))
    acceleration_pair = (round(acceleration, 2), round(lateral, 2))
    waypoints = roll_out(velocity, acceleration_pair)
    if waypoints[:, 0].max() > 99.0 or np.abs(waypoints[:, 1]).max() > 9.9:
        return sample_motion(random)  # cannot be written in fixed width
    return Motion(velocity, acceleration_pair, waypoints)


def roll_out(
    velocity_base_mps: tuple[float, float], acceleration_base_mps2: tuple[float, float]
) -> np.ndarray:
    """Return the waypoints [8, 2] of a vehicle whose acceleration and yaw rate fade away."""
    speed, acceleration = velocity_base_mps[0], acceleration_base_mps2[0]
    time = np.arange(STEP_S, HORIZON_S + STEP_S / 2, STEP_S)
    fade = ACCELERATION_FADES_S * (1 - np.exp(-time / ACCELERATION_FADES_S))
    speeds = np.maximum(0.0, speed + acceleration * fade)
    # A vehicle that has come to rest stays there, even if the fading brake would let it roll.
    speeds[np.minimum.accumulate(speeds) <= 0.0] = 0.0
    yaw_rate = acceleration_base_mps2[1] / max(speed, 0.5)
    curvature = yaw_rate / max(speed, 0.5) * np.exp(-time / YAW_RATE_FADES_S)
    heading = np.cumsum(curvature * speeds * STEP_S)
    x = np.cumsum(speeds * np.cos(heading) * STEP_S)
    y = np.cumsum(speeds * np.sin(heading) * STEP_S)
    every = round(HORIZON_S / WAYPOINTS / STEP_S)
    return np.stack((x, y), axis=1)[every - 1 :: every]


def write_fixed_width(waypoints_base_m: np.ndarray) -> str:
    """Write waypoints [8, 2] as "05.20,+00.10,…": 103 characters, so that each has its own slot.

    Rounded to 0.1 m: nano models cannot do better, and noise in the last digit only slows them.
    Raises ValueError where a number has no place: the nano models neither reverse nor look
    farther than 99.9 m.
    """
    pairs = np.round(np.asarray(waypoints_base_m, dtype=np.float64), 1) + 0.0
    # A vehicle at rest that rounds to a little behind itself stands still.
    pairs[:, 0] = np.where((pairs[:, 0] < 0.0) & (pairs[:, 0] > -0.5), 0.0, pairs[:, 0])
    if not ((pairs[:, 0] >= 0.0) & (pairs[:, 0] < 100.0) & (np.abs(pairs[:, 1]) < 100.0)).all():
        raise ValueError(f'waypoints {pairs.tolist()} do not fit "dd.dd,+dd.dd"')
    return ','.join(f'{x:05.2f},{y:+06.2f}' for x, y in pairs)
