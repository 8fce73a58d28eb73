"""The engine's forwards with static shapes over a PagedCache, as a GraphRunner wants them.

Where a forward stands in the cache is in the plan of its attention, which is made on the host
before the captured graph runs. Counterpart of static_forward for paged attention.
"""

from functools import partial

import torch
from torch.nn.functional import pad

from ..model.config import TextConfig
from ..model.network import Network
from ..model.text import ALL
from .graph_runner import GraphRunner
from .paged_attention import Kernels, PagedAttend, PagedCache
from .static_forward import BUCKET


class PagedForward:
    """The language tower's forwards over one paged cache; the engine makes one per cache."""

    def __init__(self, network: Network, text, cache: PagedCache, runner: GraphRunner):
        """`text` has `run` of model.text.TextTower."""
        self._network = network
        self._text = text
        self._cache = cache
        self._runner = runner
        self._block = network.config.block_size

    def block_logits(
        self, tokens: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, skip: int
    ) -> torch.Tensor:
        """See StaticForward.block_logits."""
        size, length = self._block, tokens.shape[1]
        groups = [(size, self._cache.length + end) for end in range(size, length + 1, size)]
        attend = self._cache.blocks_attend(groups, groups[skip // size :], static=True)
        step = partial(self._block_step, skip, attend)
        return self._runner(('block', skip), step, tokens, cos, sin)

    def _block_step(self, skip: int, attend: PagedAttend, tokens, cos, sin) -> torch.Tensor:
        rows = slice(skip, None) if skip else ALL
        x = self._network.text.embed_tokens(tokens)
        hidden = self._text.run(x, cos, sin, attend, (), rows)
        return self._network.head(hidden).flatten(0, 1)

    def prefill(
        self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, deepstack, rows: slice
    ) -> torch.Tensor:
        """See StaticForward.prefill; rows of padding are written nowhere."""
        start, length = self._cache.length, x.shape[1]
        padding = -length % BUCKET
        attend = self._cache.prompt_attend(
            start, start + length + padding, self._block, [start + length], rows, static=True
        )
        padded = [pad(part, (0, 0, 0, padding)) for part in (x, cos, sin, *deepstack)]
        step = partial(self._prefill_step, rows, attend)
        # Where chunks end within the rows is part of what is captured.
        name = ('prefill', rows is ALL, start % self._block)
        return self._runner(name, step, *padded)[:, :length]

    def _prefill_step(self, rows: slice, attend: PagedAttend, x, cos, sin, *deepstack):
        return self._text.run(x, cos, sin, attend, deepstack, rows)


class PagedBackend:
    """Keys and values in pages, and the kernels of one library; see AttentionBackend."""

    static_forward = PagedForward

    def __init__(self, kernels: Kernels):
        self._kernels = kernels
        self.name = kernels.name

    def cache(
        self,
        config: TextConfig,
        batch: int,
        capacity: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> PagedCache:
        """Return an empty cache."""
        return PagedCache(config, batch, capacity, dtype, device, self._kernels)
