"""Window mode (FlashDrive): of a prompt with several frames, only the newest is computed.

Keys are kept as they are before their rotation, frame by frame. When the window moves on, a frame
that stays gets the positions of its new place and its keys are rotated for them; its values are
unchanged. So the prompt's first layer is exact. Further layers still carry what a frame saw when
it was computed, frames that have left the window among it: that drifts from a full prefill, and
only checkpoints that were trained for it may run this way (`window_frames` in config.json).
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import torch

from ..model.chat import Prompt
from ..model.config import CheckpointError
from ..model.network import Network
from ..model.rope import rotate
from ..model.text import Attend

NONE = slice(0, 0)
# From a start to an end of the prompt: embedded tokens [1, L, hidden], positions [3, 1, L], and
# deepstack inputs.
Embed = Callable[[int, int], tuple[torch.Tensor, torch.Tensor, Sequence[torch.Tensor]]]


@dataclass(frozen=True, eq=False)
class _Segment:
    """Unrotated keys, and values [layers, 1, kv_heads, L, d], of the head or of one frame."""

    keys: torch.Tensor
    values: torch.Tensor


class WindowCache:
    """What is kept of the newest prompt's head and frames; for one engine."""

    def __init__(self, network: Network):
        frames = network.config.window_frames
        if frames < 2:
            raise CheckpointError(
                f'window mode needs a checkpoint that was trained for it; its config.json says '
                f'window_frames {frames}, wanted 2 or more'
            )
        self._network = network
        self.reset()

    def reset(self) -> None:
        """Forget everything: the next prompt is computed from its start."""
        self._head: tuple[Hashable, ...] = ()
        self._segments: dict[tuple[Hashable, ...], _Segment] = {}  # by the keys of their tokens

    def fill(
        self,
        cache,
        text,
        prompt: Prompt,
        keys: Sequence[Hashable],
        shared: int,
        embed: Embed,
    ) -> tuple[int, int]:
        """Have the prompt's head and frames, and nothing else, in `cache`.

        `keys` holds one per token, equal only for equal tokens; the first `shared` are those of
        what `cache` holds. `text` is what runs the layers. Returns how many tokens were not
        computed, and where the frames end. Raises ValueError for a prompt whose frames do not lie
        side by side in whole chunks.
        """
        spans = frame_spans(prompt, self._network.config.block_size)
        frames_end = spans[-1][1]
        if shared >= frames_end:  # another question about the same frames
            cache.rollback(frames_end)
            return frames_end, frames_end
        cache.rollback(0)
        head = tuple(keys[: prompt.images[0][0] - 1])
        if head != self._head:  # which every frame has seen
            self._head, self._segments = head, {}
        segments: dict[tuple[Hashable, ...], _Segment] = {}
        reused = 0
        for start, end in spans:
            key = tuple(keys[start:end])
            known = self._segments.get(key)
            if known is None:
                segments[key] = self._compute(cache, text, prompt, start, end, embed)
            else:
                segments[key] = known
                self._restore(cache, prompt, start, end, known)
                reused += end - start
        self._segments = segments
        return reused, frames_end

    def _compute(self, cache, text, prompt, start: int, end: int, embed: Embed) -> _Segment:
        """Run the layers over the tokens start … end-1 and keep their unrotated keys."""
        x, positions, deepstack = embed(start, end)
        cos, sin = self._network.text.rope(positions)
        inner = cache.prompt_attend(
            start, end, self._network.config.block_size, [len(prompt)], NONE
        )
        recorder = _Recorder(inner, cos, sin)
        # Rotated by nothing here, and by their places in the recorder.
        text.run(x, torch.ones_like(cos), torch.zeros_like(sin), recorder, deepstack, NONE)
        cache.commit(end - start)
        return _Segment(torch.stack(recorder.keys), torch.stack(recorder.values))

    def _restore(self, cache, prompt: Prompt, start: int, end: int, segment: _Segment) -> None:
        """Write a kept segment to the slots start … end-1, rotated for these places."""
        positions = prompt.positions[:, None, start:end].to(segment.keys.device)
        cos, sin = self._network.text.rope(positions)
        attend = cache.prompt_attend(
            start, end, self._network.config.block_size, [len(prompt)], NONE
        )
        for layer, (key, value) in enumerate(zip(segment.keys, segment.values, strict=True)):
            no_query = key[:, :, :0]
            attend(layer, no_query, rotate(key, cos, sin), value)
        cache.commit(end - start)


class _Recorder:
    """An Attend that is given unrotated queries and keys, and keeps the keys and values."""

    def __init__(self, inner: Attend, cos: torch.Tensor, sin: torch.Tensor):
        self._inner = inner
        self._cos, self._sin = cos, sin
        self.keys: list[torch.Tensor] = []
        self.values: list[torch.Tensor] = []

    def __call__(self, layer, query, key, value) -> torch.Tensor:
        """See model.text.Attend."""
        self.keys.append(key)
        self.values.append(value)
        if query.shape[2]:
            query = rotate(query, self._cos, self._sin)
        return self._inner(layer, query, rotate(key, self._cos, self._sin), value)


def frame_spans(prompt: Prompt, block_size: int) -> list[tuple[int, int]]:
    """Return (start, end) of the head and of each frame, an image between its two brackets.

    Chunks of `block_size` count from the prompt's start and see each other as a whole, so none may
    hold parts of two frames, or the window could not move.
    """
    if not prompt.images:
        raise ValueError('window mode: the prompt has no image')
    frames = [(first - 1, first + count + 1) for first, count in prompt.images]
    spans = [(0, frames[0][0]), *frames]
    for (_, before), (start, end) in zip(spans, frames, strict=False):
        if start != before:
            raise ValueError(f'window mode: text between frames, at token {before}')
        for place in (start, end):
            if place % block_size:
                raise ValueError(
                    f'window mode: a frame begins or ends at token {place}, inside of a chunk of '
                    f'{block_size}; change the prompt or max_pixels'
                )
    return [span for span in spans if span[0] < span[1]]
