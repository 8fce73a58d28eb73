"""Window mode: of a prompt with several frames of each camera, only the newest are computed.

As in FlashDrive, the keys of a frame are kept as they are before their rotation. When the window
moves on, a frame that stays is written to its new place, rotated for that; its values are
unchanged. Other than there, frames do not see each other or the text before them: that they were
taken one after another is for the text behind them to see. So what is kept of a frame depends on
nothing that could leave the window, and never drifts from a full prefill. A checkpoint has to be
trained like that (`window_frames` in config.json, training/block_layout.py).
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import torch
from torch.nn.functional import scaled_dot_product_attention

from ..model.chat import Prompt
from ..model.network import Network
from ..model.rope import rotate

NONE = slice(0, 0)
# From a start to an end of the prompt: embedded tokens [1, L, hidden], positions [3, 1, L], and
# deepstack inputs.
Embed = Callable[[int, int], tuple[torch.Tensor, torch.Tensor, Sequence[torch.Tensor]]]


@dataclass(frozen=True, eq=False)
class _Frame:
    """Unrotated keys, and values [layers, 1, kv_heads, L, d], of one frame."""

    keys: torch.Tensor
    values: torch.Tensor


class WindowCache:
    """What is kept of the newest prompt's frames; for one engine."""

    def __init__(self, network: Network):
        self._network = network
        self.reset()

    def reset(self) -> None:
        """Forget everything: all frames of the next prompt are computed."""
        self._frames: dict[tuple[Hashable, ...], _Frame] = {}  # by the keys of their tokens

    def fill(
        self,
        cache,
        text,
        prompt: Prompt,
        spans: Sequence[tuple[int, int]],
        keys: Sequence[Hashable],
        embed: Embed,
    ) -> tuple[int, int]:
        """Append the prompt's frames to `cache`, which holds the tokens before them.

        `spans` are those of `frame_spans`, `keys` one per token, equal only for equal tokens;
        `text` is what runs the layers. Returns how many tokens were known, and how many frames
        were not.
        """
        wanted = [tuple(keys[start:end]) for start, end in spans]
        frames = {key: self._frames[key] for key in wanted if key in self._frames}
        reused = sum(len(key) for key in wanted if key in frames)
        computed = 0
        for key, (start, end) in zip(wanted, spans, strict=True):
            if key not in frames:  # the same picture twice is one frame in two places
                frames[key] = self._compute(text, *embed(start, end))
                computed += 1
        self._frames = frames
        self._write(cache, prompt, spans[0][0], spans[-1][1], [frames[key] for key in wanted])
        return reused, computed

    def _compute(self, text, x, positions, deepstack) -> _Frame:
        """Run the layers over the tokens of one frame, which see only each other."""
        # Always at the same place, so that rounding depends on nothing else either.
        cos, sin = self._network.text.rope(positions - positions[:, :, :1])
        alone = _Alone(cos, sin)
        # Rotated by nothing here, and by their places in there.
        text.run(x, torch.ones_like(cos), torch.zeros_like(sin), alone, deepstack, NONE)
        return _Frame(torch.stack(alone.keys), torch.stack(alone.values))

    def _write(self, cache, prompt: Prompt, start: int, end: int, frames: list[_Frame]) -> None:
        """Append all frames to the cache at once, rotated for the places start … end-1."""
        keys = torch.cat([frame.keys for frame in frames], dim=3)
        values = torch.cat([frame.values for frame in frames], dim=3)
        positions = prompt.positions[:, None, start:end].to(keys.device)
        keys = rotate(keys, *self._network.text.rope(positions))
        write = cache.prompt_attend(start, end, end, [len(prompt)], NONE)
        for layer, (key, value) in enumerate(zip(keys, values, strict=True)):
            write(layer, key[:, :, :0], key, value)
        cache.commit(end - start)


class _Alone:
    """An Attend of tokens that see only each other; it is given unrotated queries and keys.

    Keeps the keys, unrotated, and the values.
    """

    def __init__(self, cos: torch.Tensor, sin: torch.Tensor):
        self._cos, self._sin = cos, sin
        self.keys: list[torch.Tensor] = []
        self.values: list[torch.Tensor] = []

    def __call__(self, layer, query, key, value) -> torch.Tensor:
        """See model.text.Attend."""
        self.keys.append(key)
        self.values.append(value)
        if query.shape[2] == 0:  # only keys and values are wanted
            return query
        query, key = (rotate(x, self._cos, self._sin) for x in (query, key))
        return scaled_dot_product_attention(query, key, value, enable_gqa=True)
