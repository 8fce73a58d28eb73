"""Node `simulator`: a vehicle in the driving world, for a planner on the same topics.

    python -m wamdiff_ros.ros.simulator_node --ros-args -p seed:=0 -p routes:=10 -p out:=drive

Drives route after route as the planner says, in real time, and scores them as `wamdiff drive`
does. The world goes on with the clock whether or not this process keeps up; with
`publish_clock` the clock waits for it. Before each route the planner is reset, and the world
stands still until the planner's first trajectory. Ends after the last route: exit code 0 done,
1 it failed (the reason is printed), 2 wrong parameters, 3 no planner; SIGINT and SIGTERM end it
with 0, too.
"""

import math
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import rclpy
from rclpy.exceptions import InvalidParameterTypeException
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions
from std_srvs.srv import Trigger

from wamdiff_ros.msg import PlannedTrajectory

from ..message_time import header_ns, nanoseconds
from ..observation.ego_buffer import interpolate
from ..simulation.cameras import CAMERAS
from ..simulation.closed_loop import CAMERA, STEP_NS, WAIT
from ..simulation.drive import to_json, to_text, write_result
from ..simulation.expert import Expert
from ..simulation.follower import MapTrajectory, follow
from ..simulation.ground_truth import ground_truth
from ..simulation.renderer import Renderer
from ..simulation.score import Drive, RouteScore, lost
from ..simulation.screen import GraphicsError
from ..simulation.world import World
from ..types import EgoState, PlanStatus
from .conversion import TRAJECTORY_STATUS
from .qos import RECORDED
from .simulated_sensors import SimulatedSensors

# Pictures come this long before the planner's grid instants, which are multiples of 0.1 s.
LEAD_NS = 10_000_000
SUBSTEPS = 4  # of odometry within one step of the world
CLOCK_PERIOD_S = 0.005  # at most, of /clock
FIRST_PLAN_NS = 10_000_000_000  # then the route begins without one
DRIVER = 'planner over DDS'  # in drive.json
FRAME = 'odom'  # of the world's odometry: the map frame
STATUS_OF = {value: status for status, value in TRAJECTORY_STATUS.items()}


class PlannerMissing(RuntimeError):
    """Nobody plans; the message names the service that is not there."""


