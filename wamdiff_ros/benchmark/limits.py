"""What this machine can do at most, measured in the same run: matrix products and memory."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from .runs import synchronise

GEMM_SIDE = {'cpu': 1536, 'cuda': 8192}
MEMORY_BYTES = 512 << 20  # of the slow memory: larger than any cache
ROUNDS = 7


@dataclass(frozen=True)
class Limits:
    """The best of several large, simple kernels; what a network does is compared with it."""

    gemm_flops_per_s: float  # a square product in the network's precision
    bytes_per_s: float  # reading from main memory
    # Reading something as large as the weights that one forward reads: from a cache, if they fit.
    weights_bytes_per_s: float
    weights_bytes: int

    def floor_s(self, flops: float, read_bytes: float) -> float:
        """Return the least time for so much arithmetic and so much reading of weights."""
        return max(flops / self.gemm_flops_per_s, read_bytes / self.weights_bytes_per_s)


def measure_limits(dtype: torch.dtype, device: torch.device, weights_bytes: int) -> Limits:
    """Measure, which takes a second or two."""
    side = GEMM_SIDE[device.type]
    left, right = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
    gemm_s = _best_s(lambda: left @ right, device)
    return Limits(
        gemm_flops_per_s=2 * side**3 / gemm_s,
        bytes_per_s=_reading(MEMORY_BYTES, device),
        weights_bytes_per_s=_reading(weights_bytes, device),
        weights_bytes=weights_bytes,
    )


def _reading(size: int, device: torch.device) -> float:
    """Return bytes per second of the best kernel that reads `size` bytes once."""
    columns = 1024
    rows = max(1, min(size, MEMORY_BYTES) // (4 * columns))
    matrix, vector = torch.ones(rows, columns, device=device), torch.ones(columns, device=device)
    kernels = (lambda: torch.mv(matrix, vector), matrix.sum, matrix.amax)
    return matrix.nbytes / min(_best_s(kernel, device) for kernel in kernels)


def _best_s(kernel: Callable[[], object], device: torch.device) -> float:
    best = float('inf')
    for _ in range(ROUNDS):
        synchronise(device)
        start = time.perf_counter()
        kernel()
        synchronise(device)
        best = min(best, time.perf_counter() - start)
    return best
