"""A replayed tick as the lines that docs/replay.md promises; readers are in replay_run.py."""

import json
from dataclasses import asdict
from typing import Any

import numpy as np
from scipy.spatial.transform import Rotation

from ..types import EgoState, Plan, SceneDescription, StageTimings, Trajectory
from .ground_truth import GroundTruth
from .replay_loop import ReplayedTick

DECIMALS = 6


def tick_row(tick: ReplayedTick, truth: GroundTruth) -> dict[str, Any]:
    """Return the line of ticks.jsonl."""
    plan, result = tick.publication.plan, tick.outcome.result
    observation = tick.outcome.observation
    return {
        'tick': tick.tick,
        'grid_ns': tick.grid_ns,
        'status': tick.publication.status.name,
        'reason': tick.reason,
        'inferred_t0_ns': None if observation is None else observation.t0_ns,
        't0_ns': None if plan is None else plan.t0_ns,
        'age_ns': None if plan is None else tick.publication.age_ns,
        'command': tick.command.value,
        'ego': _ego(tick.ego if plan is None else plan.ego),
        'waypoints_base_m': plan.waypoints_base_m if isinstance(plan, Plan) else None,
        'trajectory': None if plan is None else _trajectory(plan.trajectory),
        'truth_base_m': None if plan is None else truth.ahead_of(plan.ego),
        'answer': None if result is None else result.answer,
        'description': _description(tick.description),
        'counts': None if result is None else asdict(result.counts),
        'world': tick.world,
    }


def timing_row(tick: ReplayedTick) -> dict[str, Any]:
    """Return the line of timings.jsonl."""
    result = tick.outcome.result
    timings = StageTimings() if result is None else result.timings
    return {
        'tick': tick.tick,
        'stages_s': _seconds(timings),
        'describe_s': _seconds(tick.describe_timings),
    }


def to_line(row: dict[str, Any]) -> str:
    """Return the row as JSON in one line, the same for the same numbers."""
    return json.dumps(plain(row), ensure_ascii=False, allow_nan=False) + '\n'


def plain(value: Any) -> Any:
    """Return `value` with arrays as lists and numbers rounded."""
    if isinstance(value, np.ndarray):
        # Adding zero turns -0.0 into 0.0.
        return (np.round(value, DECIMALS) + 0.0).tolist()
    if isinstance(value, float):
        return round(value, DECIMALS) + 0.0
    if isinstance(value, dict):
        return {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    return value


def _ego(ego: EgoState | None) -> dict[str, Any] | None:
    if ego is None:
        return None
    matrix = Rotation.from_quat(ego.orientation_xyzw).as_matrix()
    return {
        'stamp_ns': ego.stamp_ns,
        'fixed_frame': ego.fixed_frame,
        'position_fixed_m': ego.position_fixed_m,
        'orientation_xyzw': ego.orientation_xyzw,
        'heading_rad': float(np.arctan2(matrix[1, 0], matrix[0, 0])),
        'velocity_base_mps': ego.velocity_base_mps,
        'speed_mps': ego.speed_mps,
        'yaw_rate_radps': ego.yaw_rate_radps,
        'acceleration_base_mps2': ego.acceleration_base_mps2,
    }


def _trajectory(trajectory: Trajectory) -> dict[str, np.ndarray]:
    return {
        'time_s': trajectory.time_ns * 1e-9,
        'x_base_m': trajectory.xy_base_m[:, 0],
        'y_base_m': trajectory.xy_base_m[:, 1],
        'heading_base_rad': trajectory.heading_base_rad,
        'speed_mps': trajectory.speed_mps,
        'acceleration_mps2': trajectory.acceleration_mps2,
        'heading_rate_radps': trajectory.heading_rate_radps,
        'curvature_1pm': trajectory.curvature_1pm,
    }


def _description(description: SceneDescription | None) -> dict[str, Any] | None:
    if description is None:
        return None
    return {
        't0_ns': description.t0_ns,
        'text': description.text,
        'sections': description.sections,
        'truncated': description.truncated,
    }


def _seconds(timings: StageTimings) -> dict[str, float]:
    return {stage: duration_ns * 1e-9 for stage, duration_ns in timings.stages_ns}
