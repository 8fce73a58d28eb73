"""The planner as a lifecycle node: this file wires the parts together and owns no logic.

configure loads the model in the inference thread, activate starts sensors and the planning loop,
deactivate stops them, cleanup frees the model. The executor's thread never waits for the model.
"""

import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from diagnostic_msgs.msg import DiagnosticArray
from rclpy.clock import Clock, ClockType
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn
from std_srvs.srv import SetBool, Trigger

from ..camera_parameters import Camera
from ..observation.synchronizer import Synchronizer
from ..parameter_values import ParameterError
from ..parameters import Parameters
from .camera_overlay import CameraOverlay
from .diagnostics import Health, diagnostic_array
from .inference_thread import InferenceThread, Session
from .last_resort import LastResort
from .outputs import Outputs
from .parameter_server import ParameterServer
from .planning_loop import PlanningLoop
from .process_figures import process_figures
from .sensors import Sensors
from .transitions import Transitions
from .watchdog import Watchdog

# (parameters, progress=…, cancelled=…) -> session; PlanningSession.load is one.
SessionLoader = Callable[..., Session]

SUCCESS = TransitionCallbackReturn.SUCCESS
FAILURE = TransitionCallbackReturn.FAILURE  # back to the state before
ERROR = TransitionCallbackReturn.ERROR  # on to on_error
WATCH_PERIOD_S = 0.25  # clock steps are noticed within this time
WATCHES_PER_SECOND = 4
INFERENCE_TIMEOUT_S = 60.0  # longest wait for an inference in progress, at cleanup
EXIT_TIMEOUT_S = 3.0
# How long the fallback is published when inference is dead: so long, or so many periods.
FAREWELL_S, FAREWELL_PERIODS = 1.0, 2
# On top of inference_timeout_s, for a process in which nothing runs any more; one that the machine
# starves or that is stopped for a while does not run either.
LAST_RESORT_S = 20.0


