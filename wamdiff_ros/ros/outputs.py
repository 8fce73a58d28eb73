"""The planner's publishers: fills one tick's messages from one `TickReport`, and sends them."""

from dataclasses import asdict, dataclass, replace

from nav_msgs.msg import Path
from rclpy.node import Node
from std_msgs.msg import Header
from visualization_msgs.msg import MarkerArray

from wamdiff_ros.msg import CandidateTrajectories, PlannedTrajectory, PlannerStatus
from wamdiff_ros.msg import SceneDescription as SceneDescriptionMsg

from ..parameters import Parameters
from ..planning.fallback import StopPlan
from ..planning.figure import DrawnPlan, Footprint, drawn_plan, plan_figure
from ..planning.publication import Publication
from ..types import (
    InferenceCounts,
    Plan,
    PlanningResult,
    PlanStatus,
    SceneDescription,
    StageTimings,
)
from . import conversion, markers
from .autoware import AutowareTrajectory

MIN_MARKER_LIFETIME_NS = 1_000_000_000


@dataclass
class Counters:
    """Since activation."""

    missed_deadlines: int = 0
    skipped_ticks: int = 0
    rejected_answers: int = 0
    rejected_plans: int = 0  # that broke a check
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

    @property
    def candidates(self) -> tuple[Plan, ...]:
        """The other plans of the inference that the published plan is from, if this tick's."""
        if self.result is None or self.result.plan is not self.publication.plan:
            return ()
        return self.result.candidates if self.publication.status is PlanStatus.NOMINAL else ()


class Outputs:
    """Publishers from construction until `destroy`."""

    def __init__(self, node: Node, parameters: Parameters, backend: str, model: str) -> None:
        self._node = node
        self._in_fixed_frame = parameters.trajectory_frame == 'fixed'
        self._footprint = Footprint.of(parameters)
        self._marker_lifetime_ns = max(MIN_MARKER_LIFETIME_NS, 2 * parameters.period_ns)
        self.backend = backend
        self.model = model
        self.newest: TickReport | None = None  # since the last reset
        self.said = ''  # the newest description since then
        create = node.create_publisher
        self._trajectory = create(PlannedTrajectory, '~/trajectory', 10)
        self._candidates = create(CandidateTrajectories, '~/candidates', 10)
        self._status = create(PlannerStatus, '~/status', 10)
        self._description = create(SceneDescriptionMsg, '~/scene_description', 10)
        self._path = create(Path, '~/path', 10)
        self._markers = create(MarkerArray, '~/markers', 10)
        self._autoware = AutowareTrajectory.create(node)

    def destroy(self) -> None:
        """Take back all publishers."""
        for publisher in (
            self._trajectory,
            self._candidates,
            self._status,
            self._description,
            self._path,
            self._markers,
        ):
            self._node.destroy_publisher(publisher)
        if self._autoware is not None:
            self._autoware.destroy()

    def describe(self) -> dict[str, str]:
        """Return for diagnostics which of the outputs that depend on the installation exist."""
        there = 'published' if self._autoware else 'autoware_planning_msgs is not installed'
        return {'autoware_trajectory': there}

    def publish(self, report: TickReport) -> None:
        """Send the tick's messages; the trajectory first, for somebody drives by it."""
        publication = report.publication
        self.newest = report
        if report.description is not None:
            self.said = report.description.text
        if publication.plan is not None:
            trajectory = conversion.planned_trajectory(
                publication, report.sequence, self._in_fixed_frame
            )
            self._trajectory.publish(trajectory)
            if self._autoware is not None:
                self._autoware.publish(trajectory)
            self._path.publish(conversion.path(trajectory))
            if report.candidates:
                self._candidates.publish(
                    conversion.candidate_trajectories(
                        publication, report.candidates, report.sequence, self._in_fixed_frame
                    )
                )
            if self._markers.get_subscription_count():
                self._markers.publish(self._marker_array(report, trajectory.header))
        self._status.publish(self._status_message(report))
        if report.description is not None:
            self._description.publish(
                conversion.scene_description(report.description, report.sequence, report.now_ns)
            )

    def clear_markers(self, now_ns: int) -> None:
        """Take the last plan off the screens."""
        frame = ''
        if self.newest is not None and self.newest.publication.plan is not None:
            frame, _ = conversion.plan_frame(self.newest.publication.plan, self._in_fixed_frame)
        header = Header(stamp=conversion.time_message(now_ns), frame_id=frame)
        self.newest, self.said = None, ''
        self._markers.publish(markers.clear_markers(header))

    def _marker_array(self, report: TickReport, header: Header) -> MarkerArray:
        def drawn(plan: Plan | StopPlan) -> DrawnPlan:
            _, pose_of_base = conversion.plan_frame(plan, self._in_fixed_frame)
            return drawn_plan(replace(report.publication, plan=plan), pose_of_base)

        shapes = plan_figure(
            drawn(report.publication.plan),
            self._footprint,
            [drawn(plan).positions_m for plan in report.candidates],
            report.reason,
            self.said,
        )
        return markers.marker_array(shapes, header, self._marker_lifetime_ns)

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
            rejected_plans=counters.rejected_plans,
            stream_resets=counters.stream_resets,
            backend=self.backend,
            model=self.model,
        )
