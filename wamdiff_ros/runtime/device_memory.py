"""How much of a GPU's memory this process holds."""

import sys


def device_memory_mib() -> float | None:
    """Return what torch has reserved on the GPU in use, or None without one.

    Never imports torch nor starts CUDA: it is asked while both are still loading.
    """
    torch = sys.modules.get('torch')
    cuda = getattr(torch, 'cuda', None)
    if cuda is None or not hasattr(cuda, 'is_initialized') or not cuda.is_initialized():
        return None
    return cuda.memory_reserved() / 2**20
