"""What checks may ask of the machine; tests put another one in its place.

What could crash or hang (extension modules, drivers) is asked in a child process.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

_REPLY = 'wamdiff doctor reply: '
_OWN_EXCEPTION = re.compile(r'^(?:\w+\.)+\w+: ')  # not of Python itself; their texts are sentences


@dataclass(frozen=True)
class Reply:
    """What a child process said: values, or in one line why there are none."""

    values: dict[str, Any] = field(default_factory=dict)
    error: str = ''
    stderr: str = ''


class Surroundings:
    """This machine, this Python, this environment."""

    def __init__(self):
        self.environ = dict(os.environ)
        self.python = sys.version_info[:2]
        self.executable = sys.executable
        self.prefix = sys.prefix

    def read(self, path: str) -> str | None:
        """Return a text file, or None when it cannot be read."""
        try:
            return Path(path).read_text('utf8', errors='replace')
        except OSError:
            return None

    def exists(self, path: str) -> bool:
        """Return whether there is such a file or folder."""
        return Path(path).exists()

    def folders(self, path: str) -> list[str]:
        """Return the names of the folders in a folder, sorted; none where it is not there."""
        folder = Path(path)
        return sorted(p.name for p in folder.iterdir() if p.is_dir()) if folder.is_dir() else []

    def version(self, distribution: str) -> str | None:
        """Return the version of an installed Python distribution, or None."""
        try:
            return metadata.version(distribution)
        except metadata.PackageNotFoundError:
            return None

    def has_module(self, name: str) -> bool:
        """Return whether a top-level module could be imported, without importing it."""
        return find_spec(name) is not None

    def which(self, command: str) -> str | None:
        """Return the path of a command, or None."""
        return shutil.which(command)

    def free_bytes(self, path: str) -> int | None:
        """Return the free space of the file system that holds `path`, or None."""
        try:
            return shutil.disk_usage(path).free
        except OSError:
            return None

    def ask(self, code: str, timeout_s: float = 120.0) -> Reply:
        """Run Python code that fills the dict `reply`, in a child process.

        Values must survive JSON. An exception, a crash or a time-out becomes `error`.
        """
        program = f'import json\nreply = {{}}\n{code}\nprint({_REPLY!r} + json.dumps(reply))'
        try:
            child = subprocess.run(
                [self.executable, '-c', program], env=self.environ, timeout=timeout_s,
                capture_output=True, text=True, errors='replace', check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return Reply(error=f'no answer within {timeout_s:.0f} s')
        except OSError as error:
            return Reply(error=str(error))
        for line in reversed(child.stdout.splitlines()):
            if line.startswith(_REPLY):
                return Reply(json.loads(line.removeprefix(_REPLY)), stderr=child.stderr)
        if child.returncode < 0:
            name = signal.Signals(-child.returncode).name
            return Reply(error=f'crashed with {name}', stderr=child.stderr)
        lines = [line for line in child.stderr.splitlines() if line.strip()]
        said = lines[-1].strip() if lines else f'ended with exit code {child.returncode}'
        return Reply(error=_OWN_EXCEPTION.sub('', said), stderr=child.stderr)
