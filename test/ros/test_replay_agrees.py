"""The live node and replay plan the same from the same recording, and write the same messages."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip('rclpy', reason='needs ROS 2 (rclpy), see scripts/test')
pytest.importorskip('wamdiff_ros.msg', reason='needs the built messages, see scripts/test')

from fake_planner import FakeSession
from planner_bench import PlannerProcess
from rclpy.serialization import deserialize_message
from recording import image, write
from replaying import CAMERA, ODOMETRY, drive, settings
from wamdiff_ros.msg import PlannedTrajectory

from wamdiff_ros.child_process import ChildProcess
from wamdiff_ros.message_time import header_ns
from wamdiff_ros.planning.publication import Publication
from wamdiff_ros.planning.trajectory import trajectory_from_waypoints
from wamdiff_ros.recordings.bag import read_messages, typestore
from wamdiff_ros.replay import plan_messages
from wamdiff_ros.replay.bag_replay import replay_bag
from wamdiff_ros.ros import conversion
from wamdiff_ros.ros.recorder import RecorderNode, planner_topics
from wamdiff_ros.types import EgoState, Plan, PlanStatus

pytestmark = pytest.mark.ros

REPOSITORY = Path(__file__).parents[2]
NOMINAL = 0
SECONDS = 2.5
RATE = 0.25


class Default:
    """Steers the fake session nowhere."""

    def get(self, key, default):
        return default


@pytest.fixture(scope='module')
def bag(tmp_path_factory):
    """Return a recording in which everything has arrived well before the grid's instants."""
    entries = [entry for entry in drive(SECONDS) if entry[0] == ODOMETRY]
    for _, ns, _ in [entry for entry in drive(SECONDS) if entry[0] == CAMERA]:
        picture = image(ns - 30_000_000, ns // 50_000_000 % 250)
        entries.append((CAMERA, ns - 25_000_000, picture))
    return write(tmp_path_factory.mktemp('drive') / 'bag', entries)


def by_t0(bag, topic):
    return {header_ns(m): m for *_, m in read_messages(bag, [topic])}


def test_the_node_plans_what_replay_plans(bag, tmp_path):
    parameters = settings().parameters
    session = FakeSession(parameters, Default())
    replay_bag(session, settings(), bag, tmp_path / 'replay')
    planner = PlannerProcess(tmp_path, '-p', 'autostart:=true', '-p', 'use_sim_time:=true')
    try:
        with RecorderNode(tmp_path / 'live', planner_topics()) as recorder:
            command = [
                *(sys.executable, '-m', 'wamdiff_ros.ros.player', '--bag', str(bag), '--clock'),
                *('--rate', str(RATE), '--wait-for', '60'),
            ]
            with ChildProcess(command, tmp_path / 'player.log', os.environ) as player:
                while player.exit_code is None:
                    recorder.spin_for(0.1)
                assert player.exit_code == 0, player.log_tail()
    finally:
        assert planner.end() == 0, planner.output()
    topic = plan_messages.TRAJECTORY
    live = {t0: m for t0, m in by_t0(tmp_path / 'live', topic).items() if m.status == NOMINAL}
    replayed = by_t0(tmp_path / 'replay' / 'bag', topic)
    # A busy machine may miss deadlines; what it does publish has to agree.
    assert len(live) >= 5, planner.output()
    assert live.keys() <= replayed.keys()
    for t0_ns, trajectory in live.items():
        other = replayed[t0_ns]
        assert trajectory.header.frame_id == other.header.frame_id
        assert len(trajectory.points) == len(other.points)
        for a, b in zip(trajectory.points, other.points, strict=True):
            assert a.time_from_start == b.time_from_start
            np.testing.assert_allclose(
                [a.pose.position.x, a.pose.position.y, a.pose.orientation.z, a.speed_mps],
                [b.pose.position.x, b.pose.position.y, b.pose.orientation.z, b.speed_mps],
                rtol=0, atol=1e-9,
            )  # fmt: skip


@pytest.mark.parametrize('in_fixed_frame', [True, False])
def test_a_trajectory_is_the_same_message_with_and_without_ros(in_fixed_frame):
    ego = EgoState(
        7, 'map', 'base_link', (1.0, 2.0, 3.0), (0.0, 0.0, 0.6, 0.8), (4.0, 0.1), 0.2, (0.0, 0.0)
    )
    waypoints = np.array([[2.0 * (i + 1), 0.1 * i] for i in range(8)])
    trajectory = trajectory_from_waypoints(waypoints, (4.0, 0.1), 0.1)
    plan = Plan(1_700_000_000_123_456_789, ego, waypoints, trajectory)
    publication = Publication(PlanStatus.HELD, plan, 300_000_000, 17 * 10**17, 'late')
    with_ros = conversion.planned_trajectory(publication, 7, in_fixed_frame)
    without = plan_messages.planned_trajectory(publication, 7, in_fixed_frame)
    cdr = typestore().serialize_cdr(without, 'wamdiff_ros/msg/PlannedTrajectory')
    assert deserialize_message(bytes(cdr), PlannedTrajectory) == with_ros
