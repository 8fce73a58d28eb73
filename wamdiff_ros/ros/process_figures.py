"""What the planner's process uses of the machine, for diagnostics."""

import os

from ..runtime.device_memory import device_memory_mib

PAGE_BYTES = os.sysconf('SC_PAGE_SIZE')


def process_figures() -> dict[str, str]:
    """Return resident memory, threads and open files, and GPU memory where there is a GPU."""
    with open('/proc/self/statm') as statm:
        resident_pages = int(statm.read().split()[1])
    values = {
        'memory_mib': f'{resident_pages * PAGE_BYTES / 2**20:.0f}',
        'threads': str(len(os.listdir('/proc/self/task'))),
        'open_files': str(len(os.listdir('/proc/self/fd'))),
    }
    if (device_mib := device_memory_mib()) is not None:
        values['device_memory_mib'] = f'{device_mib:.0f}'
    return values
