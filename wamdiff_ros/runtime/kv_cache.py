"""The prefix KV cache: keys and values of every layer, preallocated.

Slots fill up from the front. A forward writes behind the committed slots; `commit` keeps what it
wrote, `rollback` forgets from some slot on. `fork` lets several answers go on from one prefix:
each has slots of its own, and the prefix is read where it is. Nothing is ever concatenated or
copied.
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
        self.length = 0  # committed slots, those of the prefix included
        self.prefix: KVCache | None = None  # of batch 1, read by every answer
        self.first = 0  # slot number of the first slot that is not the prefix's

    def fork(self, answers: 'KVCache') -> 'KVCache':
        """Let `answers` go on from the committed slots of this cache of one prompt.

        Whatever `answers` held is forgotten. The prefix must stay as it is meanwhile.
        """
        if self.batch != 1 or self.prefix is not None:
            raise ValueError(f'a cache of {self.batch} prompts, forked or not, cannot be forked')
        answers.prefix = self
        answers.first = answers.length = self.length
        return answers

    def write(self, layer: int, key: torch.Tensor, value: torch.Tensor) -> int:
        """Put key and value [n, kv_heads, L, d] behind the committed slots; return their end."""
        start = self.length - self.first
        end = start + key.shape[2]
        if end > self.capacity:
            raise ValueError(f'{end} slots do not fit into a KV cache of {self.capacity}')
        self.keys[layer, :, :, start:end] = key
        self.values[layer, :, :, start:end] = value
        return self.first + end

    def own(self, layer: int, end: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return keys and values [n, kv_heads, end - first, d] up to slot `end`."""
        own = end - self.first
        return self.keys[layer, :, :, :own], self.values[layer, :, :, :own]

    def commit(self, count: int) -> None:
        """Keep the next `count` slots that a forward wrote."""
        if not 0 <= count <= self.capacity - (self.length - self.first):
            raise ValueError(f'cannot commit {count} slots behind {self.length}')
        self.length += count

    def clear(self) -> None:
        """Forget everything, and what is in the slots: no mask hides a NaN from attention."""
        self.keys.zero_()
        self.values.zero_()
        self.prefix = None
        self.first = self.length = 0

    def rollback(self, length: int) -> None:
        """Forget everything from slot `length` on."""
        if not self.first <= length <= self.length:
            raise ValueError(f'cannot roll back to {length} of {self.length} slots')
        self.length = length
