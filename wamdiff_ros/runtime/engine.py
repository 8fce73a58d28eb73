"""One network with one KV cache: prefill with prefix reuse, denoise, commit, append.

It implements what the decoders ask for (decoding.BlockModel and decoding.TokenModel). Prompts of
unequal length may share a batch: the shorter ones are padded on the right in the cache, and no
token ever sees the padding. Not responsible for text, images on disk, or trajectories.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import torch

from ..model.chat import Prompt
from ..model.network import Network
from .attention import SdpaAttend, block_causal_mask
from .kv_cache import KVCache

# Capacity is rounded up to this many slots, so that a slightly longer prompt needs no new cache.
CAPACITY_STEP = 256


@dataclass(frozen=True, eq=False)
class ImageFeatures:
    """The vision tower's output for one image, and a key that is equal only for equal images."""

    key: Hashable
    grid: tuple[int, int, int]  # time, height, width in patches
    tokens: torch.Tensor  # [t, hidden]
    deepstack: tuple[torch.Tensor, ...]  # per layer [t, hidden]


class Engine:
    """Runs the network over a KV cache; lives in the inference thread."""

    def __init__(self, network: Network):
        self.network = network
        self.config = network.config
        weight = network.text.embed_tokens.weight
        self.device, self.dtype = weight.device, weight.dtype
        self.batch = 0
        self.cache_allocations = 0
        self._cache: KVCache | None = None
        # One key per committed slot of a single prompt; empty after a batch.
        self._cached_tokens: list[Hashable] = []
        self._prompt_slots = 0
        self._next_positions = self._padding = self._last_hidden = None  # set by prefill

    @property
    def backend(self) -> str:
        """What runs: attention, device and precision."""
        return f'sdpa {self.device.type} {str(self.dtype).removeprefix("torch.")}'

    def reset(self) -> None:
        """Forget every cached token."""
        self._cached_tokens = []
        if self._cache is not None:
            self._cache.rollback(0)

    @torch.inference_mode()
    def encode_image(self, key: Hashable, patches, grid: tuple[int, int, int]) -> ImageFeatures:
        """Run the vision tower over one image's patches (float32 array [p, dim])."""
        patches = torch.from_numpy(patches).to(self.device, self.dtype)
        tokens, deepstack = self.network.vision(patches, grid)
        return ImageFeatures(key, grid, tokens, tuple(deepstack))

    @torch.inference_mode()
    def prefill(
        self,
        prompts: Sequence[Prompt],
        images: Sequence[Sequence[ImageFeatures]],
        new_tokens: int,
        *,
        all_logits: bool = False,
    ) -> tuple[int, torch.Tensor | None]:
        """Put prompts into the cache, with room for `new_tokens` answer tokens each.

        A single prompt reuses the cached whole blocks that it shares with the one before it.
        Returns the number of reused tokens and, with `all_logits`, the logits [n, L, vocab].
        """
        lengths = [len(prompt) for prompt in prompts]
        longest = max(lengths)
        block = self.config.block_size
        # The last commit of a run is never needed, but its block is still written while denoising.
        room = -(-new_tokens // block) * block
        fresh = self._reserve(len(prompts), longest + room)
        keys = _token_keys(prompts[0], images[0])
        reused = 0
        if len(prompts) == 1 and not fresh and not all_logits:
            # The last token is always computed again: autoregressive decoding needs its logits.
            shared = _common_prefix(self._cached_tokens, keys)
            reused = min(shared, longest - 1) // block * block
        cache = self._cache
        cache.rollback(reused)
        self._cached_tokens = []  # an exception below must not leave a false record
        lengths_tensor = torch.tensor(lengths, device=self.device)
        x, positions, deepstack = self._embed_prompts(prompts, images, reused, longest)
        mask = block_causal_mask(reused, longest, block, lengths_tensor)
        attend = SdpaAttend(cache, mask)
        hidden = self.network.text(x, positions, attend, deepstack)
        cache.commit(longest - reused)
        self._cached_tokens = keys if len(prompts) == 1 else []
        self._prompt_slots = longest
        self._next_positions = torch.tensor(
            [prompt.next_position for prompt in prompts], device=self.device
        )
        # Padding between a short prompt and its answer stays hidden for good.
        self._padding = None if min(lengths) == longest else lengths_tensor
        rows = torch.arange(len(prompts), device=self.device)
        self._last_hidden = hidden[rows, lengths_tensor - 1 - reused]
        return reused, self.network.head(hidden) if all_logits else None

    @torch.inference_mode()
    def denoise(self, block: torch.Tensor, masked: torch.Tensor) -> torch.Tensor:
        """See BlockModel.denoise."""
        return self.network.head(self._forward(block)[masked])

    @torch.inference_mode()
    def commit(self, block: torch.Tensor) -> None:
        """See BlockModel.commit."""
        self._forward(block)
        self._cache.commit(block.shape[1])

    def first_logits(self) -> torch.Tensor:
        """See TokenModel.first_logits."""
        return self.network.head(self._last_hidden)

    @torch.inference_mode()
    def append(self, tokens: torch.Tensor) -> torch.Tensor:
        """See TokenModel.append."""
        hidden = self._forward(tokens[:, None])
        self._cache.commit(1)
        return self.network.head(hidden[:, 0])

    def _forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Answer tokens [n, L] behind the committed slots → hidden [n, L, h]; keeps nothing."""
        cache = self._cache
        length = tokens.shape[1]
        done = cache.length - self._prompt_slots
        offsets = torch.arange(done, done + length, device=self.device)
        positions = (self._next_positions[:, None] + offsets).expand(3, -1, -1)  # [3, n, L]
        mask = None
        if self._padding is not None:
            slots = torch.arange(cache.length + length, device=self.device)
            visible = (slots < self._padding[:, None]) | (slots >= self._prompt_slots)
            mask = visible[:, None, None]  # [n, 1, 1, end]
        x = self.network.text.embed_tokens(tokens)
        return self.network.text(x, positions, SdpaAttend(cache, mask))

    def _reserve(self, batch: int, slots: int) -> bool:
        """Make sure of a cache that is large enough; return whether it is a new, empty one."""
        cache = self._cache
        if cache is not None and cache.batch == batch and cache.capacity >= slots:
            return False
        limit = self.config.text.max_position
        if slots > limit:
            raise ValueError(
                f'prompt and answer need {slots} tokens, the checkpoint was made for {limit}; '
                'lower max_pixels or max_new_tokens'
            )
        capacity = -(-slots // CAPACITY_STEP) * CAPACITY_STEP
        self._cache = None  # free the old one first
        self._cache = KVCache(self.config.text, batch, capacity, self.dtype, self.device)
        self.batch = batch
        self.cache_allocations += 1
        return True

    def _embed_prompts(self, prompts, images, start: int, end: int):
        """Embed the tokens start … end-1 of each prompt, images in their places.

        Returns x [n, L, hidden], positions [3, n, L] and the deepstack inputs.
        """
        n = len(prompts)
        # Any token may stand in the padding: nothing sees it, and its own row is not read.
        ids = torch.zeros(n, end, dtype=torch.long)
        positions = torch.zeros(3, n, end, dtype=torch.long)
        for row, prompt in enumerate(prompts):
            ids[row, : len(prompt)] = torch.tensor(prompt.token_ids)
            positions[:, row, : len(prompt)] = prompt.positions
        x = self.network.text.embed_tokens(ids[:, start:].to(self.device))
        depth = max((len(image.deepstack) for row in images for image in row), default=0)
        deepstack = [torch.zeros_like(x) for _ in range(depth)]
        for row, (prompt, features) in enumerate(zip(prompts, images, strict=True)):
            for (first, count), image in zip(prompt.images, features, strict=True):
                if image.tokens.shape[0] != count:
                    raise ValueError(
                        f'{count} placeholders for an image of {image.tokens.shape[0]} tokens'
                    )
                skip = max(0, start - first)  # an image may straddle the reused prefix
                if skip < count:
                    place = slice(first + skip - start, first + count - start)
                    x[row, place] = image.tokens[skip:].to(x.dtype)
                    for layer, feature in zip(deepstack, image.deepstack, strict=True):
                        layer[row, place] = feature[skip:].to(x.dtype)
        return x, positions[:, :, start:].to(self.device), deepstack


def _token_keys(prompt: Prompt, images: Sequence[ImageFeatures]) -> list[Hashable]:
    """Return one key per prompt token; equal keys up to some place mean equal K and V there."""
    keys: list[Hashable] = list(prompt.token_ids)
    for (first, count), image in zip(prompt.images, images, strict=True):
        keys[first : first + count] = [(image.key, i) for i in range(count)]
    return keys


def _common_prefix(left: Sequence[Hashable], right: Sequence[Hashable]) -> int:
    """Return how many leading entries two sequences share."""
    for index, (a, b) in enumerate(zip(left, right, strict=False)):
        if a != b:
            return index
    return min(len(left), len(right))
