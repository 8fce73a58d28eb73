"""The end of a process that can no longer end itself.

A call into foreign code that keeps Python's lock stops every thread of Python, also the one that
would notice. The kernel's timer needs neither: if nobody postpones it, it sends SIGALRM, for which
faulthandler writes, without Python, where each thread stands; then the signal takes its default
course and kills the process. Linux counts this timer on the steady clock. A process has one of it.
"""

import faulthandler
import signal


class LastResort:
    """Kills the process unless it is postponed or called off in time."""

    def __init__(self) -> None:
        faulthandler.register(signal.SIGALRM, chain=True)

    def postpone(self, seconds: float) -> None:
        """Let it come in so many seconds from now."""
        signal.setitimer(signal.ITIMER_REAL, seconds)

    def call_off(self) -> None:
        """Let it not come."""
        signal.setitimer(signal.ITIMER_REAL, 0.0)
