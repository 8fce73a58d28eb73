"""One network with one KV cache: prefill with prefix reuse, denoise, commit, append.

It implements what the decoders ask for (decoding.BlockModel and decoding.TokenModel). Prompts of
unequal length may share a batch: the shorter ones are padded on the right in the cache, and no
token ever sees the padding. One prompt may have several answers, which share its slots. Not
responsible for text, images on disk, or trajectories.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from ..model.chat import Prompt, frame_spans
from ..model.network import Network
from ..model.text import ALL
from .attention import AttentionBackend, SdpaBackend
from .fused_text import FusedText
from .graph_runner import GraphRunner
from .kv_cache import KVCache
from .options import PLAIN, EngineOptions
from .products import packed_head
from .static_forward import BUCKET, StaticForward, static_vision
from .window_cache import WindowCache

# Capacity is rounded up to this many slots, so that a slightly longer prompt needs no new cache.
CAPACITY_STEP = 256
NONE = slice(0, 0)  # of the last layer's rows: only its keys and values are wanted
LAST = slice(-1, None)


@dataclass(frozen=True, eq=False)
class ImageFeatures:
    """The vision tower's output for one image, and a key that is equal only for equal images."""

    key: Hashable
    grid: tuple[int, int, int]  # time, height, width in patches
    tokens: torch.Tensor  # [t, hidden]
    deepstack: tuple[torch.Tensor, ...]  # per layer [t, hidden]


class Vision(Protocol):
    """What encodes images in place of the network's tower; `name` says what runs."""

    name: str

    def __call__(
        self, patches: torch.Tensor, grid: tuple[int, int, int]
    ) -> tuple[torch.Tensor, Sequence[torch.Tensor]]:
        """Patches [p, dim] of an image → tokens and deepstack features; see VisionTower."""
        ...


