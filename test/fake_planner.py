"""The planner node with a session that needs no network; run as a process of its own.

The session plans a straight drive at 5 m/s. Its behaviour is steered through the file named by
WAMDIFF_FAKE: a JSON object that is read again for every inference. Where that holds "interrupt",
the process sends itself SIGINT while it publishes its first trajectory.
"""

import ctypes
import json
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np

from wamdiff_ros.planning.answer import Refusal, parse_waypoints
from wamdiff_ros.planning.trajectory import trajectory_from_waypoints
from wamdiff_ros.ros import conversion
from wamdiff_ros.ros.planner_node import main
from wamdiff_ros.types import (
    InferenceCounts,
    Plan,
    PlanningResult,
    SceneDescription,
    StageTimings,
)

SPEED_MPS = 5.0


class LoadCancelled(Exception):
    """The load was given up."""


class FakeSession:
    """Has the interface of PlanningSession; knows no model."""

    backend = 'fake cpu'
    model_name = 'fake'

    def __init__(self, parameters, steering):
        self._parameters = parameters
        self._steering = steering
        self.resets = 0

    @classmethod
    def load(cls, parameters, *, progress, cancelled):
        steering = Steering(Path(os.environ['WAMDIFF_FAKE']))
        progress('pretending to read weights')
        start_s = time.monotonic()
        while time.monotonic() < start_s + steering.get('load_s', 0.0):
            if cancelled() and not steering.get('ignore_cancel', False):
                raise LoadCancelled('loading was cancelled')
            time.sleep(0.01)
        if error := steering.get('load_error', ''):
            raise ValueError(error)
        return cls(parameters, steering)

    def plan(self, observation, deadline_s=None):
        time.sleep(self._steering.get('plan_s', 0.0))
        if self._steering.get('hold_interpreter', False):
            ctypes.PyDLL(None).sleep(3600)  # foreign code that keeps Python's lock
        if error := self._steering.get('plan_error', ''):
            raise RuntimeError(error)
        reason = self._steering.get('refusal', '')
        waypoints = np.array([[SPEED_MPS * 0.5 * (i + 1), 0.0] for i in range(8)])
        if (answer := self._steering.get('answer', None)) is not None:  # as the real session does
            parsed = parse_waypoints(answer)
            reason = f'answer refused: {parsed.reason}' if isinstance(parsed, Refusal) else ''
            waypoints = None if reason else parsed.xy_base_m
        plan = None
        if not reason:
            trajectory = trajectory_from_waypoints(
                waypoints, (SPEED_MPS, 0.0), self._parameters.point_interval_s
            )
            plan = Plan(observation.t0_ns, observation.ego, waypoints, trajectory)
        return PlanningResult(
            t0_ns=observation.t0_ns,
            plan=plan,
            reason=reason,
            answer=(
                f'{observation.command.value} {self.resets} {len(observation.frames)} '
                f'{observation.ego.acceleration_base_mps2}'
            ),
            timings=StageTimings((('decode', 1_000_000),)),
            counts=InferenceCounts(denoising_forwards=3, answer_tokens=16),
        )

    def describe(self, observation, stop):
        if error := self._steering.get('describe_error', ''):
            raise RuntimeError(error)
        height, width = observation.frames[0].rgb.shape[:2]
        text = f'a road, {width} by {height}'
        description = SceneDescription(
            observation.t0_ns, observation.ego.base_frame, text, truncated=stop()
        )
        return description, StageTimings((('describe', 2_000_000),))

    def reset(self):
        self.resets += 1


class Steering:
    """The JSON file, as it is now."""

    def __init__(self, path):
        self._path = path

    def get(self, key, default):
        return json.loads(self._path.read_text()).get(key, default)


def interrupt_the_first_tick():
    """Send SIGINT when the tick's trajectory has gone out and its path and status have not."""
    path = conversion.path

    def interrupted_path(trajectory):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.5)
        return path(trajectory)

    conversion.path = interrupted_path


if __name__ == '__main__':
    if Steering(Path(os.environ['WAMDIFF_FAKE'])).get('interrupt', False):
        interrupt_the_first_tick()
    sys.exit(main(session_loader=FakeSession.load))
