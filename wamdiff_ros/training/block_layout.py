"""How samples lie in a training batch: [prefix | answer], or [prefix | clean | noisy …].

Autoregressive (block size 1): a causal sequence in which each token predicts the next one.
Block diffusion (WAM-Diff2, stage I): the noisy copy of each block is denoised from the clean
blocks before it, for all blocks of an answer in one forward; labels are not shifted. The answer
runs to its end-of-sequence token and is filled with that token to whole blocks, so that the model
learns to end an answer to the block's end. More than one noisy copy may follow the clean one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch

from ..model.chat import Prompt, frame_spans

PREFIX, CLEAN, PADDING = 0, 1, -1  # noisy copies are 2, 3, …


@dataclass(frozen=True)
class Layout:
    """How a run lays out and masks its samples; block size 1 is next-token prediction."""

    block_size: int
    noisy_copies: int = 1
    teacher_block_size: int | None = None
    # Shares of all noisy blocks, see noise.py.
    fully_masked: float = 0.0
    in_turn: float = 0.0
    # What a slot counts for in the loss that waits for one before it, in blocks masked in turn.
    waiting_weight: float = 1.0
    slip_mps: float = 0.0  # of numbers that begin wrongly there, see slips.py
    window_frames: int = 1  # of each camera; above 1 frames see only themselves


@dataclass(frozen=True, eq=False)
class BlockBatch:
    """Samples of unequal length, padded on the right to S tokens, and what is learnt from them."""

    token_ids: torch.Tensor  # [n, S]; noisy slots may hold the mask token
    positions: torch.Tensor  # [3, n, S]; a noisy token has its clean twin's
    # [n or 1, 1, S, S], True: the row sees the column; None: causal.
    visible: torch.Tensor | None
    teacher_visible: torch.Tensor | None  # the same under the teacher's block size
    rows: slice  # the R columns among which all slots lie
    # The m slots whose logits are wanted: flat indexes into n * R, their clean tokens, their
    # block's noise level t, and their weight over (n * noisy copies * tokens of the answer).
    slots: torch.Tensor  # [m]
    labels: torch.Tensor  # [m]
    noise: torch.Tensor  # [m]
    shares: torch.Tensor  # [m]


def fill_answer(answer: Sequence[int], eos_token_id: int, block_size: int) -> list[int]:
    """End an answer and fill it to whole blocks with the end-of-sequence token."""
    ended = [*answer, eos_token_id]
    return ended + [eos_token_id] * (-len(ended) % block_size)


def token_kinds(
    prefix: int,
    answer: int,
    block_size: int,
    copies: int = 1,
    frames: Sequence[tuple[int, int]] = (),
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return kind and block number [prefix + (1 + copies) * answer] of each token of one sample.

    Blocks of the prefix count from its start and the last may be short; the answer starts a new
    one. A noisy block has its clean twin's number. Each of the `frames`, (start, end), is one
    block as a whole: the one that it ends in.
    """
    prefix_blocks = torch.arange(prefix) // block_size
    for start, end in frames:
        prefix_blocks[start:end] = (end - 1) // block_size
    answer_blocks = torch.arange(answer) // block_size + (-(-prefix // block_size))
    kinds = torch.tensor([CLEAN + copy for copy in range(1 + copies)]).repeat_interleave(answer)
    kinds = torch.cat((torch.full((prefix,), PREFIX), kinds))
    return kinds, torch.cat((prefix_blocks, answer_blocks.repeat(1 + copies)))


def visibility(
    kinds: torch.Tensor, blocks: torch.Tensor, frames: Sequence[tuple[int, int]] = ()
) -> torch.Tensor:
    """Return who sees whom, bool [S, S], from kind and block number [S] of each token.

    Prefix and clean tokens see all such tokens up to their own block. Noisy tokens see those
    before their block, and their own copy's block. Padding sees itself (a row needs something).
    `frames` of a window, (start, end), see only themselves, and the text before them does not see
    them (runtime/window_cache.py).
    Not as the reference's collate writes it, by which clean rows see noisy keys: decoding has no
    such thing.
    """
    row, column = kinds[:, None], kinds[None, :]
    block_row, block_column = blocks[:, None], blocks[None, :]
    context = (column == PREFIX) | (column == CLEAN)
    plain = ((row == PREFIX) | (row == CLEAN)) & context & (block_column <= block_row)
    noisy = (row > CLEAN) & (
        (context & (block_column < block_row)) | ((column == row) & (block_column == block_row))
    )
    for start, end in frames:
        plain[:start, start:end] = False
        plain[start:end, :start] = False
        plain[start:end, end:] = False
    return plain | noisy | torch.eye(len(kinds), dtype=torch.bool)


@lru_cache(maxsize=256)
def _padded_visibility(
    prefix: int,
    answer: int,
    block_size: int,
    copies: int,
    size: int,
    frames: tuple[tuple[int, int], ...],
) -> torch.Tensor:
    kinds, blocks = token_kinds(prefix, answer, block_size, copies, frames)
    padding = (0, size - len(kinds))
    pad = torch.nn.functional.pad
    kinds, blocks = pad(kinds, padding, value=PADDING), pad(blocks, padding, value=-1)
    return visibility(kinds, blocks, frames)


