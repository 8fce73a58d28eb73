"""A process that a command starts, watches and always ends."""

import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

# What is sent in turn, and how long each may take [s].
ENDING = ((signal.SIGINT, 20.0), (signal.SIGTERM, 5.0), (signal.SIGKILL, 5.0))


class ChildProcess:
    """Runs `command` with its output in `log`, in a process group of its own.

    Ctrl-C on the terminal therefore reaches only the parent, which ends its children in order.
    As a context manager it leaves no process behind.
    """

    def __init__(self, command: list[str], log: Path, environment: Mapping[str, str]) -> None:
        self.log = log
        with log.open('wb') as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(environment),
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """Exit code, negative for a signal, None while it runs."""
        return self._process.poll()

    def end(self) -> int:
        """Ask it to end with SIGINT, then more firmly, and return its exit code."""
        for number, timeout_s in ENDING:
            if self._process.poll() is not None:
                break
            os.killpg(self._process.pid, number)
            try:
                self._process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                continue
        return self._process.returncode

    def log_tail(self, lines: int = 15) -> str:
        """Return the end of its output, indented."""
        text = self.log.read_text('utf8', errors='replace')
        return '\n'.join(f'    {line}' for line in text.splitlines()[-lines:])

    def __enter__(self) -> 'ChildProcess':
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
