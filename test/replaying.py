"""Recordings of a drive, and a session without a network, for the tests of replay."""

import os

import numpy as np
from recording import START_NS, header, image, message, odometry, write

from wamdiff_ros.cli import main
from wamdiff_ros.parameters import Parameters
from wamdiff_ros.planning.trajectory import trajectory_from_waypoints
from wamdiff_ros.recordings.topics import TopicChoice
from wamdiff_ros.replay import replay
from wamdiff_ros.replay.replay_settings import ReplaySettings
from wamdiff_ros.types import (
    InferenceCounts,
    Plan,
    PlanningResult,
    SceneDescription,
    StageTimings,
)

SPEED_MPS, YAW_RATE_RADPS = 5.0, 0.1
CAMERA, ODOMETRY, COMMAND = '/camera/front/image', '/odometry', '/navigation_command'
SECOND_NS = 10**9
DEADLY_GREY = 255  # ends the process that plans from such a picture


class FakeSession:
    """Plans straight on; its answers tell what it has seen, and how much since the last reset."""

    backend, model_name = 'fake cpu', 'fake'

    def __init__(self, parameters, refuse=(), fail=(), speechless=False):
        self._parameters = parameters
        self._refuse, self._fail, self._speechless = refuse, fail, speechless
        self._since_reset = 0
        self.planned = 0

    def plan(self, observation, deadline_s=None):
        number, self.planned, self._since_reset = (
            self.planned,
            self.planned + 1,
            self._since_reset + 1,
        )
        if number in self._fail:
            raise RuntimeError('out of luck')
        if observation.frames[0].rgb.mean() == DEADLY_GREY:
            os._exit(1)  # as when the machine runs out of memory
        ego = observation.ego
        seen = [int(frame.rgb.mean()) for frame in observation.frames]
        answer = f'{seen} {ego.position_fixed_m} {observation.command.value} {self._since_reset}'
        plan, reason = None, 'answer refused: as asked' if number in self._refuse else ''
        if not reason:
            ahead_m = ego.speed_mps * 0.5 * np.arange(1, 9)
            waypoints = np.stack([ahead_m, 0.0 * ahead_m], axis=1)
            trajectory = trajectory_from_waypoints(
                waypoints, ego.velocity_base_mps, self._parameters.point_interval_s
            )
            plan = Plan(observation.t0_ns, ego, waypoints, trajectory)
        return PlanningResult(
            observation.t0_ns, plan, reason, answer, StageTimings((('decode', 10**6),)),
            InferenceCounts(answer_tokens=7),
        )  # fmt: skip

    def describe(self, observation, stop):
        if self._speechless:
            raise RuntimeError('lost for words')
        text = f'after {self._since_reset} plans'
        said = SceneDescription(observation.t0_ns, 'base_link', text, (('road', 'dry'),), stop())
        return said, StageTimings((('describe', 2 * 10**6),))

    def reset(self):
        self._since_reset = 0


def replace_checkpoint(monkeypatch, **fake):
    """Let `wamdiff replay` load a FakeSession with `fake`; return those that were loaded."""
    sessions = []

    def load(parameters):
        sessions.append(FakeSession(parameters, **fake))
        return sessions[-1]

    monkeypatch.setattr(replay, 'load_session', load)
    return sessions


def run(*arguments):
    """Run `wamdiff replay` and return its exit code."""
    return main(['replay', *map(str, arguments)])


def load_fake(parameters):
    return FakeSession(parameters)


def settings(choice=None, parameters=None, **options):
    return ReplaySettings(
        Parameters.from_mapping(parameters or {}), 'fake', '0' * 64, choice or TopicChoice(),
        **options,
    )  # fmt: skip


def pose_at(time_s):
    """Return x, y and yaw of a left turn."""
    yaw, radius = YAW_RATE_RADPS * time_s, SPEED_MPS / YAW_RATE_RADPS
    return float(radius * np.sin(yaw)), float(radius * (1 - np.cos(yaw))), yaw


def motion(ns, start_ns=START_NS):
    return odometry(ns, *pose_at((ns - start_ns) / 1e9), SPEED_MPS)


def drive(seconds=3.0, start_ns=START_NS, camera=CAMERA, odometry_topic=ODOMETRY):
    """Return [(topic, sent, message)]: odometry at 50 Hz, pictures at 20 Hz, each of its own grey.

    The grid's instants are the tenths of a second from 0.1 s after the start on.
    """
    entries = []
    for since_ns in range(0, round(seconds * SECOND_NS) + 1, 10_000_000):
        ns = start_ns + since_ns
        if since_ns % 20_000_000 == 0:
            entries.append((odometry_topic, ns, motion(ns, start_ns)))
        if since_ns and since_ns % 50_000_000 == 0:
            # A little before the grid's instants, as of a camera with some delay.
            entries.append((camera, ns, image(ns - 10_000_000, since_ns // 50_000_000 % 250)))
    return entries


def command(ns, value):
    return message('wamdiff_ros/msg/NavigationCommand', header=header(ns), command=value)


def drive_bag(path, seconds=3.0, **options):
    return write(path, drive(seconds, **options))