def batch_visibility(
    lengths: Sequence[tuple[int, int]],
    block_size: int,
    copies: int,
    size: int,
    frames: Sequence[tuple[tuple[int, int], ...]] = (),
) -> torch.Tensor:
    """Return who sees whom, bool [n, 1, S, S], or [1, 1, S, S] for samples of equal shape.

    lengths: tokens in the prefix and in the filled answer of each sample; frames: those of its
    window, see `visibility`.
    """
    shapes = [
        (*pair, block_size, copies, size, spans)
        for pair, spans in zip(lengths, frames or [()] * len(lengths), strict=True)
    ]
    if len(set(shapes)) == 1:
        shapes = shapes[:1]
    masks = [_padded_visibility(*shape) for shape in shapes]
    return torch.stack(masks)[:, None]


def lay_out_blocks(
    prompts: Sequence[Prompt],
    answers: Sequence[Sequence[int]],
    noisy: Sequence[np.ndarray],
    noise: Sequence[np.ndarray],
    block_size: int,
    mask_token_id: int,
    teacher_block_size: int | None = None,
    weights: Sequence[np.ndarray] | None = None,
    labels: Sequence[np.ndarray] | None = None,
    window: bool = False,
) -> BlockBatch:
    """Lay out samples for block diffusion; with `window` frames see only themselves.

    Per sample: its answer [a], filled to whole blocks; its noisy copies [copies, a], in which the
    mask token marks what is to be predicted; the noise level t of each of their tokens, and what
    it counts for in the loss, 1 by default, and what is to be learnt, by default the answer.
    """
    n, copies = len(prompts), len(noisy[0])
    lengths = [(len(p), len(a)) for p, a in zip(prompts, answers, strict=True)]
    size = max(p + (1 + copies) * a for p, a in lengths)
    rows = slice(min(p + a for p, a in lengths), size)
    ids = np.full((n, size), mask_token_id, np.int64)
    positions = np.zeros((3, n, size), np.int64)
    slots, wanted, levels, shares = [], [], [], []
    for row, (prompt, answer) in enumerate(zip(prompts, answers, strict=True)):
        p, a = lengths[row]
        end = p + (1 + copies) * a
        clean = np.asarray(answer, np.int64)
        ids[row, :p] = prompt.token_ids
        ids[row, p : p + a] = clean
        ids[row, p + a : end] = noisy[row].reshape(-1)
        positions[:, row, :p] = prompt.positions
        positions[:, row, p:end] = np.tile(prompt.next_position + np.arange(a), 1 + copies)
        masked = np.flatnonzero(noisy[row].reshape(-1) == mask_token_id)
        slots.append(row * (rows.stop - rows.start) + p + a - rows.start + masked)
        wanted.append(clean[masked % a] if labels is None else labels[row].reshape(-1)[masked])
        levels.append(noise[row].reshape(-1)[masked])
        weight = 1.0 if weights is None else weights[row].reshape(-1)[masked]
        shares.append(np.full(len(masked), 1 / (n * copies * a)) * weight)
    frames = [tuple(frame_spans(prompt)) for prompt in prompts] if window else ()
    teacher_visible = None
    if teacher_block_size is not None and teacher_block_size != block_size:
        teacher_visible = batch_visibility(lengths, teacher_block_size, copies, size, frames)
    return BlockBatch(
        torch.from_numpy(ids),
        torch.from_numpy(positions),
        batch_visibility(lengths, block_size, copies, size, frames),
        teacher_visible,
        rows,
        torch.from_numpy(np.concatenate(slots)),
        torch.from_numpy(np.concatenate(wanted)),
        torch.from_numpy(np.concatenate(levels).astype(np.float32)),
        torch.from_numpy(np.concatenate(shares).astype(np.float32)),
    )


def lay_out_tokens(
    prompts: Sequence[Prompt], answers: Sequence[Sequence[int]], eos_token_id: int
) -> BlockBatch:
    """Lay out samples for next-token prediction; the token before each answer token predicts it.

    Padding comes last, so that causal attention keeps it out of sight.
    """
    n = len(prompts)
    answers = [fill_answer(answer, eos_token_id, 1) for answer in answers]
    size = max(len(p) + len(a) for p, a in zip(prompts, answers, strict=True))
    rows = slice(min(map(len, prompts)) - 1, size - 1)
    ids = np.full((n, size), eos_token_id, np.int64)
    positions = np.zeros((3, n, size), np.int64)
    slots, labels, shares = [], [], []
    for row, (prompt, answer) in enumerate(zip(prompts, answers, strict=True)):
        p, a = len(prompt), len(answer)
        ids[row, :p], ids[row, p : p + a] = prompt.token_ids, answer
        positions[:, row, :p] = prompt.positions
        positions[:, row, p : p + a] = prompt.next_position + np.arange(a)
        slots.append(row * (rows.stop - rows.start) + p - 1 - rows.start + np.arange(a))
        labels.append(ids[row, p : p + a])
        shares.append(np.full(a, 1 / (n * a)))
    labels = np.concatenate(labels)
    return BlockBatch(
        torch.from_numpy(ids),
        torch.from_numpy(positions),
        None,
        None,
        rows,
        torch.from_numpy(np.concatenate(slots)),
        torch.from_numpy(labels),
        torch.ones(len(labels)),
        torch.from_numpy(np.concatenate(shares).astype(np.float32)),
    )