class PlannerNode(LifecycleNode):
    """See docs/interfaces.md for topics, services and parameters."""

    def __init__(self, session_loader: SessionLoader, **node_options) -> None:
        super().__init__('planner', **node_options)
        self._load_session = session_loader
        self._configuration: Parameters | None = None  # of the last configure
        self._inference: InferenceThread | None = None
        self._outputs: Outputs | None = None
        self._sensors: Sensors | None = None
        self._overlay: CameraOverlay | None = None
        self._loop: PlanningLoop | None = None
        self._watchdog: Watchdog | None = None
        self._last_resort = LastResort()
        self.given_up = ''  # why this process is to end
        self._over_s = 0.0  # steady time of that
        self._enabled = True
        self._error = ''  # why the last transition failed
        self._watches = 0
        self._transitions = Transitions(self, leave_active=self._stop_planning)
        self._parameter_server = ParameterServer(self, self._no_setting_now)
        self._diagnostics = self.create_publisher(DiagnosticArray, '/diagnostics', 10)
        self.create_service(Trigger, '~/reset', self._on_reset)
        self.create_service(SetBool, '~/enable', self._on_enable)
        self._autostart = self._parameter_server.autostart
        steady = Clock(clock_type=ClockType.STEADY_TIME)  # also ticks while simulated time rests
        self._watch_timer = self.create_timer(WATCH_PERIOD_S, self._watch, clock=steady)

    # -- transitions --------------------------------------------------------------------------

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Read the parameters and load the model; runs in a worker thread."""
        self._error = ''
        return self._attempt(self._configure)

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Start sensors and grid."""
        self._error = ''
        return self._attempt(self._start_planning)

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Stop sensors and grid; the model stays loaded."""
        return self._attempt(self._stop_planning, otherwise=ERROR)

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Free the model; runs in a worker thread."""
        return self._attempt(self._release, otherwise=ERROR)

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Stop and free everything; runs in a worker thread."""
        return self._attempt(self._release, otherwise=ERROR)

    def on_error(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Free what a failed transition left behind, ready to be configured again."""
        return self._attempt(self._release)

    def _attempt(self, step: Callable[[], None], otherwise=FAILURE) -> TransitionCallbackReturn:
        """Do a transition's work; diagnostics go on saying why it failed, until it succeeds."""
        try:
            step()
        except Exception as error:  # rclpy would swallow it without a word
            self._error = str(error) or type(error).__name__
            if self.context.ok():
                self.get_logger().error(self._error)
                # A sentence made for people needs no traceback, anything else does.
                if not isinstance(error, (ValueError, OSError)):
                    self.get_logger().error(traceback.format_exc())
            return otherwise
        return SUCCESS

    def _configure(self) -> None:
        parameters = self._parameter_server.read()
        self._configuration = parameters
        for camera in parameters.camera_settings:
            self._check_topic(camera)
        load = partial(self._load, parameters)
        self._inference = InferenceThread(load, round(parameters.max_plan_age_s * 1e9))
        try:
            backend, model = self._inference.loaded.result()
        except BaseException:
            self._release()
            raise
        self.get_logger().info(f'loaded {model}, running on {backend}')
        self._outputs = Outputs(self, parameters, backend, model)

    def _check_topic(self, camera: Camera) -> None:
        try:
            self.resolve_topic_name(camera.topic)
        except Exception as error:  # rclpy has no common type for it
            raise ParameterError(
                f'camera.{camera.name}.topic: {camera.topic!r} is not a topic name; {error}'
            ) from error

    def _load(self, parameters: Parameters, progress, cancelled) -> Session:
        return self._load_session(parameters, progress=progress, cancelled=cancelled)

    def _start_planning(self) -> None:
        try:
            self._wire()
        except BaseException:
            self._stop_planning()
            raise

    def _wire(self) -> None:
        synchronizer = Synchronizer(self._configuration)
        self._loop = PlanningLoop(
            self, self._configuration, synchronizer, self._inference, self._outputs, self._enabled
        )
        self._sensors = Sensors(self, self._configuration, synchronizer, self._loop.reset)
        if self._configuration.overlay_rate_hz > 0:
            self._overlay = CameraOverlay(self, self._configuration, synchronizer, self._outputs)

        self._watchdog = Watchdog(self._inference, self._configuration)

    def _stop_planning(self) -> None:
        self._watchdog = None
        if not self.given_up:
            self._last_resort.call_off()
        if self._overlay is not None:
            self._overlay.destroy()
            self._overlay = None
        if self._loop is not None:
            self._loop.stop()
            self._loop = None
        if self._sensors is not None:
            self._sensors.destroy()
            self._sensors = None

    def _release(self) -> None:
        self._stop_planning()
        if self._inference is not None:
            if not self._inference.close(INFERENCE_TIMEOUT_S):
                raise RuntimeError(f'inference did not end within {INFERENCE_TIMEOUT_S:.0f} s')
            self._inference = None
        if self._outputs is not None:
            self._outputs.destroy()
            self._outputs = None

    def _no_setting_now(self) -> str:
        state = self._transitions.state
        if state == 'unconfigured':
            return ''
        return f'takes effect at configure, so it cannot be set while {state}; clean up first'

    # -- services -----------------------------------------------------------------------------

    def _on_reset(self, request: Trigger.Request, response: Trigger.Response):
        response.success = self._loop is not None
        if response.success:
            self._loop.reset('~/reset was called')
            response.message = 'cleared buffers, plan and KV cache'
        else:
            response.message = f'nothing to reset while {self._transitions.state}'
        return response

    def _on_enable(self, request: SetBool.Request, response: SetBool.Response):
        self._enabled = request.data
        if self._loop is not None:
            self._loop.enable(self._enabled)
        response.success = True
        response.message = 'planning is ' + ('enabled' if self._enabled else 'disabled')
        return response

    # -- health -------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Look after everything that must not depend on the node's clock."""
        if self._autostart:
            self._autostart = False
            self.executor.create_task(self._transitions.configure_and_activate)
        if self._loop is not None:
            self._loop.watch_clock()
        if self._watchdog is not None:
            self._watch_inference()
        self._watches += 1
        if self._watches % WATCHES_PER_SECOND == 0:
            if self._sensors is not None:
                self._sensors.poll()
            if self._overlay is not None:
                self._overlay.poll()
            self._diagnose()

    def _watch_inference(self) -> None:
        """Give up once inference is dead; the process ends after a farewell."""
        if timeout_s := self._configuration.inference_timeout_s:
            self._last_resort.postpone(timeout_s + LAST_RESORT_S)
        if self.given_up:
            return
        now_s = time.monotonic()
        self.given_up = self._watchdog.check(now_s)
        if self.given_up:
            periods_s = FAREWELL_PERIODS * self._configuration.period_ns * 1e-9
            self._over_s = now_s + max(FAREWELL_S, periods_s)
            self.get_logger().fatal(f'{self.given_up}; the process ends, to be started anew')
            self._loop.give_up(self.given_up)
            self._diagnose()

    @property
    def is_over(self) -> bool:
        """Whether the process is to end now, for inference is dead and all has been said."""
        return bool(self.given_up) and time.monotonic() >= self._over_s

    def _diagnose(self) -> None:
        stamp = self.get_clock().now().to_msg()
        self._diagnostics.publish(
            diagnostic_array(stamp, self.get_fully_qualified_name(), self._health())
        )

    def _health(self) -> Health:
        state, inference = self._transitions.state, self._inference
        health = Health(
            lifecycle=state,
            error=self.given_up or self._error,
            progress='' if inference is None else inference.progress,
            enabled=self._enabled,
            values=process_figures(),
        )
        loop, sensors = self._loop, self._sensors
        if loop is None or sensors is None:
            return health
        tally = loop.take_tally()
        return replace(
            health,
            stalled=loop.stalled(),
            lost=loop.lost(),
            tally=tally,
            latency_p95_s=loop.latencies.p95_s(),
            deadline_s=self._configuration.deadline_s,
            obstacles=sensors.obstacles(),
            dropped=sensors.take_dropped(),
            values={
                'newest_ticks': tally.describe(),
                'backend': self._outputs.backend,
                'model': self._outputs.model,
                **self._outputs.describe(),
                **loop.describe(),
                **sensors.describe(),
                **(self._overlay.describe() if self._overlay else {}),
                **health.values,
            },
        )

    # -- the end ------------------------------------------------------------------------------

    def close(self) -> bool:
        """Stop all threads; False if one is still running, stuck where it cannot be cancelled."""
        self._stop_planning()
        inference, timeout_s = self._inference, 0.0 if self.given_up else EXIT_TIMEOUT_S
        if inference is not None and not inference.close(timeout_s):
            return False
        return self._transitions.join(timeout_s)

    def destroy_node(self) -> None:
        """Leave DDS; rclpy's state machine would hold the node until the interpreter ends."""
        super().destroy_node()
        self._state_machine.destroy_when_not_in_use()
