"""Lifecycle transitions that leave the executor free: the slow ones run in a worker thread.

rclpy runs a transition inside the `change_state` service callback, so that a model that loads
for a minute would make a single-threaded node deaf. Here the callback is a coroutine that waits
for the worker; state, parameters and diagnostics are answered meanwhile. One transition at a
time; a second request, or one that the state does not know, is refused with the reason in the
log. `_service_change_state` and `_state_machine` have carried these names from Humble on.
"""

import threading
from collections.abc import Callable

from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.lifecycle import LifecycleNode
from rclpy.task import Future

# These only create or destroy timers and subscriptions, which belongs into the executor's thread.
_QUICK = ('activate', 'deactivate')


class Transitions:
    """Takes over the `change_state` service of `node`.

    `leave_active()` is called in the executor's thread before an active node shuts down.
    """

    def __init__(self, node: LifecycleNode, leave_active: Callable[[], None]) -> None:
        self._node = node
        self._leave_active = leave_active
        self._worker: threading.Thread | None = None
        service = node._service_change_state
        self._change_now = service.callback
        # The default group is exclusive: awaiting in it would block every other callback.
        service.callback_group = ReentrantCallbackGroup()
        service.callback_group.add_entity(service)
        service.callback = self._on_change_state

    @property
    def state(self) -> str:
        """The lifecycle state's label."""
        return self._node._state_machine.current_state[1]

    async def configure_and_activate(self) -> None:
        """Start the node up, as a launch file would from outside."""
        for transition in (Transition.TRANSITION_CONFIGURE, Transition.TRANSITION_ACTIVATE):
            request = ChangeState.Request(transition=Transition(id=transition))
            if not (await self._on_change_state(request, ChangeState.Response())).success:
                return

    def join(self, timeout_s: float) -> bool:
        """Wait for a transition in progress; False if it is still running then."""
        if self._worker is not None:
            self._worker.join(timeout_s)
        return self._worker is None or not self._worker.is_alive()

    async def _on_change_state(
        self, request: ChangeState.Request, response: ChangeState.Response
    ) -> ChangeState.Response:
        wanted, state = request.transition, self.state
        known = {entry[0]: entry[1] for entry in self._node._state_machine.available_transitions}
        label = wanted.label or known.get(wanted.id, f'id {wanted.id}')
        if self._worker is not None:
            reason = 'another transition is in progress'
        elif label not in known.values():
            reason = f'from here: {", ".join(known.values())}'
        else:
            reason = ''
        if reason:
            self._node.get_logger().error(f'transition {label!r} refused in {state!r}: {reason}')
            response.success = False
            return response
        if label in _QUICK:
            return self._change_now(request, response)
        if state == 'active':
            self._leave_active()
        done = Future(executor=self._node.executor)
        self._worker = threading.Thread(
            target=self._work, args=(request, response, done), name='transition', daemon=True
        )
        self._worker.start()
        try:
            return await done
        finally:
            self._worker = None

    def _work(self, request, response, done: Future) -> None:
        executor, context = self._node.executor, self._node.context
        try:
            response = self._change_now(request, response)
        except Exception as error:  # e.g. the context went away; the caller gets "no success"
            response.success = False
            if context.ok():
                self._node.get_logger().error(f'transition failed: {error}')
        if context.ok() and executor is not None:
            executor.create_task(done.set_result, response)  # resumes in the executor's thread
