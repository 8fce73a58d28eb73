"""Which tokens of an answer are masked in training: evenly, or as decoding will meet them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ..decoding.unmasking import Unmasking, choose_slots
from ..model.tokenizer import Tokenizer
from .block_layout import Layout
from .slips import Slips

LOWEST_NOISE = 1e-3
MOST_STEPS = 2  # of decoding before a block is met: after three, a number's digits are complete


@dataclass(frozen=True, eq=False)
class Noise:
    """Makes noisy copies of clean answers.

    Of all noisy blocks a share `fully_masked` shows nothing, and a share `in_turn` what the rule
    `leading` of decoding/unmasking.py shows after none to two steps. The others are masked as in
    WAM-Diff2: each token with the probability of its block's level t, which is spread evenly over
    the blocks of a copy.
    """

    layout: Layout
    mask_token_id: int
    # Of each token of the vocabulary, whether an answer may hinge on it; the others, punctuation,
    # are always sure. Needed for `in_turn`.
    content: np.ndarray | None = None
    slips: Slips | None = None  # in the blocks masked in turn

    def add(
        self, answer: Sequence[int], random: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return noisy copies of a filled answer, and of each token t, its weight and its label.

        t is the noise level. All [copies, a].
        """
        layout, size = self.layout, self.layout.block_size
        clean = np.asarray(answer, np.int64).reshape(-1, size)
        copies = np.tile(clean, (layout.noisy_copies, 1, 1))  # [copies, blocks, size]
        levels = np.stack([stratified_noise(len(clean), random) for _ in copies])
        kind = random.random(levels.shape)
        fully = kind < layout.fully_masked
        noise = np.where(fully, 1.0, levels)[..., None].repeat(size, axis=-1)
        masked, weights = random.random(noise.shape) <= noise, np.ones(noise.shape)
        turns = ~fully & (kind < layout.fully_masked + layout.in_turn)
        if turns.any():
            left, waits = masked_in_turn(self.content[copies[turns]], random)
            masked[turns], noise[turns] = left, left.mean(axis=1, keepdims=True)
            weights[turns] = np.where(waits, layout.waiting_weight, 1.0)
        shown, labels = copies, copies
        if self.slips is not None:
            # Numbers of the other blocks count as shown, and those stay as they are.
            hidden = masked & turns[..., None]
            pairs = [self.slips.add(clean, one, random) for one in hidden]
            shown, labels = map(np.stack, zip(*pairs, strict=True))
        noisy = np.where(masked, self.mask_token_id, shown)
        return tuple(part.reshape(len(copies), -1) for part in (noisy, noise, weights, labels))


def stratified_noise(blocks: int, random: np.random.Generator) -> np.ndarray:
    """Return one noise level t in (0, 1] per block, evenly spread, in any order."""
    u = LOWEST_NOISE + (1 - LOWEST_NOISE) * random.random()
    return random.permutation((u + np.arange(blocks)) / blocks)


def masked_in_turn(
    content: np.ndarray, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return what is left masked of blocks [n, B] after up to two steps of the rule `leading`.

    And which of that the next step would not unmask. Which slots a model will be unsure of is not
    known beforehand: some of the `content`, more in one block than in another. A block keeps at
    least one masked slot.
    """
    share = np.sqrt(random.random((len(content), 1)))
    unsure = torch.from_numpy(content & (random.random(content.shape) < share))
    steps = torch.from_numpy(random.integers(MOST_STEPS + 1, size=(len(content), 1)))
    masked = torch.ones(content.shape, dtype=torch.bool)
    # Once more than it may go on: what that leaves waits.
    for step in range(MOST_STEPS + 1):
        confidence = torch.where(masked, torch.where(unsure, 0.0, 1.0), -1.0)
        left = masked & ~choose_slots(Unmasking.LEADING, 0.5, confidence, masked, 0)
        goes_on = (step < steps) & left.any(dim=1, keepdim=True)
        masked = torch.where(goes_on, left, masked)
    return masked.numpy(), left.numpy()


def token_texts(tokenizer: Tokenizer, vocab_size: int) -> list[str]:
    """Return the text of every token of the vocabulary."""
    return [tokenizer.decode([token]) for token in range(vocab_size)]


def content_tokens(tokenizer: Tokenizer, vocab_size: int) -> np.ndarray:
    """Return which tokens hold a letter, a digit or a sign, bool [vocab_size]."""
    texts = token_texts(tokenizer, vocab_size)
    return np.array([any(c.isalnum() or c in '+-' for c in text) for text in texts])
