"""The planner's process: starts the node, and ends with exit code 0 on SIGINT and SIGTERM.

Or with 3 when inference is dead: a context of CUDA cannot be mended, nor a thread of Python be
ended from outside, so that a new process is the remedy; to start it is the supervisor's business.

The node itself is in lifecycle_node.py; it is imported late, because a signal may come while
Python is still importing.
"""

import os
import signal
import sys

INFERENCE_IS_DEAD = 3  # exit code; 1 and 2 will be the same when it is started anew


class MissingPackage(ValueError):
    """A package of the network is not there; the message names it and the remedy."""


def load_session(parameters, **callbacks):
    """Load the real session; torch takes seconds to import, so not before it is needed."""
    # OpenMP threads that spin between two small operations take cores from everybody else, and
    # stall each other on a busy machine. Read by torch when it is imported.
    os.environ.setdefault('OMP_WAIT_POLICY', 'PASSIVE')
    try:
        from ..runtime.session import PlanningSession
    except ImportError as error:
        raise MissingPackage(
            f'{error}; the planner needs requirements/runtime.txt installed for {sys.executable}, '
            'see README.md'
        ) from error
    return PlanningSession.load(parameters, **callbacks)


def main(args: list[str] | None = None, session_loader=load_session) -> int:
    """Run the node until a signal ends it, or the death of inference; return the exit code.

    `session_loader` is called as PlanningSession.load is: (parameters, progress=, cancelled=).
    """
    spinning, signalled = False, False

    def on_signal(*_) -> None:
        nonlocal signalled
        signalled = True
        # Once the node spins, the loop below ends. Ctrl-C reaches a launched process twice, and
        # its way out must not be interrupted either.
        if not spinning:
            _handle_signals(signal.SIG_IGN)
            sys.exit(0)

    _handle_signals(on_signal)
    try:
        import rclpy
        from rclpy.executors import SingleThreadedExecutor
        from rclpy.signals import SignalHandlerOptions

        from .lifecycle_node import PlannerNode
    except ImportError as error:
        if signalled:  # an extension module turns SystemExit into this
            return 0
        python = f'{sys.version_info.major}.{sys.version_info.minor}'
        print(
            f'wamdiff_ros: {error}. Source a ROS 2 workspace that holds wamdiff_ros '
            f'(. install/setup.bash) and use its own Python, or run scripts/setup and .venv; '
            f'this is Python {python} at {sys.executable}.',
            file=sys.stderr,
        )
        return 1
    try:
        # rclpy's own handler would take DDS away from under a tick that is being published.
        rclpy.init(args=args, signal_handler_options=SignalHandlerOptions.NO)
    except RuntimeError as error:  # the arguments, or the parameter file, cannot be read
        print(f'wamdiff_ros: {error}', file=sys.stderr)
        return 2
    spinning = True
    node, ended = None, True
    try:
        node = PlannerNode(session_loader)
        executor = SingleThreadedExecutor()
        executor.add_node(node)
        # A signal ends this between two callbacks; the node's watch timer wakes the executor.
        while not signalled and not node.is_over:
            executor.spin_once()
    finally:
        rclpy.try_shutdown()
        if node is not None:
            ended = node.close()
            if ended or node.given_up:  # subscribers hear of it, shared memory is taken back
                node.destroy_node()
        _handle_signals(signal.SIG_IGN)  # the interpreter would put back deadly ones as it ends
    if not ended or node.given_up:
        # A thread stuck in foreign code would abort the interpreter's own way out, and destructors
        # that wait for a device that is lost would never come back from it.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(INFERENCE_IS_DEAD if node.given_up else 0)
    return 0


def _handle_signals(handler) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handler)


if __name__ == '__main__':
    sys.exit(main())
