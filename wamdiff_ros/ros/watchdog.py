"""Tells an inference that is slow or has failed from one that will never plan again.

Free of ROS. Only judges; what follows is for the node.
"""

from ..parameters import Parameters
from .inference_thread import InferenceThread, Work

FIRST_TIMES = 10  # as patient with work that is done once for a shape
LONGEST_STEP_S = 1.0  # between two checks; the process slept through more


class Watchdog:
    """Watches `inference`; `check` is called some times a second."""

    def __init__(self, inference: InferenceThread, parameters: Parameters) -> None:
        self._inference = inference
        self._timeout_s = parameters.inference_timeout_s
        self._max_failures = parameters.max_inference_failures
        self._work: Work | None = None  # at the last check
        self._waited_s = 0.0  # for that work
        self._checked_s: float | None = None

    def check(self, steady_s: float) -> str:
        """Return why inference will not plan again in this process, or ''.

        `steady_s` is a time of the steady clock: simulated time may stand still. What a suspended
        process has slept is not waiting.
        """
        inference = self._inference
        self._wait(steady_s)
        if inference.lost:
            return f'inference has lost its device: {inference.last_error}'
        if not inference.is_alive():
            return f'the inference thread has ended: {inference.last_error or "nobody knows why"}'
        if 0 < self._max_failures <= inference.failures:
            return (
                f'inference has failed {inference.failures} times in a row, the last time with '
                f'{inference.last_error}'
            )
        if self._work is not None and 0 < self._patience_s() <= self._waited_s:
            return (
                f'inference has not returned for {self._waited_s:.1f} s while '
                f'{self._work.doing}; if it is only slow, raise inference_timeout_s'
            )
        return ''

    def _wait(self, steady_s: float) -> None:
        work = self._inference.work
        if work is not self._work:
            self._work, self._waited_s = work, 0.0
        elif self._checked_s is not None:
            self._waited_s += min(steady_s - self._checked_s, LONGEST_STEP_S)
        self._checked_s = steady_s

    def _patience_s(self) -> float:
        return self._timeout_s * (FIRST_TIMES if self._work.is_first else 1)
