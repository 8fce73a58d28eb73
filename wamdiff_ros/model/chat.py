"""The chat template: one user turn of texts and images, and the header of the answer.

Qwen's template, written out: <|im_start|>user newline … <|im_end|> newline <|im_start|>assistant
newline, each image as <|vision_start|> placeholders <|vision_end|>. The placeholders are one per
token of the image.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch

from .config import ModelConfig
from .rope import mrope_positions
from .tokenizer import Tokenizer


@dataclass(frozen=True, eq=False)
class Prompt:
    """A prompt as the network takes it."""

    token_ids: tuple[int, ...]
    positions: torch.Tensor  # [3, L] M-RoPE positions
    next_position: int  # of the first answer token, the same on all three axes
    images: tuple[tuple[int, int], ...]  # (start, length) of each image's placeholders, in order

    def __len__(self) -> int:
        return len(self.token_ids)


def user_prompt(
    parts: Sequence[str | int],
    grids: Sequence[tuple[int, int, int]],
    tokenizer: Tokenizer,
    config: ModelConfig,
) -> Prompt:
    """Build a prompt from `parts`: a string is text, an integer the index of an image.

    `grids` holds (time, height, width) in patches of each image. Texts that touch are encoded
    together, as the template would be.
    """
    start, end = tokenizer.control_id('<|im_start|>'), tokenizer.control_id('<|im_end|>')
    merge = config.vision.spatial_merge_size
    token_ids, used = [start], []
    text = 'user\n'
    for part in parts:
        if isinstance(part, str):
            text += part
            continue
        time, height, width = grids[part]
        count = time * (height // merge) * (width // merge)
        token_ids += [*tokenizer.encode(text), config.vision_start_token_id]
        token_ids += [*[config.image_token_id] * count, config.vision_end_token_id]
        used.append(grids[part])
        text = ''
    token_ids += [*tokenizer.encode(text), end, *tokenizer.encode('\n')]
    token_ids += [start, *tokenizer.encode('assistant\n')]
    return prompt_from_ids(token_ids, used, config)


def prompt_from_ids(
    token_ids: Sequence[int], grids: Sequence[tuple[int, int, int]], config: ModelConfig
) -> Prompt:
    """Build a prompt from ids that already hold the image placeholders."""
    if any(time != 1 for time, _, _ in grids):
        raise ValueError(f'prompts hold images only, not videos: grids {list(grids)}')
    vision_ids = frozenset((config.image_token_id, config.video_token_id))
    merge = config.vision.spatial_merge_size
    positions, next_position = mrope_positions(token_ids, vision_ids, grids, merge)
    images = []
    for index, token in enumerate(token_ids):
        if token in vision_ids and (not images or index >= sum(images[-1])):
            time, height, width = grids[len(images)]
            images.append((index, time * (height // merge) * (width // merge)))
    return Prompt(tuple(token_ids), positions, next_position, tuple(images))


def frame_spans(prompt: Prompt) -> list[tuple[int, int]]:
    """Return (start, end) of each image with its two brackets; they lie side by side.

    Raises ValueError for a prompt without images, or with text between them.
    """
    spans = [(first - 1, first + count + 1) for first, count in prompt.images]
    if not spans:
        raise ValueError('the prompt has no image, a checkpoint with window_frames wants one')
    for (_, end), (start, _) in pairwise(spans):
        if start != end:
            raise ValueError(f'text between images, at token {end}; window_frames allows none')
    return spans
