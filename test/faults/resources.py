"""What a process holds of the machine, read from /proc."""

import os
from dataclasses import dataclass
from pathlib import Path

ALLOWED_MIB = 15.0  # code that runs for the first time is loaded, the allocator keeps pages


@dataclass(frozen=True)
class Resources:
    """Of one process; `shared_memory` counts the segments that it has mapped."""

    memory_mib: float
    threads: int
    open_files: int
    shared_memory: int

    def excess_over(self, before):
        """Say what there is more of than `before`, or ''."""
        excess = [
            f'{getattr(self, name) - getattr(before, name)} {what}'
            for name, what in (
                ('threads', 'threads'),
                ('open_files', 'open files'),
                ('shared_memory', 'segments of shared memory'),
            )
            if getattr(self, name) > getattr(before, name)
        ]
        grown_mib = self.memory_mib - before.memory_mib
        if grown_mib > ALLOWED_MIB:
            excess.append(f'{grown_mib:.0f} MiB')
        return ', '.join(excess)

    def __str__(self):
        return (
            f'{self.memory_mib:.0f} MiB, {self.threads} threads, {self.open_files} files, '
            f'{self.shared_memory} shm'
        )


def resources_of(pid):
    """Return the Resources of a process that runs; raises OSError when it has ended."""
    process = Path('/proc') / str(pid)
    resident_pages = int((process / 'statm').read_text().split()[1])
    maps = (process / 'maps').read_text().splitlines()
    return Resources(
        memory_mib=resident_pages * os.sysconf('SC_PAGE_SIZE') / 2**20,
        threads=len(os.listdir(process / 'task')),
        open_files=len(os.listdir(process / 'fd')),
        shared_memory=len({line.split()[-1] for line in maps if '/dev/shm/' in line}),
    )


def cpu_seconds(pid):
    """Return the processor time that a process has used."""
    fields = Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')
