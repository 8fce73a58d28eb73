"""The nouns that flow from sensors to plans. Immutable, free of ROS and of torch.

Times are integer nanoseconds of the node's clock. Frames follow REP-103 and REP-105: `base` is
the vehicle's base_link (x forward, y left, z up) at t0; `fixed` is the odometry's parent frame.
"""

from dataclasses import dataclass
from enum import Enum

import numpy as np


class Command(Enum):
    """What the route asks for next; the values are the words used in prompts."""

    STRAIGHT = 'straight'
    LEFT = 'left'
    RIGHT = 'right'


class PlanStatus(Enum):
    """Where the trajectory published at a tick comes from (PlannerStatus.msg)."""

    WAITING = 0
    NOMINAL = 1
    HELD = 2
    FALLBACK_STOP = 3


@dataclass(frozen=True, eq=False)
class CameraFrame:
    """One decoded camera image: `rgb` is uint8 [height, width, 3]."""

    camera: str
    stamp_ns: int
    rgb: np.ndarray


@dataclass(frozen=True)
class EgoState:
    """Motion of the vehicle: pose in the fixed frame, velocities in the base frame."""

    stamp_ns: int
    fixed_frame: str
    base_frame: str
    position_fixed_m: tuple[float, float, float]
    orientation_xyzw: tuple[float, float, float, float]  # base in fixed, unit norm
    velocity_base_mps: tuple[float, float]  # forward, left
    yaw_rate_radps: float
    acceleration_base_mps2: tuple[float, float]  # forward, left

    @property
    def speed_mps(self) -> float:
        """Forward speed, negative in reverse."""
        return self.velocity_base_mps[0]


@dataclass(frozen=True, eq=False)
class Observation:
    """Everything that one plan is made from. `t0_ns` is the stamp of the first camera's frame."""

    t0_ns: int
    frames: tuple[CameraFrame, ...]  # one per configured camera, in the configured order
    ego: EgoState  # at t0
    command: Command


@dataclass(frozen=True, eq=False)
class Trajectory:
    """States of the vehicle over time in the base frame at t0; all arrays have N entries.

    `time_ns` is int64, starts at 0 and increases strictly; the rest is float64. `speed_mps` is
    along the heading (negative in reverse), `curvature_1pm` is heading change per metre.
    """

    time_ns: np.ndarray  # [N]
    xy_base_m: np.ndarray  # [N, 2]
    heading_base_rad: np.ndarray  # [N]
    speed_mps: np.ndarray  # [N]
    acceleration_mps2: np.ndarray  # [N]
    heading_rate_radps: np.ndarray  # [N]
    curvature_1pm: np.ndarray  # [N]


@dataclass(frozen=True)
class StageTimings:
    """Wall time per stage of one inference, in the order in which the stages ran."""

    stages_ns: tuple[tuple[str, int], ...] = ()

    def total_ns(self) -> int:
        """Return the sum over all stages."""
        return sum(duration_ns for _, duration_ns in self.stages_ns)


@dataclass(frozen=True)
class InferenceCounts:
    """What one inference cost, in network forwards and tokens."""

    vision_forwards: int = 0
    prefill_forwards: int = 0
    denoising_forwards: int = 0
    commit_forwards: int = 0
    prompt_tokens: int = 0
    reused_prefix_tokens: int = 0
    answer_tokens: int = 0
    # Slots that took a guess in one go, because denoising steps or time ran out.
    bulk_filled_tokens: int = 0


@dataclass(frozen=True, eq=False)
class Plan:
    """A valid trajectory for the observation at `t0_ns`, and the state that it starts from."""

    t0_ns: int
    ego: EgoState
    waypoints_base_m: np.ndarray  # [8, 2], every 0.5 s from 0.5 s on
    trajectory: Trajectory


@dataclass(frozen=True)
class SceneDescription:
    """What the model says about the observation at `t0_ns`."""

    t0_ns: int
    base_frame: str
    text: str
    sections: tuple[tuple[str, str], ...] = ()  # (name, text)
    truncated: bool = False


@dataclass(frozen=True, eq=False)
class PlanningResult:
    """One inference: a plan, or the reason why there is none. Exactly one of the two is set.

    `candidates` are the plans of further, sampled rollouts; those that could not be read, or
    break a check, are left out. `cut_short`: the deadline ended decoding before the model did.
    """

    t0_ns: int
    plan: Plan | None
    reason: str  # '' when there is a plan
    answer: str
    timings: StageTimings
    counts: InferenceCounts
    candidates: tuple[Plan, ...] = ()
    cut_short: bool = False
