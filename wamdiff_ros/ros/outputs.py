"""The planner's publishers: fills one tick's messages from one `TickReport`, and sends them."""

from dataclasses import asdict, dataclass

from nav_msgs.msg import Path
from rclpy.node import Node
from std_msgs.msg import Header
from visualization_msgs.msg import MarkerArray

from wamdiff_ros.msg import PlannedTrajectory, PlannerStatus
from wamdiff_ros.msg import SceneDescription as SceneDescriptionMsg

from ..planning.publication import Publication
from ..types import InferenceCounts, PlanningResult, SceneDescription, StageTimings
from . import conversion, markers


@dataclass
class Counters:
    """Since activation."""

    missed_deadlines: int = 0
    skipped_ticks: int = 0
    rejected_answers: int = 0
    failed_inferences: int = 0
    stream_resets: int = 0
    late_instants: int = 0  # grid instants that passed without a tick
    descriptions_left_out: int = 0  # that were due, mostly for want of time


@dataclass(frozen=True, eq=False)
class TickReport:
    """Everything that is published about one tick."""

    sequence: int
    grid_ns: int
    now_ns: int  # time of publication
    base_frame: str
    publication: Publication
    reason: str
    deadline_slack_ns: int
    result: PlanningResult | None  # of the newest finished inference
    timings: StageTimings  # of the same, with its description
    description: SceneDescription | None  # not published before
    counters: Counters


class Outputs:
    """Publishers from construction until `destroy`."""

    def __init__(self, node: Node, trajectory_frame: str, backend: str, model: str) -> None:
        self._node = node
        self._in_fixed_frame = trajectory_frame == 'fixed'
        self.backend = backend
        self.model = model
        create = node.create_publisher
        self._trajectory = create(PlannedTrajectory, '~/trajectory', 10)
        self._status = create(PlannerStatus, '~/status', 10)
        self._description = create(SceneDescriptionMsg, '~/scene_description', 10)
        self._path = create(Path, '~/path', 10)
        self._markers = create(MarkerArray, '~/markers', 10)

    def destroy(self) -> None:
        """Take back all publishers."""
        for publisher in (
            self._trajectory,
            self._status,
            self._description,
            self._path,
            self._markers,
        ):
            self._node.destroy_publisher(publisher)

    def publish(self, report: TickReport) -> None:
        """Send the tick's messages; the trajectory first, for somebody drives by it."""
        publication = report.publication
        if publication.plan is not None:
            trajectory = conversion.planned_trajectory(
                publication, report.sequence, self._in_fixed_frame
            )
            self._trajectory.publish(trajectory)
            self._path.publish(conversion.path(trajectory))
            if self._markers.get_subscription_count():
                self._markers.publish(markers.trajectory_markers(trajectory, report.reason))
        self._status.publish(self._status_message(report))
        if report.description is not None:
            self._description.publish(
                conversion.scene_description(report.description, report.sequence, report.now_ns)
            )

    def clear_markers(self, now_ns: int) -> None:
        """Take the last plan off the screens."""
        header = Header(stamp=conversion.time_message(now_ns))
        self._markers.publish(markers.clear_markers(header))

    def _status_message(self, report: TickReport) -> PlannerStatus:
        publication, counters = report.publication, report.counters
        counts = report.result.counts if report.result else InferenceCounts()
        return PlannerStatus(
            header=Header(
                stamp=conversion.time_message(report.grid_ns), frame_id=report.base_frame
            ),
            tick=report.sequence,
            state=publication.status.value,
            reason=report.reason,
            t0=conversion.time_message(publication.plan.t0_ns if publication.plan else 0),
            deadline_slack=conversion.duration_message(report.deadline_slack_ns),
            stages=conversion.stage_timings(report.timings),
            **asdict(counts),  # the message has a field of the same name for each
            cut_short=report.result is not None and report.result.cut_short,
            answer=report.result.answer if report.result else '',
            missed_deadlines=counters.missed_deadlines,
            skipped_ticks=counters.skipped_ticks,
            rejected_answers=counters.rejected_answers,
            stream_resets=counters.stream_resets,
            backend=self.backend,
            model=self.model,
        )
