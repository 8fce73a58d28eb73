"""What was measured on: processor, versions, and how busy it was."""

import os
import platform
import sys
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path

import torch

from .. import __version__

BUSY = 0.5  # load average: more than starting this process makes
PACKAGES = ('torch', 'transformers', 'torchao', 'flashinfer-python', 'tensorrt', 'numpy')


@dataclass(frozen=True)
class Machine:
    """Printed with every figure."""

    time_utc: str
    processor: str
    cores: int
    threads: int  # of torch
    vector_instructions: str
    memory_gib: float
    load_average: float  # of the last minute, before anything was measured
    system: str
    accelerator: str | None
    python: str
    versions: dict[str, str]

    @property
    def busy(self) -> bool:
        """Whether others were at work, so that times mean little."""
        return self.load_average > BUSY


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0))


def this_machine(device: torch.device) -> Machine:
    """Describe this machine and process."""
    versions = {'wamdiff_ros': __version__}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    accelerator = None
    if device.type == 'cuda':
        major, minor = torch.cuda.get_device_capability(device)
        accelerator = (
            f'{torch.cuda.get_device_name(device)}, sm_{major}{minor}, CUDA {torch.version.cuda}'
        )
    return Machine(
        time_utc=datetime.now(timezone.utc).strftime('%Y-%m-%d %H:%M'),
        processor=_processor(),
        cores=cores(),
        threads=torch.get_num_threads(),
        vector_instructions=torch.backends.cpu.get_cpu_capability(),
        memory_gib=os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30,
        load_average=os.getloadavg()[0],
        system=f'{platform.system()} {platform.release()}',
        accelerator=accelerator,
        python=sys.version.split()[0],
        versions=versions,
    )


def _processor() -> str:
    try:
        lines = Path('/proc/cpuinfo').read_text('utf8').splitlines()
    except OSError:
        return platform.machine()
    names = [line.partition(':')[2].strip() for line in lines if line.startswith('model name')]
    return names[0] if names else platform.machine()
