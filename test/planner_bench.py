"""A test bench around the real node: a process of its own, sensors and ears over real DDS."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from pathlib import Path

import cv2
import numpy as np
import rclpy
from builtin_interfaces.msg import Time
from diagnostic_msgs.msg import DiagnosticArray
from geometry_msgs.msg import AccelWithCovarianceStamped
from lifecycle_msgs.srv import ChangeState, GetState
from nav_msgs.msg import Odometry
from nav_msgs.msg import Path as PathMsg
from rcl_interfaces.srv import GetParameters, SetParametersAtomically
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.parameter import parameter_value_to_python
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rosgraph_msgs.msg import Clock as ClockMsg
from sensor_msgs.msg import CompressedImage, Image
from std_srvs.srv import SetBool, Trigger
from visualization_msgs.msg import MarkerArray
from wamdiff_ros.msg import NavigationCommand, PlannedTrajectory, PlannerStatus, SceneDescription

HERE = Path(__file__).parent
REPOSITORY = HERE.parent
TIMEOUT_S = 60.0  # only a failure takes as long, also on a busy machine
FRAME_PERIOD_S = 0.1
ODOMETRY_PER_FRAME = 4
SPEED_MPS = 5.0


class PlannerProcess:
    """`fake_planner.py` as a process; `steer` changes what its session does."""

    def __init__(self, folder, *ros_arguments, environment=None, **steering):
        self._steering_path = Path(folder) / 'steering.json'
        self._output_path = Path(folder) / 'output.txt'
        self.steer(**steering)
        self._output = open(self._output_path, 'w')  # noqa: SIM115
        environment = os.environ | (environment or {})
        environment['WAMDIFF_FAKE'] = str(self._steering_path)
        environment['PYTHONPATH'] = f'{REPOSITORY}:{environment.get("PYTHONPATH", "")}'
        command = [sys.executable, str(HERE / 'fake_planner.py')]
        if ros_arguments:
            command += ['--ros-args', *ros_arguments]
        self.process = subprocess.Popen(
            command, env=environment, stdout=self._output, stderr=subprocess.STDOUT
        )

    def steer(self, **steering):
        """Let the session behave like this from its next call on."""
        new = self._steering_path.with_suffix('.new')
        new.write_text(json.dumps(steering))
        new.replace(self._steering_path)

    def output(self):
        return self._output_path.read_text()

    def end(self, number=signal.SIGINT, timeout_s=TIMEOUT_S):
        """Send a signal, wait, and return the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        finally:
            self._output.close()


