"""Attention over the KV cache with torch's scaled_dot_product_attention: the reference backend."""

import torch
from torch.nn.functional import scaled_dot_product_attention

from .kv_cache import KVCache


class SdpaAttend:
    """Attention of one forward: writes its keys and values, sees them and all committed slots.

    `mask` is boolean, broadcastable to [n, 1, L, end] (True: visible), or None when everything is.
    """

    def __init__(self, cache: KVCache, mask: torch.Tensor | None):
        self._cache = cache
        self._mask = mask

    def __call__(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
    ) -> torch.Tensor:
        """See model.text.Attend."""
        end = self._cache.write(layer, key, value)
        return scaled_dot_product_attention(
            query,
            self._cache.keys[layer, :, :, :end],
            self._cache.values[layer, :, :, :end],
            attn_mask=self._mask,
            enable_gqa=True,
        )


def block_causal_mask(start: int, end: int, block_size: int, lengths: torch.Tensor):
    """Return who sees whom in a prompt: bool [n, 1, end-start, end] for the rows start … end-1.

    Chunks of `block_size` count from the prompt's start, the last may be short; a token sees its
    own chunk and all before it (block size 1: causal). Slots at or beyond a prompt's length are
    padding, which no token sees.
    """
    slots = torch.arange(end, device=lengths.device)
    rows = slots[start:]
    visible = slots[None, :] // block_size <= rows[:, None] // block_size  # [rows, end]
    real = slots[None, :] < lengths[:, None]  # [n, end]
    return (visible[None] & real[:, None])[:, None]
