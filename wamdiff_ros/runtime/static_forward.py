"""The engine's forwards with static shapes, as a GraphRunner wants them.

Where a forward stands in the cache is an input, a tensor: it writes its keys and values to slots
that the device computes, and attends to the whole capacity under a mask. Prompts are padded to
buckets, whose padding lies in slots that nobody sees and the answer overwrites.
"""

from functools import partial

import torch
from torch.nn.functional import pad, scaled_dot_product_attention

from ..model.network import Network
from ..model.text import ALL
from ..model.vision import VisionTower
from .graph_runner import GraphRunner
from .kv_cache import KVCache

BUCKET = 64  # prompt segments are padded to multiples of this many rows


class StaticAttend:
    """Attention over a cache's whole capacity; `slots` [L] are written, `mask` says what is seen.

    mask: bool [1, 1, L, capacity]; `rows` are the queries of the last layer.
    """

    def __init__(self, cache: KVCache, slots: torch.Tensor, mask: torch.Tensor, rows: slice):
        self._cache = cache
        self._slots, self._mask, self._rows = slots, mask, rows

    def __call__(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
    ) -> torch.Tensor:
        """See model.text.Attend."""
        keys, values = self._cache.keys[layer], self._cache.values[layer]
        keys.index_copy_(2, self._slots, key)
        values.index_copy_(2, self._slots, value)
        if query.shape[2] == 0:  # only keys and values are wanted
            return query
        mask = self._mask
        if query.shape[2] < key.shape[2]:
            mask = mask[:, :, self._rows]
        return scaled_dot_product_attention(query, keys, values, attn_mask=mask, enable_gqa=True)


def static_vision(runner: GraphRunner, tower: VisionTower, patches, grid, places):
    """Patches of an image [p, dim] → its tokens and deepstack features, no longer in buffers."""

    def step(patches):
        tokens, deepstack = tower(patches, grid, places=places)
        return tokens, *deepstack

    tokens, *deepstack = (output.clone() for output in runner(('vision', grid), step, patches))
    return tokens, deepstack


class StaticForward:
    """The language tower's forwards over one cache; the engine makes one per cache."""

    def __init__(self, network: Network, text, cache: KVCache, runner: GraphRunner):
        """`text` has `run` of model.text.TextTower."""
        self._network = network
        self._text = text
        self._cache = cache
        self._runner = runner
        self._block = network.config.block_size

    def block_logits(
        self, tokens: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, skip: int
    ) -> torch.Tensor:
        """Answer tokens [n, L] behind the committed slots → logits [n * (L - skip), vocab].

        L is whole blocks, each of which sees those before it; `skip` leading rows have no logits.
        """
        self._check_room(tokens.shape[1])
        start = torch.full((1,), self._cache.length, device=tokens.device)
        step = partial(self._block_step, skip)
        return self._runner(('block', skip), step, tokens, cos, sin, start)

    def _block_step(self, skip: int, tokens, cos, sin, start) -> torch.Tensor:
        index = torch.arange(tokens.shape[1], device=tokens.device)
        slots = start + index
        ends = start + (index // self._block + 1) * self._block
        mask = torch.arange(self._cache.capacity, device=tokens.device) < ends[:, None]
        rows = slice(skip, None) if skip else ALL
        attend = StaticAttend(self._cache, slots, mask[None, None], rows)
        x = self._network.text.embed_tokens(tokens)
        hidden = self._text.run(x, cos, sin, attend, (), rows)
        return self._network.head(hidden).flatten(0, 1)

    def prefill(
        self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, deepstack, rows: slice
    ) -> torch.Tensor:
        """Put the embedded segment x [1, L, hidden] behind the committed slots → hidden.

        `rows` are ALL of the L rows, or none of them.
        """
        length = x.shape[1]
        padding = -length % BUCKET
        self._check_room(length + padding)
        start = torch.full((1,), self._cache.length, device=x.device)
        padded = [pad(part, (0, 0, 0, padding)) for part in (x, cos, sin, *deepstack)]
        # The names are few: a capture per number of rows.
        name = ('prefill', rows is ALL)
        hidden = self._runner(
            name, partial(self._prefill_step, rows), start, start + length, *padded
        )
        return hidden[:, :length]

    def _prefill_step(self, rows: slice, start, end, x, cos, sin, *deepstack) -> torch.Tensor:
        slots = start + torch.arange(x.shape[1], device=x.device)
        every = torch.arange(self._cache.capacity, device=x.device)
        chunk = slots[:, None] // self._block
        mask = (every // self._block <= chunk) & (every < end)
        # Rows of padding see what the last real one does, so that no softmax is over nothing.
        attend = StaticAttend(self._cache, slots, mask[None, None], rows)
        return self._text.run(x, cos, sin, attend, deepstack, rows)

    def _check_room(self, count: int) -> None:
        if self._cache.length + count > self._cache.capacity:
            raise ValueError(
                f'{self._cache.length} + {count} slots do not fit into a KV cache of '
                f'{self._cache.capacity}'
            )
