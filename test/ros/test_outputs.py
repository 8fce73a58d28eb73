"""What goes out in a tick, without DDS: a node that keeps what is published."""

import sys
from dataclasses import dataclass, field
from types import ModuleType

import pytest
from drawn_plans import plan, publication
from geometry_msgs.msg import Pose

from wamdiff_ros.parameters import Parameters
from wamdiff_ros.ros.outputs import Counters, Outputs, TickReport
from wamdiff_ros.types import InferenceCounts, PlanningResult, PlanStatus, StageTimings

pytestmark = pytest.mark.ros


class KeepingNode:
    """Stands in for a node: `sent` is what each topic was sent."""

    def __init__(self):
        self.sent = {}

    def create_publisher(self, kind, topic, qos):
        return KeepingPublisher(self.sent.setdefault(topic, []))

    def destroy_publisher(self, publisher):
        publisher.messages.append('destroyed')


@dataclass
class KeepingPublisher:
    messages: list

    def publish(self, message):
        self.messages.append(message)

    def get_subscription_count(self):
        return 1


@dataclass
class StandInTrajectory:
    """The fields of autoware_planning_msgs/Trajectory."""

    header: object = None
    points: list = field(default_factory=list)


@dataclass
class StandInPoint:
    """The fields of autoware_planning_msgs/TrajectoryPoint."""

    time_from_start: object = None
    pose: Pose = None
    longitudinal_velocity_mps: float = 0.0
    lateral_velocity_mps: float = 0.0
    acceleration_mps2: float = 0.0
    heading_rate_rps: float = 0.0
    front_wheel_angle_rad: float = 0.0
    rear_wheel_angle_rad: float = 0.0


@pytest.fixture
def autoware(monkeypatch):
    """Install a module with Autoware's messages."""
    module = ModuleType('autoware_planning_msgs.msg')
    module.Trajectory, module.TrajectoryPoint = StandInTrajectory, StandInPoint
    monkeypatch.setitem(
        sys.modules, 'autoware_planning_msgs', ModuleType('autoware_planning_msgs')
    )
    monkeypatch.setitem(sys.modules, 'autoware_planning_msgs.msg', module)


def report(status=PlanStatus.NOMINAL, candidates=()):
    published = publication(status)
    result = PlanningResult(
        published.plan.t0_ns, published.plan, '', '', StageTimings(), InferenceCounts(), candidates
    )
    return TickReport(
        sequence=7, grid_ns=published.plan.t0_ns, now_ns=published.plan.t0_ns + published.age_ns,
        base_frame='base_link', publication=published, reason='', deadline_slack_ns=0,
        result=result, timings=StageTimings(), description=None, counters=Counters(),
    )  # fmt: skip


def outputs(**parameters):
    node = KeepingNode()
    return node.sent, Outputs(node, Parameters.from_mapping(parameters), 'cpu', 'nano')


def test_candidates_are_the_published_plan_and_those_beside_it_under_the_same_stamp():
    sent, out = outputs()
    out.publish(report(candidates=(plan(0.03), plan(0.01))))
    [message], [published] = sent['~/candidates'], sent['~/trajectory']
    assert message.header == published.header
    assert message.selected_index == 0
    assert len(message.candidates) == 3
    assert message.candidates[0].points == published.points
    assert [candidate.candidate_index for candidate in message.candidates] == [0, 1, 2]
    assert message.candidates[1].points[-1] != published.points[-1]
    [markers] = sent['~/markers']
    [lines] = [marker for marker in markers.markers if marker.ns == 'candidates']
    assert len(lines.points) == 2 * 80


@pytest.mark.parametrize(
    ('status', 'count'), [(PlanStatus.NOMINAL, 0), (PlanStatus.HELD, 2)], ids=str
)
def test_without_candidates_of_this_tick_there_is_no_message(status, count):
    sent, out = outputs()
    out.publish(report(status, (plan(0.03), plan(0.01))[:count]))
    assert len(sent['~/trajectory']) == 1
    assert sent['~/candidates'] == []


def test_marker_lifetimes_outlast_two_periods():
    for rate_hz, seconds in ((10.0, 1), (0.1, 20)):
        sent, out = outputs(rate_hz=rate_hz)
        out.publish(report())
        assert sent['~/markers'][0].markers[1].lifetime.sec == seconds


def test_a_reset_clears_markers_and_words():
    sent, out = outputs()
    out.publish(report())
    out.said = 'a road'
    out.clear_markers(0)
    [_, cleared] = sent['~/markers']
    assert cleared.markers[0].header.frame_id == 'odom'
    assert (out.newest, out.said) == (None, '')


def test_without_autowares_messages_diagnostics_say_so():
    sent, out = outputs()
    out.publish(report())
    assert '~/autoware_trajectory' not in sent
    assert out.describe() == {'autoware_trajectory': 'autoware_planning_msgs is not installed'}


def test_with_autowares_messages_every_plan_goes_out_as_one(autoware):
    sent, out = outputs()
    out.publish(report())
    [message], [own] = sent['~/autoware_trajectory'], sent['~/trajectory']
    assert message.header == own.header
    assert [p.time_from_start for p in message.points] == [p.time_from_start for p in own.points]
    assert [p.pose for p in message.points] == [p.pose for p in own.points]
    assert message.points[0].longitudinal_velocity_mps == pytest.approx(7.0)
    assert message.points[5].acceleration_mps2 == own.points[5].acceleration_mps2
    assert message.points[5].heading_rate_rps == own.points[5].heading_rate_radps
    assert out.describe() == {'autoware_trajectory': 'published'}
    out.destroy()
    assert all(messages[-1] == 'destroyed' for messages in sent.values())


def test_braking_in_reverse_is_a_deceleration_to_autoware(autoware):
    from wamdiff_ros.ros.autoware import AutowareTrajectory

    sent, out = outputs()
    out.publish(report())
    [own] = sent['~/trajectory']
    own.points[3].speed_mps, own.points[3].acceleration_mps2 = -2.0, 1.5
    node = KeepingNode()
    AutowareTrajectory.create(node).publish(own)
    assert node.sent['~/autoware_trajectory'][0].points[3].acceleration_mps2 == -1.5