class Engine:
    """Runs the network over a KV cache; lives in the inference thread."""

    def __init__(
        self,
        network: Network,
        options: EngineOptions = PLAIN,
        *,
        attention: AttentionBackend | None = None,
        vision: Vision | None = None,
        runner: GraphRunner | None = None,
        progress: Callable[[str], None] = lambda text: None,
    ):
        """Without options the plain reference; fused weights take over those of `network`.

        `attention` is torch's own by default; `vision` encodes images in place of the network's
        tower; `runner` replaces the one that `options.runtime` asks for; `progress` hears of
        captures. A checkpoint with `window_frames` runs in window mode, see window_cache.py.
        """
        self.network = network
        self.config = network.config
        self.options = options
        weight = network.text.embed_tokens.weight
        self.device, self.dtype = weight.device, weight.dtype
        self.batch = 0  # answers that are decoded together
        self.cache_allocations = 0
        self.prefill_forwards = 0  # of the newest prefill
        # Told of every forward: its stage and its rows. For measuring.
        self.after_forward: Callable[[str, int], None] = lambda stage, rows: None
        self._attention = SdpaBackend() if attention is None else attention
        graph = options.runtime == 'graph'
        if options.runtime == 'auto':
            graph = self.device.type == 'cuda'  # on a CPU compiling wins too little
        if runner is None and graph:
            runner = GraphRunner(self.device, progress=progress)
        self._runner = runner
        # A compiler packs by itself.
        rows = network.config.block_size if options.packed_weights and runner is None else None
        self._text = FusedText(network.text, rows) if options.fused_weights else network.text
        self._head = packed_head(network, rows)
        self._vision = vision
        self._window = WindowCache(network) if network.config.window_frames > 1 else None
        self._static: StaticForward | None = None  # over the newest cache of prompts
        self._places = {}  # of patches, per grid
        self._cache: KVCache | None = None  # of the prompts
        self._forks: KVCache | None = None  # of the answers, where several share one prompt
        self._answers: KVCache | None = None  # where answers are written: one of the two
        # One key per committed slot of a single prompt; empty after a batch.
        self._cached_tokens: list[Hashable] = []
        self._prompt_slots = 0
        self._padded = False  # some prompts are shorter than others
        self._cos = self._sin = self._last_hidden = None  # set by prefill

    @property
    def backend(self) -> str:
        """What runs: attention, device, precision and quantisation."""
        words = (
            self._attention.name,
            *(['graph'] if self._runner else []),
            self.device.type,
            str(self.dtype).removeprefix('torch.'),
        )
        vision = f'vision: {self._vision.name}' if self._vision else ''
        return ' '.join((*words, *filter(None, [self.network.quantised, vision])))

    @torch.inference_mode()
    def reset(self) -> None:
        """Forget every cached token, also what is left of it in the buffers."""
        self._cached_tokens = []
        if self._window is not None:
            self._window.reset()
        for cache in filter(None, (self._cache, self._forks)):
            cache.clear()

    @torch.inference_mode()
    def encode_image(self, key: Hashable, patches, grid: tuple[int, int, int]) -> ImageFeatures:
        """Run the vision tower over one image's patches (float32 array [p, dim])."""
        patches = torch.from_numpy(patches)
        if self._vision is not None:
            tokens, deepstack = self._vision(patches.to(self.device), grid)
        else:
            tokens, deepstack = self._run_tower(patches.to(self.device, self.dtype), grid)
        self.after_forward('vision', len(patches))
        return ImageFeatures(key, grid, tokens, tuple(deepstack))

    def _run_tower(self, patches: torch.Tensor, grid: tuple[int, int, int]):
        tower = self.network.vision
        if grid not in self._places:
            self._places[grid] = tower.places(*grid[1:])
        places = self._places[grid]
        if self._runner is None:
            return tower(patches, grid, places=places)
        return static_vision(self._runner, tower, patches, grid, places)

    @torch.inference_mode()
    def prefill(
        self,
        prompts: Sequence[Prompt],
        images: Sequence[Sequence[ImageFeatures]],
        new_tokens: int,
        *,
        rollouts: int = 1,
        all_logits: bool = False,
    ) -> tuple[int, torch.Tensor | None]:
        """Put prompts into the cache, with room for `new_tokens` answer tokens each.

        A single prompt reuses the cached segments that it shares with the one before it, and may
        get several answers (`rollouts`), which are then decoded together. Returns the number of
        reused tokens and, with `all_logits`, the logits [n, L, vocab].
        """
        lengths = [len(prompt) for prompt in prompts]
        n, longest = len(lengths), max(lengths)
        if n > 1 and rollouts > 1:
            raise ValueError(f'{rollouts} rollouts of {n} prompts; several need a single prompt')
        if self._window is not None and (n > 1 or all_logits):
            raise ValueError(f'{n} prompts; window mode takes one, and gives no logits of it')
        block = self.config.block_size
        # The last commit of a run is never needed, but its block is still written while denoising.
        room = -(-new_tokens // block) * block
        limit = self.config.text.max_position
        if longest + room > limit:
            raise ValueError(
                f'prompt and answer need {longest + room} tokens, the checkpoint was made for '
                f'{limit}; lower max_pixels or max_new_tokens'
            )
        room_for_padding = 0 if self._runner is None else BUCKET
        self._cache, fresh = self._reserved(self._cache, n, longest + room + room_for_padding)
        if fresh and self._runner is not None:
            self._runner.clear('prefill', 'block')  # they wrote to the old cache
            self._static = self._attention.static_forward(
                self.network, self._text, self._cache, self._runner
            )
        keys = _token_keys(prompts[0], images[0])
        reusing = n == 1 and self.options.prefix_reuse and not all_logits
        shared = 0
        if reusing and not fresh:
            shared = _common_prefix(self._cached_tokens, keys)
        # An exception below must not leave a false record.
        self._cached_tokens = []
        ends, computed = [longest], 0
        if self._window is not None:
            if not reusing:
                self._window.reset()
            reused, start, computed = self._fill_window(prompts, images, keys, shared)
        else:
            if reusing:
                ends = segment_ends(prompts[0], block)
            # The last segment is always computed: decoding may need its last hidden state.
            reused = start = max((end for end in ends[:-1] if end <= shared), default=0)
            self._cache.rollback(reused)
        ends = [end for end in ends if end > start]
        self.prefill_forwards = computed + len(ends)
        for end in ends:
            rows = ALL
            if self.options.last_rows and n == 1 and not all_logits:
                rows = LAST if end == longest else NONE
            hidden = self._prefill_segment(prompts, images, start, end, rows)
            self.after_forward('prefill', end - start)
            start = end
        self._cached_tokens = keys if n == 1 else []
        self._prompt_slots = longest
        self._padded = min(lengths) < longest
        following = torch.tensor([[p.next_position] for p in prompts], device=self.device)
        positions = (following + torch.arange(room, device=self.device)).expand(3, -1, -1)
        self._cos, self._sin = self.network.text.rope(positions)
        self._last_hidden = (
            hidden[:, -1] if n == 1 else hidden[list(range(n)), [k - 1 for k in lengths]]
        )
        self._fork(rollouts, room)
        return reused, self._head(hidden) if all_logits else None

    @torch.inference_mode()
    def denoise(
        self, block: torch.Tensor, masked: torch.Tensor, before: torch.Tensor | None = None
    ) -> torch.Tensor:
        """See BlockModel.denoise."""
        if before is not None and not self.options.folded_commit:
            self.commit(before)
            before = None
        skip, tokens = 0, block
        if before is not None:
            skip, tokens = before.shape[1], torch.cat((before, block), dim=1)
        if self._can_be_static():
            logits = self._static.block_logits(tokens, *self._rotations(tokens.shape[1]), skip)
            self._answers.commit(skip)
            self.after_forward('answer', tokens.shape[1])
            return logits
        rows = ALL
        if self.options.last_rows:
            # In its first step a block is all masked; later ones differ between answers.
            first = skip or block.shape[1] > self.config.block_size
            whole = first or self.batch > 1
            rows = slice(skip, None) if whole else masked[0].nonzero()[:, 0]
        hidden = self._forward(tokens, rows)
        if skip:
            self._answers.commit(skip)
        if isinstance(rows, torch.Tensor):
            return self._head(hidden[0])
        hidden = hidden[:, -block.shape[1] :]
        return self._head(hidden[masked])

    @torch.inference_mode()
    def commit(self, block: torch.Tensor) -> None:
        """Append the clean block [n, B] to what later blocks see."""
        self._forward(block, NONE if self.options.last_rows else ALL)
        self._answers.commit(block.shape[1])

    def first_logits(self) -> torch.Tensor:
        """See TokenModel.first_logits."""
        return self._head(self._last_hidden).expand(self.batch, -1)

    @torch.inference_mode()
    def append(self, tokens: torch.Tensor) -> torch.Tensor:
        """See TokenModel.append."""
        hidden = self._forward(tokens[:, None])
        self._answers.commit(1)
        return self._head(hidden[:, 0])

    def _forward(self, tokens: torch.Tensor, rows: slice | torch.Tensor = ALL) -> torch.Tensor:
        """Answer tokens [n, L] behind the committed slots → hidden [n, rows, h]; keeps nothing.

        L is one token, or whole blocks, each of which sees those before it.
        """
        cache, length = self._answers, tokens.shape[1]
        cos, sin = self._rotations(length)
        size = min(self.config.block_size, length)
        groups = [(size, cache.length + end) for end in range(size, length + 1, size)]
        if isinstance(rows, slice):
            last = groups[len(groups) - len(range(length)[rows]) // size :]
        else:
            last = [(len(rows), cache.length + length)]
        attend = cache.blocks_attend(groups, last)
        x = self.network.text.embed_tokens(tokens)
        hidden = self._text.run(x, cos, sin, attend, (), rows)
        self.after_forward('answer', length)
        return hidden

    def _rotations(self, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return cos and sin [n, 1, L, head_dim] of the next `length` answer tokens."""
        done = self._answers.length - self._prompt_slots
        return self._cos[:, :, done : done + length], self._sin[:, :, done : done + length]

    def _can_be_static(self) -> bool:
        """Return whether the forwards of this batch may be captured; forks and padding may not."""
        return self._static is not None and self._answers is self._cache and not self._padded

    def _prefill_segment(self, prompts, images, start: int, end: int, rows: slice) -> torch.Tensor:
        """Put the tokens start … end-1 of each prompt into the cache → hidden [n, rows, h]."""
        x, positions, deepstack = self._embed_prompts(prompts, images, start, end)
        if self._static is not None and len(prompts) == 1:
            rotations = self.network.text.rope(positions)
            wanted = NONE if rows is NONE else ALL
            hidden = self._static.prefill(x, *rotations, deepstack, wanted)
            self._cache.commit(end - start)
            return hidden[:, rows]
        attend = self._cache.prompt_attend(
            start, end, self.config.block_size, [len(prompt) for prompt in prompts], rows
        )
        cos, sin = self.network.text.rope(positions)
        hidden = self._text.run(x, cos, sin, attend, deepstack, rows)
        self._cache.commit(end - start)
        return hidden

    def _fill_window(self, prompts, images, keys, shared: int) -> tuple[int, int, int]:
        """Have the text before the frames, the frames and nothing else in the cache.

        `shared` tokens are there already. Returns how many were not computed, where the frames
        end, and how many forwards that took.
        """
        spans = frame_spans(prompts[0])
        head, frames_end = spans[0][0], spans[-1][1]
        reused = next(end for end in (frames_end, head, 0) if end <= shared)
        self._cache.rollback(reused)
        forwards = 0
        if reused < head:
            self._prefill_segment(prompts, images, 0, head, NONE)
            self.after_forward('prefill', head)
            forwards = 1
        if reused < frames_end:
            known, frames = self._window.fill(
                self._cache, self._text, prompts[0], spans, keys,
                lambda start, end: self._embed_prompts(prompts, images, start, end),
            )  # fmt: skip
            self.after_forward('prefill', frames_end - head - known)
            reused, forwards = reused + known, forwards + frames
        return reused, frames_end, forwards

    def _fork(self, rollouts: int, room: int) -> None:
        """Let `rollouts` answers go on from the prompts in the cache; one goes on in place."""
        if rollouts == 1:
            self._answers = self._cache
        else:
            self._forks, _ = self._reserved(self._forks, rollouts, room)
            self._answers = self._cache.fork(self._forks)
        self.batch = self._answers.batch

    def _reserved(self, cache: KVCache | None, batch: int, slots: int) -> tuple[KVCache, bool]:
        """Return a cache that is large enough, and whether it is a new one."""
        if cache is not None and cache.batch == batch and cache.capacity >= slots:
            return cache, False
        capacity = -(-slots // CAPACITY_STEP) * CAPACITY_STEP
        self.cache_allocations += 1
        cache = self._attention.cache(self.config.text, batch, capacity, self.dtype, self.device)
        return cache, True

    def _embed_prompts(self, prompts, images, start: int, end: int):
        """Embed the tokens start … end-1 of each prompt, images in their places.

        Returns x [n, L, hidden], positions [3, n, L] and the deepstack inputs.
        """
        n = len(prompts)
        # Any token may stand in the padding: nothing sees it, and its own row is not read.
        ids = torch.zeros(n, end, dtype=torch.long)
        positions = torch.zeros(3, n, end, dtype=torch.long)
        for row, prompt in enumerate(prompts):
            length = min(len(prompt), end)
            ids[row, :length] = torch.tensor(prompt.token_ids[:length])
            positions[:, row, :length] = prompt.positions[:, :length]
        x = self.network.text.embed_tokens(ids[:, start:].to(self.device))
        depth = max((len(image.deepstack) for row in images for image in row), default=0)
        deepstack = [torch.zeros_like(x) for _ in range(depth)]
        for row, (prompt, features) in enumerate(zip(prompts, images, strict=True)):
            for (first, count), image in zip(prompt.images, features, strict=True):
                if image.tokens.shape[0] != count:
                    raise ValueError(
                        f'{count} placeholders for an image of {image.tokens.shape[0]} tokens'
                    )
                # An image may straddle either end.
                part = slice(max(0, start - first), min(count, end - first))
                if part.start < part.stop:
                    place = slice(first + part.start - start, first + part.stop - start)
                    x[row, place] = image.tokens[part].to(x.dtype)
                    for layer, feature in zip(deepstack, image.deepstack, strict=True):
                        layer[row, place] = feature[part].to(x.dtype)
        return x, positions[:, :, start:].to(self.device), deepstack


def segment_ends(prompt: Prompt, block_size: int) -> list[int]:
    """Return where the segments end in which a prompt is prefilled and reused, in order.

    The text before the images, then each image, as far as they fill whole chunks of `block_size`,
    then the rest. How a kernel rounds depends on the shapes that it is given, so what is reused is
    equal to the last bit only if a cold start computes it in the same pieces.
    """
    ends = {first // block_size * block_size for first, _ in prompt.images[:1]}
    ends |= {(first + count) // block_size * block_size for first, count in prompt.images}
    return [*sorted(end for end in ends if 0 < end < len(prompt)), len(prompt)]


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
