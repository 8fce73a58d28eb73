"""What the node publishes, as messages without ROS; `ros/conversion.py` is the reference.

Topics are those of a node `planner` in the root namespace.
"""

from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from scipy.spatial.transform import Rotation

from ..message_time import header_ns, nanoseconds
from ..planning.publication import Publication
from ..planning.trajectory import to_fixed
from ..recordings.bag import typestore
from ..recordings.plain_messages import duration, header, message, pose, time
from ..runtime.stream import Session
from ..types import EgoState, InferenceCounts, PlanStatus
from .ground_truth import STEP_NS
from .replay_loop import ReplayedTick

TRAJECTORY, PATH = '/planner/trajectory', '/planner/path'
DESCRIPTION, STATUS = '/planner/scene_description', '/planner/status'
TRUTH = '/ground_truth/path'  # what was driven from each plan's t0 on
TOPICS = (TRAJECTORY, PATH, DESCRIPTION, STATUS, TRUTH)
_STATUS = {PlanStatus.NOMINAL: 0, PlanStatus.HELD: 1, PlanStatus.FALLBACK_STOP: 2}


def tick_messages(
    tick: ReplayedTick,
    truth_base_m: list[list[float] | None] | None,
    in_fixed_frame: bool,
    session: Session,
    counters: dict[str, int],
) -> Iterator[tuple[str, Any]]:
    """Yield (topic, message) of everything that is published at a tick, and the ground truth."""
    publication = tick.publication
    if publication.plan is not None:
        trajectory = planned_trajectory(publication, tick.tick + 1, in_fixed_frame)
        yield TRAJECTORY, trajectory
        yield PATH, _path(trajectory)
        if truth_base_m is not None:
            yield TRUTH, _truth(publication.plan.ego, truth_base_m, in_fixed_frame)
    yield STATUS, _status(tick, session, counters)
    if tick.description is not None:
        said = tick.description
        yield (
            DESCRIPTION,
            message(
                'wamdiff_ros/msg/SceneDescription',
                header=header(said.t0_ns, said.base_frame),
                sequence=tick.tick + 1,
                age=duration(tick.now_ns - said.t0_ns),
                text=said.text,
                sections=[
                    message('wamdiff_ros/msg/SceneSection', name=name, text=text)
                    for name, text in said.sections
                ],
                truncated=said.truncated,
            ),
        )


def planned_trajectory(publication: Publication, sequence: int, in_fixed_frame: bool) -> Any:
    """Return the PlannedTrajectory of a publication that has a plan."""
    plan = publication.plan
    trajectory, ego = plan.trajectory, plan.ego
    positions_m, quaternions = to_fixed(trajectory, ego if in_fixed_frame else _at_origin(ego))
    columns = zip(
        trajectory.time_ns.tolist(),
        positions_m.tolist(),
        quaternions.tolist(),
        trajectory.speed_mps.tolist(),
        trajectory.acceleration_mps2.tolist(),
        trajectory.heading_rate_radps.tolist(),
        trajectory.curvature_1pm.tolist(),
        strict=True,
    )
    points = [
        message(
            'wamdiff_ros/msg/TrajectoryPoint',
            time_from_start=duration(time_ns),
            pose=pose(position_m, quaternion),
            speed_mps=speed,
            acceleration_mps2=acceleration,
            heading_rate_radps=turning,
            curvature_1pm=curvature,
        )
        for time_ns, position_m, quaternion, speed, acceleration, turning, curvature in columns
    ]
    return message(
        'wamdiff_ros/msg/PlannedTrajectory',
        header=header(plan.t0_ns, ego.fixed_frame if in_fixed_frame else ego.base_frame),
        sequence=sequence,
        status=_STATUS[publication.status],
        age=duration(publication.age_ns),
        valid_until=time(publication.valid_until_ns),
        candidate_index=0,
        points=points,
    )


def _path(trajectory: Any) -> Any:
    """Return the poses, each stamped with the time at which it is reached."""
    t0_ns = header_ns(trajectory)
    poses = [(t0_ns + nanoseconds(p.time_from_start), p.pose) for p in trajectory.points]
    return _stamped_path(t0_ns, trajectory.header.frame_id, poses)


def _truth(ego: EgoState, truth_base_m: list, in_fixed_frame: bool) -> Any:
    """Return the driven poses, as far as they are known, from the plan's start on."""
    origin = ego if in_fixed_frame else _at_origin(ego)
    base = Rotation.from_quat(origin.orientation_xyzw)
    poses = []
    for step, row in enumerate([[0.0, 0.0, 0.0], *truth_base_m]):
        if row is None:
            continue
        x, y, heading = row
        position_m = base.apply([x, y, 0.0]) + np.array(origin.position_fixed_m)
        quaternion = (base * Rotation.from_rotvec([0.0, 0.0, heading])).as_quat()
        stamp_ns = ego.stamp_ns + step * STEP_NS
        poses.append((stamp_ns, pose(position_m.tolist(), quaternion.tolist())))
    frame = ego.fixed_frame if in_fixed_frame else ego.base_frame
    return _stamped_path(ego.stamp_ns, frame, poses)


def _status(tick: ReplayedTick, session: Session, counters: dict[str, int]) -> Any:
    result = tick.outcome.result
    plan = tick.publication.plan
    fields = typestore().fielddefs['wamdiff_ros/msg/PlannerStatus'][1]
    known = {
        'header': header(tick.grid_ns, tick.ego.base_frame if tick.ego else 'base_link'),
        'tick': tick.tick + 1,
        'state': tick.publication.status.value,
        'reason': tick.reason,
        't0': time(plan.t0_ns if plan else 0),
        'deadline_slack': duration(0),
        'stages': [],  # wall time belongs to timings.jsonl
        **asdict(result.counts if result else InferenceCounts()),
        'cut_short': result is not None and result.cut_short,
        'answer': result.answer if result else '',
        'backend': session.backend,
        'model': session.model_name,
        **counters,
    }
    return message(
        'wamdiff_ros/msg/PlannerStatus', **{name: known.get(name, 0) for name, _ in fields}
    )


def _stamped_path(t0_ns: int, frame_id: str, poses) -> Any:
    stamped = [
        message('geometry_msgs/msg/PoseStamped', header=header(stamp_ns, frame_id), pose=place)
        for stamp_ns, place in poses
    ]
    return message('nav_msgs/msg/Path', header=header(t0_ns, frame_id), poses=stamped)


def _at_origin(ego: EgoState) -> EgoState:
    return replace(ego, position_fixed_m=(0.0, 0.0, 0.0), orientation_xyzw=(0.0, 0.0, 0.0, 1.0))
