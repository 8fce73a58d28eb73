"""The planner node with the expert in place of a network; run as a process of its own.

Its session answers with the waypoints that the simulator's truth gives for the frame, written
and parsed as a model's answer would be.
"""

import contextlib
import json
import sys
import threading
import time

import numpy as np
import rclpy
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.qos import QoSProfile
from std_msgs.msg import String

from wamdiff_ros.planning.answer import format_waypoints, parse_waypoints
from wamdiff_ros.planning.trajectory import trajectory_from_waypoints
from wamdiff_ros.ros.planner_node import main
from wamdiff_ros.types import InferenceCounts, Plan, PlanningResult, StageTimings

TRUTH_S = 0.05  # how long the truth of a frame may take


class ExpertSession:
    """Has the interface of PlanningSession."""

    backend = 'truth'
    model_name = 'expert'

    def __init__(self, parameters):
        self._interval_s = parameters.point_interval_s
        self._truths = {}
        self._context = rclpy.Context()
        rclpy.init(context=self._context)
        node = rclpy.create_node('expert', context=self._context)
        node.create_subscription(String, '/simulator/truth', self._on_truth, QoSProfile(depth=10))
        self._executor = SingleThreadedExecutor(context=self._context)
        self._executor.add_node(node)
        threading.Thread(target=self._spin, daemon=True).start()

    @classmethod
    def load(cls, parameters, *, progress, cancelled):
        return cls(parameters)

    def plan(self, observation, deadline_s=None):
        until_s = time.monotonic() + TRUTH_S
        while observation.t0_ns not in self._truths and time.monotonic() < until_s:
            time.sleep(0.002)
        truth = self._truths.get(observation.t0_ns)
        plan, reason, answer = None, 'no truth for this frame', ''
        if truth is not None:
            answer = format_waypoints(truth['expert_waypoints_base_m'])
            waypoints, ego = parse_waypoints(answer).xy_base_m, observation.ego
            trajectory = trajectory_from_waypoints(
                waypoints, ego.velocity_base_mps, self._interval_s
            )
            plan, reason = Plan(observation.t0_ns, ego, np.array(waypoints), trajectory), ''
        timings, counts = StageTimings((('decode', 1_000_000),)), InferenceCounts()
        return PlanningResult(observation.t0_ns, plan, reason, answer, timings, counts)

    def describe(self, observation, stop):
        return None, StageTimings()

    def reset(self):
        self._truths.clear()

    def _on_truth(self, message):
        truth = json.loads(message.data)
        self._truths[truth['stamp_ns']] = truth

    def _spin(self):
        with contextlib.suppress(ExternalShutdownException):
            self._executor.spin()


if __name__ == '__main__':
    sys.exit(main(session_loader=ExpertSession.load))