class SimulatorNode(Node):
    """See docs/interfaces.md for topics and parameters."""

    def __init__(self, **node_options: Any) -> None:
        super().__init__('simulator', **node_options)

        def parameter(name: str, default: Any) -> Any:
            return self.declare_parameter(name, default).value

        seed, routes = parameter('seed', 0), parameter('routes', 1)
        self._rate, clock = parameter('rate', 1.0), parameter('publish_clock', False)
        self._limit_s = parameter('seconds', 0.0)  # of each route; 0 is all of it
        self._to_the_end = parameter('to_the_end', False)
        self._wait_s = parameter('wait_s', 60.0)
        self._out = parameter('out', '')
        compressed = parameter('compressed', False)
        if seed < 0 or routes < 1 or self._rate <= 0 or self._limit_s < 0:
            raise ValueError(
                f'seed {seed}, routes {routes}, rate {self._rate}, seconds {self._limit_s}: '
                'seed and seconds must not be negative, routes and rate must be above 0'
            )
        if self._rate != 1.0 and not clock:
            raise ValueError(f'rate {self._rate} needs publish_clock and a planner on /clock')
        self._seeds = range(seed, seed + routes)
        self._sensors = SimulatedSensors(self, CAMERA, CAMERAS[CAMERA], compressed, clock)
        self._clock_is_ours = clock
        self._expert = Expert()
        self._route_begins_ns = self._moves_from_ns = 0
        # The newest trajectory of this route, its status, and until when it may be followed.
        self._trajectory: tuple[MapTrajectory, PlanStatus, int] | None = None
        subscription = self.create_subscription(
            PlannedTrajectory, 'planner/trajectory', self._on_trajectory, RECORDED
        )
        self._trajectory_topic = subscription.topic_name
        self._reset_service = self.create_client(Trigger, 'planner/reset')
        self._reset_name = self.resolve_service_name('planner/reset')
        self._executor = SingleThreadedExecutor()
        self._executor.add_node(self)
        self.stopped = False  # set it to end `drive` early
        self.late_steps = 0
        self._newest_ns = time.time_ns()  # time that was waited for
        self._set_clock(self._newest_ns)

    # -- routes -------------------------------------------------------------------------------

    def drive(self) -> list[RouteScore]:
        """Drive all routes; returns the scores of those that were driven to their end."""
        scores = []
        for seed in self._seeds:
            score = self._drive_route(World(seed))
            if score is None:
                break
            scores.append(score)
            word = 'completed' if score.completed else f'ended at {score.completion:.0%}'
            faults = '; '.join(score.faults) or 'no faults'
            self.get_logger().info(f'route {seed}: {word}, {faults}')
            if self._out:  # whoever ends this early loses the route under way only
                asked, late = len(self._seeds), self.late_steps
                result = {'routes_asked': asked, **to_json(scores, DRIVER), 'late_steps': late}
                folder = Path(self._out).expanduser()
                folder.mkdir(parents=True, exist_ok=True)
                write_result(folder / 'drive.json', result)
        return scores

    def _drive_route(self, world: World) -> RouteScore | None:
        """Drive one world to its end, until it is lost, or as long as it shall be.

        None when `stopped` before.
        """
        self._reset_planner()
        drive, why_lost = Drive(), ''
        with Renderer(world.scene, {CAMERA: CAMERAS[CAMERA]}) as renderer:
            rgb = renderer.render(world.view(), CAMERA)
            if self._clock_is_ours:  # it stood still meanwhile
                self._set_clock(self._newest_ns)
            stamp_ns = self._route_begins_ns = self._next_instant_ns()
            # The world stands still until there is a plan for it.
            while self._trajectory is None and not self.stopped:
                if stamp_ns - self._route_begins_ns > FIRST_PLAN_NS:
                    self.get_logger().error('no first trajectory: driving off without')
                    break
                self._show(world, rgb, stamp_ns)
                stamp_ns = self._next_instant_ns()
            self._moves_from_ns = stamp_ns
            while not (
                why_lost or world.finished or self.stopped or 0 < self._limit_s <= world.time_s
            ):
                self._show(world, rgb, stamp_ns)
                before = world.ego_state(stamp_ns)
                self._step(world, stamp_ns, drive)
                rgb = renderer.render(world.view(), CAMERA)
                self._move(before, world.ego_state(stamp_ns + STEP_NS))
                stamp_ns += STEP_NS
                if missed := self._missed_steps(stamp_ns):
                    for _ in range(missed):
                        self._step(world, stamp_ns, drive)
                        stamp_ns += STEP_NS
                    rgb = renderer.render(world.view(), CAMERA)
                why_lost = '' if self._to_the_end or world.finished else lost(world)
            if not self.stopped:
                self._show(world, rgb, stamp_ns)
        return None if self.stopped else drive.score(world, ended_early=why_lost)

    def _show(self, world: World, rgb: np.ndarray, stamp_ns: int) -> None:
        """Publish the instant when it has come."""
        known = ground_truth(world, self._expert.plan(world))
        self._wait_until(stamp_ns)
        self._sensors.publish_command(world.command(), stamp_ns)
        self._sensors.publish_motion(world.ego_state(stamp_ns))
        self._sensors.publish_picture(rgb, stamp_ns)
        self._sensors.publish_truth({'stamp_ns': stamp_ns, **known})

    def _move(self, before: EgoState, after: EgoState) -> None:
        """Publish motion between two instants, each when it has come."""
        step_ns = after.stamp_ns - before.stamp_ns
        for i in range(1, SUBSTEPS):
            state = interpolate(before, after, before.stamp_ns + i * step_ns // SUBSTEPS)
            self._wait_until(state.stamp_ns)
            self._sensors.publish_motion(state)

    def _step(self, world: World, now_ns: int, drive: Drive) -> None:
        """Advance the world under what is planned now."""
        control, status = WAIT, PlanStatus.WAITING
        if self._trajectory is not None:
            trajectory, its_status, valid_until_ns = self._trajectory
            if now_ns <= valid_until_ns:
                # While the world stood still, the plan must not run away from it.
                t0_ns = max(trajectory.t0_ns, self._moves_from_ns)
                control = follow(replace(trajectory, t0_ns=t0_ns), now_ns, world.ego)
                status = its_status
        drive.add(world, status)
        world.step(control)

    # -- the planner --------------------------------------------------------------------------

    def _on_trajectory(self, message: PlannedTrajectory) -> None:
        t0_ns = header_ns(message)
        if t0_ns < self._route_begins_ns:
            return  # of the route before
        if message.header.frame_id != FRAME:
            self.get_logger().error(
                f'{self._trajectory_topic}: in frame {message.header.frame_id!r}, wanted '
                f"{FRAME!r}; set the planner's trajectory_frame to fixed",
                throttle_duration_sec=5.0,
            )
            return
        poses = [point.pose for point in message.points]
        half_rad = [math.atan2(pose.orientation.z, pose.orientation.w) for pose in poses]
        trajectory = MapTrajectory.of_points(
            t0_ns,
            np.array([nanoseconds(point.time_from_start) for point in message.points]) / 1e9,
            np.array([(pose.position.x, pose.position.y) for pose in poses]),
            np.unwrap(2 * np.array(half_rad)),
        )
        self._trajectory = trajectory, STATUS_OF[message.status], nanoseconds(message.valid_until)

    def _reset_planner(self) -> None:
        """Let the planner forget the route before. Raises PlannerMissing."""
        deadline_s = time.monotonic() + self._wait_s
        if not self._reset_service.service_is_ready():
            self.get_logger().info(f'waiting for {self._reset_name}')
        while not self._reset_service.service_is_ready():
            self._spin_once(0.1)
            if self.stopped:
                return
            if time.monotonic() > deadline_s:
                raise PlannerMissing(
                    f'{self._reset_name}: no such service after {self._wait_s:g} s; '
                    'is the planner running, in this ROS domain?'
                )
        future = self._reset_service.call_async(Trigger.Request())
        while not future.done() and not self.stopped:
            self._spin_once(0.1)
            if time.monotonic() > deadline_s:
                raise PlannerMissing(f'{self._reset_name}: no answer')
        self._trajectory = None

    # -- time ---------------------------------------------------------------------------------

    def _now_ns(self) -> int:
        """Return the time of the stamps: the system's, or at its rate from there."""
        passed_ns = time.monotonic_ns() - self._start_steady_ns
        return self._start_ns + round(passed_ns * self._rate)

    def _next_instant_ns(self) -> int:
        """Return the next instant for a picture, shortly before one of the planner's grid."""
        later_ns = self._now_ns() + LEAD_NS
        return later_ns + STEP_NS - later_ns % STEP_NS - LEAD_NS

    def _missed_steps(self, stamp_ns: int) -> int:
        """Return how many steps too late it is, whose pictures nobody can send in time.

        A clock of our own waits for us instead.
        """
        late_ns = self._now_ns() - stamp_ns
        if late_ns < STEP_NS:
            return 0
        self.late_steps += late_ns // STEP_NS
        if self._clock_is_ours:
            self._set_clock(stamp_ns)
            return 0
        return late_ns // STEP_NS

    def _set_clock(self, now_ns: int) -> None:
        self._start_ns, self._start_steady_ns = now_ns, time.monotonic_ns()

    def _wait_until(self, stamp_ns: int) -> None:
        """Take messages until the instant has come, keeping /clock running."""
        while (left_s := (stamp_ns - self._now_ns()) / 1e9 / self._rate) > 0:
            if self.stopped:
                return
            if self._clock_is_ours:
                self._sensors.publish_clock(min(self._now_ns(), stamp_ns))
                left_s = min(left_s, CLOCK_PERIOD_S)
            self._spin_once(left_s)
        self._newest_ns = stamp_ns
        if self._clock_is_ours:
            self._sensors.publish_clock(stamp_ns)
        self._spin_once(0.0)

    def _spin_once(self, timeout_s: float) -> None:
        self._executor.spin_once(timeout_sec=timeout_s)


def main(args: list[str] | None = None) -> int:
    """Drive as the parameters say and return the exit code."""
    rclpy.init(args=args, signal_handler_options=SignalHandlerOptions.NO)
    node = None
    try:
        node = SimulatorNode()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: setattr(node, 'stopped', True))
        scores = node.drive()
        if scores:
            print(to_text(scores))
        return 0
    except (InvalidParameterTypeException, ValueError) as error:
        print(f'error: {error}', file=sys.stderr)
        return 2
    except PlannerMissing as error:
        print(f'error: {error}', file=sys.stderr)
        return 3
    except (GraphicsError, OSError) as error:
        print(f'error: {error}', file=sys.stderr)
        return 1
    finally:
        if node is not None:
            node.destroy_node()
        rclpy.try_shutdown()


if __name__ == '__main__':
    sys.exit(main())
