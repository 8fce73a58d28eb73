"""Training layout of block diffusion: [prefix | clean answer | noisy answer] in one sequence.

WAM-Diff2, stage I. The noisy copy of each block is denoised from the clean blocks before it, for
all blocks of an answer in one forward. The answer runs to its end-of-sequence token and is filled
with that token to whole blocks, so that the model learns to end an answer to the block's end.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

PREFIX, CLEAN, NOISY, PADDING = 0, 1, 2, 3


@dataclass(frozen=True, eq=False)
class BlockBatch:
    """A batch of samples of unequal length, padded on the right to S tokens."""

    token_ids: torch.Tensor  # [n, S]; noisy slots may hold the mask token
    positions: torch.Tensor  # [3, n, S]; a noisy token has its clean twin's
    visible: torch.Tensor  # [n, 1, S, S]; True: the row sees the column
    labels: torch.Tensor  # [n, S]; the clean token of a masked slot, or -100
    weights: torch.Tensor  # [n, S]; 1 / t of a masked slot's block over the answer's length


def fill_answer(answer: Sequence[int], eos_token_id: int, block_size: int) -> list[int]:
    """End an answer and fill it to whole blocks with the end-of-sequence token."""
    ended = [*answer, eos_token_id]
    return ended + [eos_token_id] * (-len(ended) % block_size)


def stratified_noise(blocks: int, generator: torch.Generator) -> torch.Tensor:
    """Return one noise level t in (0, 1] per block, evenly spread, in any order."""
    low = 1e-3
    u = low + (1 - low) * torch.rand((), generator=generator)
    levels = (u + torch.arange(blocks)) / blocks
    return levels[torch.randperm(blocks, generator=generator)]


def token_kinds(prefix: int, answer: int, block_size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return kind and block number [prefix + 2 * answer] of each token of one sample.

    Blocks of the prefix count from its start and the last may be short; the answer starts a new
    one. A noisy block has its clean twin's number.
    """
    prefix_blocks = torch.arange(prefix) // block_size
    answer_blocks = torch.arange(answer) // block_size + (-(-prefix // block_size))
    kinds = torch.cat(
        (torch.full((prefix,), PREFIX), torch.full((answer,), CLEAN), torch.full((answer,), NOISY))
    )
    return kinds, torch.cat((prefix_blocks, answer_blocks, answer_blocks))


def visibility(kinds: torch.Tensor, blocks: torch.Tensor) -> torch.Tensor:
    """Return who sees whom, bool [S, S], from kind and block number [S] of each token.

    Prefix and clean tokens see all such tokens up to their own block. Noisy tokens see those
    before their block, and their own noisy block. Padding sees itself (a row needs something).
    """
    row, column = kinds[:, None], kinds[None, :]
    block_row, block_column = blocks[:, None], blocks[None, :]
    context = column <= CLEAN
    plain = (row <= CLEAN) & context & (block_column <= block_row)
    noisy = (row == NOISY) & (
        (context & (block_column < block_row)) | ((column == NOISY) & (block_column == block_row))
    )
    return plain | noisy | torch.eye(len(kinds), dtype=torch.bool)


def collate(
    prefixes: Sequence[tuple[Sequence[int], torch.Tensor, int]],
    answers: Sequence[Sequence[int]],
    block_size: int,
    mask_token_id: int,
    generator: torch.Generator,
) -> BlockBatch:
    """Noise a batch of samples.

    prefixes: (token ids [P], positions [3, P], next position) each; answers: token ids, filled to
    whole blocks. A token is masked with the probability of its block's noise level.
    """
    sizes = [len(p[0]) + 2 * len(a) for p, a in zip(prefixes, answers, strict=True)]
    n, longest = len(sizes), max(sizes)
    ids = torch.full((n, longest), mask_token_id)
    positions = torch.zeros(3, n, longest, dtype=torch.long)
    labels = torch.full((n, longest), -100)
    weights = torch.zeros(n, longest)
    kinds = torch.full((n, longest), PADDING)
    blocks = torch.full((n, longest), -1)
    for row, ((prefix, prefix_positions, following), answer) in enumerate(
        zip(prefixes, answers, strict=True)
    ):
        p, a, size = len(prefix), len(answer), sizes[row]
        clean = torch.tensor(answer)
        level = stratified_noise(a // block_size, generator).repeat_interleave(block_size)
        masked = torch.rand(a, generator=generator) <= level
        ids[row, :p] = torch.tensor(prefix)
        ids[row, p : p + a] = clean
        ids[row, p + a : size] = torch.where(masked, mask_token_id, clean)
        positions[:, row, :p] = prefix_positions
        positions[:, row, p:size] = (following + torch.arange(a)).repeat(2)
        labels[row, p + a : size][masked] = clean[masked]
        weights[row, p + a : size] = masked / level / a
        kinds[row, :size], blocks[row, :size] = token_kinds(p, a, block_size)
    visible = torch.stack([visibility(k, b) for k, b in zip(kinds, blocks, strict=True)])
    return BlockBatch(ids, positions, visible[:, None], labels, weights)
