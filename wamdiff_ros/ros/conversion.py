"""ROS messages from the nouns of `types`; observation/messages.py is the other direction.

Times stay integer nanoseconds throughout.
"""

from collections.abc import Sequence
from dataclasses import replace

from builtin_interfaces.msg import Duration, Time
from geometry_msgs.msg import Point, Pose, PoseStamped, Quaternion
from nav_msgs.msg import Path
from std_msgs.msg import Header

from wamdiff_ros.msg import (
    CandidateTrajectories,
    NavigationCommand,
    PlannedTrajectory,
    SceneSection,
    StageTiming,
    TrajectoryPoint,
)
from wamdiff_ros.msg import SceneDescription as SceneDescriptionMsg

from ..message_time import header_ns, nanoseconds
from ..planning.fallback import StopPlan
from ..planning.publication import Publication
from ..planning.trajectory import to_fixed
from ..types import Command, EgoState, Plan, PlanStatus, SceneDescription, StageTimings

_COMMANDS = {
    Command.STRAIGHT: NavigationCommand.STRAIGHT,
    Command.LEFT: NavigationCommand.LEFT,
    Command.RIGHT: NavigationCommand.RIGHT,
}
TRAJECTORY_STATUS = {
    PlanStatus.NOMINAL: PlannedTrajectory.NOMINAL,
    PlanStatus.HELD: PlannedTrajectory.HELD,
    PlanStatus.FALLBACK_STOP: PlannedTrajectory.FALLBACK_STOP,
}

# -- time ---------------------------------------------------------------------------------------


def time_message(time_ns: int) -> Time:
    """Return nanoseconds since the clock's epoch as a message."""
    sec, nanosec = divmod(time_ns, 1_000_000_000)
    return Time(sec=sec, nanosec=nanosec)


def duration_message(duration_ns: int) -> Duration:
    """Return a duration as a message; a negative one has a negative `sec`, `nanosec` is >= 0."""
    sec, nanosec = divmod(duration_ns, 1_000_000_000)
    return Duration(sec=sec, nanosec=nanosec)


# -- nouns to messages --------------------------------------------------------------------------


def command_message(wanted: Command, from_ns: int) -> NavigationCommand:
    """Return the command as it holds from `from_ns` on."""
    value = _COMMANDS[wanted]
    return NavigationCommand(header=Header(stamp=time_message(from_ns)), command=value)


def planned_trajectory(
    publication: Publication, sequence: int, in_fixed_frame: bool
) -> PlannedTrajectory:
    """Return the message of a publication that has a plan.

    Poses are in the odometry's fixed frame, or in the base frame at t0.
    """
    plan = publication.plan
    trajectory = plan.trajectory
    frame, pose_of_base = plan_frame(plan, in_fixed_frame)
    positions_m, quaternions = to_fixed(trajectory, pose_of_base)
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
        TrajectoryPoint(
            time_from_start=duration_message(time_ns),
            pose=Pose(
                position=Point(x=position[0], y=position[1], z=position[2]),
                orientation=Quaternion(
                    x=quaternion[0], y=quaternion[1], z=quaternion[2], w=quaternion[3]
                ),
            ),
            speed_mps=speed,
            acceleration_mps2=acceleration,
            heading_rate_radps=heading_rate,
            curvature_1pm=curvature,
        )
        for time_ns, position, quaternion, speed, acceleration, heading_rate, curvature in columns
    ]
    return PlannedTrajectory(
        header=Header(stamp=time_message(plan.t0_ns), frame_id=frame),
        sequence=sequence,
        status=TRAJECTORY_STATUS[publication.status],
        age=duration_message(publication.age_ns),
        valid_until=time_message(publication.valid_until_ns),
        points=points,
    )


def plan_frame(plan: Plan | StopPlan, in_fixed_frame: bool) -> tuple[str, EgoState]:
    """Return the frame that a plan is published in, and the pose of the plan's base there."""
    ego = plan.ego
    if in_fixed_frame:
        return ego.fixed_frame, ego
    origin = replace(ego, position_fixed_m=(0.0, 0.0, 0.0), orientation_xyzw=(0.0, 0.0, 0.0, 1.0))
    return ego.base_frame, origin


def candidate_trajectories(
    publication: Publication, candidates: Sequence[Plan], sequence: int, in_fixed_frame: bool
) -> CandidateTrajectories:
    """Return the published plan, first, and the tick's other plans beside it."""
    messages = [
        planned_trajectory(replace(publication, plan=plan), sequence, in_fixed_frame)
        for plan in (publication.plan, *candidates)
    ]
    for index, message in enumerate(messages):
        message.candidate_index = index
    return CandidateTrajectories(header=messages[0].header, selected_index=0, candidates=messages)


def path(trajectory: PlannedTrajectory) -> Path:
    """Return the trajectory's poses, each stamped with the time at which it is reached."""
    poses = []
    t0_ns = header_ns(trajectory)
    for point in trajectory.points:
        stamp = time_message(t0_ns + nanoseconds(point.time_from_start))
        header = Header(stamp=stamp, frame_id=trajectory.header.frame_id)
        poses.append(PoseStamped(header=header, pose=point.pose))
    return Path(header=trajectory.header, poses=poses)


def scene_description(
    description: SceneDescription, sequence: int, now_ns: int
) -> SceneDescriptionMsg:
    """Return the message as published at `now_ns`, tick `sequence`."""
    return SceneDescriptionMsg(
        header=Header(stamp=time_message(description.t0_ns), frame_id=description.base_frame),
        sequence=sequence,
        age=duration_message(now_ns - description.t0_ns),
        text=description.text,
        sections=[SceneSection(name=name, text=text) for name, text in description.sections],
        truncated=description.truncated,
    )


def stage_timings(timings: StageTimings) -> list[StageTiming]:
    """Return the stages in their order."""
    return [
        StageTiming(name=name, duration=duration_message(duration))
        for name, duration in timings.stages_ns
    ]
