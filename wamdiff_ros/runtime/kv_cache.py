"""The KV cache: keys and values of every token that later tokens may see, in one allocation.

Slots are numbered from 0 and filled from the left; `length` slots are committed. A forward writes
its own keys and values right behind them, where they serve that forward and are overwritten by
the next one unless they are committed. Nothing is ever concatenated or copied.
"""

import torch

from ..model.config import TextConfig


class KVCache:
    """Keys and values [layers, n, kv_heads, capacity, head_dim]."""

    def __init__(
        self,
        config: TextConfig,
        batch: int,
        capacity: int,
        dtype: torch.dtype,
        device: torch.device,
    ):
        shape = (config.num_layers, batch, config.num_kv_heads, capacity, config.head_dim)
        self.keys = torch.zeros(shape, dtype=dtype, device=device)
        self.values = torch.zeros(shape, dtype=dtype, device=device)
        self.batch = batch
        self.capacity = capacity
        self.length = 0

    def write(self, layer: int, key: torch.Tensor, value: torch.Tensor) -> int:
        """Put key and value [n, kv_heads, L, d] behind the committed slots; return their end."""
        end = self.length + key.shape[2]
        if end > self.capacity:
            raise ValueError(f'{end} slots do not fit into a KV cache of {self.capacity}')
        self.keys[layer, :, :, self.length : end] = key
        self.values[layer, :, :, self.length : end] = value
        return end

    def commit(self, count: int) -> None:
        """Keep the `count` slots that the last forward wrote."""
        if not 0 <= count <= self.capacity - self.length:
            raise ValueError(f'cannot commit {count} slots behind {self.length}')
        self.length += count

    def rollback(self, length: int) -> None:
        """Forget everything from slot `length` on."""
        if not 0 <= length <= self.length:
            raise ValueError(f'cannot roll back to {length} of {self.length} slots')
        self.length = length