class Bench:
    """Publishes camera and odometry, hears all of the planner's topics, calls its services."""

    def __init__(self, simulated=False, jpeg=False, start_ns=None, sim_start_ns=1_000_000_000_000):
        self.context = rclpy.Context()
        rclpy.init(context=self.context)
        self.node = rclpy.create_node('bench', context=self.context)
        best_effort = QoSProfile(depth=5, reliability=ReliabilityPolicy.BEST_EFFORT)
        kind = CompressedImage if jpeg else Image
        self._camera = self.node.create_publisher(kind, 'camera/front/image', best_effort)
        self._odometry = self.node.create_publisher(Odometry, 'odometry', best_effort)
        self._acceleration = self.node.create_publisher(
            AccelWithCovarianceStamped, 'acceleration', best_effort
        )
        self._clock = self.node.create_publisher(ClockMsg, '/clock', 10)
        self.heard = {}
        for name, kind, topic in (
            ('status', PlannerStatus, 'planner/status'),
            ('trajectory', PlannedTrajectory, 'planner/trajectory'),
            ('description', SceneDescription, 'planner/scene_description'),
            ('path', PathMsg, 'planner/path'),
            ('markers', MarkerArray, 'planner/markers'),
            ('diagnostics', DiagnosticArray, '/diagnostics'),
        ):
            self.heard[name] = []
            self.node.create_subscription(kind, topic, self.heard[name].append, 50)
        latched = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
        self._command = self.node.create_publisher(
            NavigationCommand, 'navigation_command', latched
        )
        self._clients = {}
        self.frame_stamps_ns, self.odometry_stamps_ns = set(), set()
        self.acceleration = None  # (forward, left) in m/s^2, once it is published
        self._side_camera = None
        self.jpeg = jpeg
        self.simulated = simulated
        self.sim_runs = simulated
        self.shift_ns = 0  # of the system clock, where that is set
        self._sim_time_ns, self._sim_leaps_ns = sim_start_ns, deque()
        self.start_ns = self.now_ns() if start_ns is None else start_ns  # at the origin
        self._pictures = 0
        self._newest = {}  # published message by kind
        # (stamp [ns], x [m], y [m], forward speed [m/s]) of published odometry.
        self.told = deque(maxlen=4000)
        self.restore()
        self._executor = SingleThreadedExecutor(context=self.context)
        self._executor.add_node(self.node)
        self._ending = False
        self._threads = [threading.Thread(target=f) for f in (self._spin, self._drive)]
        for thread in self._threads:
            thread.start()

    def restore(self):
        """Let the sensors send what they send at first."""
        self.camera_on = True
        self.odometry_on = True
        self.frame_size = (64, 48)
        self.encoding = 'rgb8'
        self.base_frame = 'base_link'
        self.odometry_ahead_ns = 0  # of the clock that frames are stamped with
        # From a message to the messages that are published in its place.
        self.alter_frame = self.alter_odometry = lambda message: [message]

    def close(self):
        self._ending = True
        self._threads[1].join()
        self._executor.shutdown()
        self._threads[0].join()
        self.node.destroy_node()  # or its publishers would outlive it in the graph
        rclpy.shutdown(context=self.context)

    # -- hearing ------------------------------------------------------------------------------

    def wait(self, condition, what, timeout_s=TIMEOUT_S):
        """Wait for `condition()` to return something true, and return that."""
        until_s = time.monotonic() + timeout_s
        while time.monotonic() < until_s:
            if result := condition():
                return result
            time.sleep(0.02)
        raise AssertionError(
            f'{what}: not within {timeout_s} s; last status '
            f'{self.heard["status"][-1:]}, last diagnostics {self.heard["diagnostics"][-1:]}'
        )

    def next_status(self, condition, what, timeout_s=TIMEOUT_S):
        """Wait for a PlannerStatus that is not here yet and meets `condition`."""
        start = len(self.heard['status'])
        return self.wait(
            lambda: next((m for m in self.heard['status'][start:] if condition(m)), None),
            what,
            timeout_s,
        )

    def trajectory_of(self, status):
        """Wait for the trajectory of the tick that `status` tells of; topics keep no order."""
        return self.wait(
            lambda: next(
                (m for m in self.heard['trajectory'][::-1] if m.sequence == status.tick), None
            ),
            f'the trajectory of tick {status.tick}',
        )

    def next_diagnosis(self, condition, what, timeout_s=TIMEOUT_S):
        """Wait for a planner DiagnosticStatus that is not here yet and meets `condition`."""
        start = len(self.heard['diagnostics'])
        return self.wait(
            lambda: next(
                (m.status[0] for m in self.heard['diagnostics'][start:] if condition(m.status[0])),
                None,
            ),
            what,
            timeout_s,
        )

    def values_while_planning(self):
        """Return the values of the next diagnosis of a second in which something was planned."""
        planned = self.next_diagnosis(
            lambda d: 'NOMINAL' in self.diagnostic_values(d).get('newest_ticks', ''), 'planning'
        )
        return self.diagnostic_values(planned)

    @staticmethod
    def diagnostic_values(diagnosis):
        """Return the values of a DiagnosticStatus by key."""
        return {entry.key: entry.value for entry in diagnosis.values}

    # -- calling ------------------------------------------------------------------------------

    def call(self, kind, name, request, timeout_s=TIMEOUT_S):
        """Call a service of the planner and return the response."""
        return self.wait_for(self.call_async(kind, name, request), name, timeout_s)

    def call_async(self, kind, name, request):
        client = self._clients.get(name)
        if client is None:
            client = self._clients[name] = self.node.create_client(kind, f'planner/{name}')
        assert client.wait_for_service(TIMEOUT_S), f'no service {name}'
        return client.call_async(request)

    def wait_for(self, future, what, timeout_s=TIMEOUT_S):
        self.wait(future.done, what, timeout_s)
        return future.result()

    def state(self):
        return self.call(GetState, 'get_state', GetState.Request()).current_state.label

    def transition_async(self, label):
        request = ChangeState.Request()
        request.transition.label = label
        return self.call_async(ChangeState, 'change_state', request)

    def transition(self, label):
        return self.wait_for(self.transition_async(label), label).success

    def set_parameters(self, **values):
        """Set all at once; `__` in a name stands for a dot."""
        request = SetParametersAtomically.Request()
        for name, value in values.items():
            parameter = rclpy.Parameter(name.replace('__', '.'), value=value)
            request.parameters.append(parameter.to_parameter_msg())
        response = self.call(SetParametersAtomically, 'set_parameters_atomically', request)
        return response.result

    def get_parameter(self, name):
        request = GetParameters.Request(names=[name])
        values = self.call(GetParameters, 'get_parameters', request).values
        return parameter_value_to_python(values[0]) if values else None

    def reset(self):
        return self.call(Trigger, 'reset', Trigger.Request())

    def enable(self, on):
        return self.call(SetBool, 'enable', SetBool.Request(data=on))

    # -- sensors ------------------------------------------------------------------------------

    def now_ns(self):
        return self._sim_time_ns if self.simulated else time.time_ns() + self.shift_ns

    def position_m(self, stamp_ns):
        """How far ahead of the origin the vehicle is then."""
        return SPEED_MPS * (stamp_ns - self.shift_ns - self.start_ns) / 1e9

    def publish_frame(self, stamp_ns):
        width, height = self.frame_size
        self._pictures += 1  # a picture that never changes is a frozen camera
        pixels = np.full((height, width, 3), self._pictures % 256, np.uint8)
        if self.jpeg:
            message = CompressedImage(format='jpeg')
            message.data = cv2.imencode('.jpg', pixels)[1].tobytes()
        else:
            message = Image(width=width, height=height, step=width * 3, encoding=self.encoding)
            message.data = pixels.tobytes()
        message.header.stamp = time_message(stamp_ns)
        self.frame_stamps_ns.add(stamp_ns)
        self._newest['frame'] = message
        for altered in self.alter_frame(message):
            self._camera.publish(altered)
        if self._side_camera is not None:
            self._side_camera.publish(message)

    def publish_odometry(self, stamp_ns):
        message = Odometry(child_frame_id=self.base_frame)
        message.header.frame_id = 'odom'
        message.header.stamp = time_message(stamp_ns)
        self.odometry_stamps_ns.add(stamp_ns)
        self._newest['odometry'] = message
        message.pose.pose.position.x = self.position_m(stamp_ns)
        message.pose.pose.orientation.w = 1.0
        message.twist.twist.linear.x = SPEED_MPS
        for altered in self.alter_odometry(message):
            position, velocity = altered.pose.pose.position, altered.twist.twist.linear
            self.told.append((time_ns(altered.header.stamp), position.x, position.y, velocity.x))
            self._odometry.publish(altered)
        if self.acceleration is not None:
            measured = AccelWithCovarianceStamped(header=message.header)
            measured.accel.accel.linear.x, measured.accel.accel.linear.y = self.acceleration
            self._acceleration.publish(measured)

    def publishers(self):
        """Return those of camera, odometry and acceleration."""
        return self._camera, self._odometry, self._acceleration

    def newest_messages(self):
        """Return a message for each of `publishers`."""
        return self._newest['frame'], self._newest['odometry'], AccelWithCovarianceStamped()

    def add_side_camera(self, topic):
        """Publish every frame on this topic too."""
        self._side_camera = self.node.create_publisher(Image, topic, 5)

    def tick_clock(self, step_ns):
        """Let simulated time go on by so much."""
        self._sim_time_ns += step_ns
        self._clock.publish(ClockMsg(clock=time_message(self._sim_time_ns)))

    def leap(self, seconds):
        """Set simulated time on, or back, at its next step."""
        self._sim_leaps_ns.append(round(seconds * 1e9))

    def send_command(self, command):
        self._command.publish(NavigationCommand(command=command))

    def _drive(self):
        """Odometry and /clock at 40 Hz or what the machine can do, a frame with every fourth.

        Frames come amid two grid instants of the planner, so that it is not left to chance which
        tick they are for.
        """
        step_s = FRAME_PERIOD_S / ODOMETRY_PER_FRAME
        to_grid_s = FRAME_PERIOD_S - time.time() % FRAME_PERIOD_S
        next_s, count = time.monotonic() + to_grid_s + FRAME_PERIOD_S / 2, 0
        time.sleep(next_s - time.monotonic())
        while not self._ending:
            if self.simulated and self.sim_runs:
                leap_ns = self._sim_leaps_ns.popleft() if self._sim_leaps_ns else 0
                self.tick_clock(round(step_s * 1e9) + leap_ns)
            running = self.sim_runs or not self.simulated
            if self.odometry_on and running:
                self.publish_odometry(self.now_ns() + self.odometry_ahead_ns)
            if self.camera_on and running and count % ODOMETRY_PER_FRAME == 0:
                self.publish_frame(self.now_ns())
            count += 1
            next_s += step_s
            missed = (time.monotonic() - next_s) // FRAME_PERIOD_S
            next_s += max(missed, 0) * FRAME_PERIOD_S  # whole periods are not caught up
            time.sleep(max(next_s - time.monotonic(), 0.0))

    def _spin(self):
        with contextlib.suppress(ExternalShutdownException):
            self._executor.spin()


def time_message(ns):
    """Return nanoseconds as a message."""
    return Time(sec=ns // 10**9, nanosec=ns % 10**9)


def stamp_ns(message):
    """Return the header's stamp in nanoseconds."""
    return time_ns(message.header.stamp)


def time_ns(message):
    """Return a time in nanoseconds."""
    return message.sec * 10**9 + message.nanosec


def duration_s(message):
    """Return a duration in seconds."""
    return message.sec + message.nanosec / 1e9
