"""Rules for which slots of a block a denoising step unmasks."""

from enum import Enum

import torch

# How many slots before it an unsure slot waits for. A digit has the one that decides what it means
# right before it, or across a decimal point.
WAITS_FOR = 2


class Unmasking(Enum):
    """Which masked slots a denoising step unmasks.

    All but `leading` are those of the reference. Answers are mostly numbers, and the digits of one
    that are unmasked together do not know of each other: of 9.9 and 10.1 comes 19.9. `leading`
    unmasks the digits of one number in turn, and all numbers of a block at once.
    """

    DYNAMIC = 'dynamic'  # all with enough confidence, or else the most confident one
    LEADING = 'leading'  # the same, and those that wait for no unsure slot shortly before them
    STATIC = 'static'  # a fixed number per step, the most confident ones
    SEQUENTIAL = 'sequential'  # a fixed number per step, left to right


def choose_slots(
    rule: Unmasking, threshold: float, confidence: torch.Tensor, masked: torch.Tensor, count: int
) -> torch.Tensor:
    """Return which masked slots [n, B] are unmasked now; `confidence` is -1 where not masked.

    A slot is sure from `threshold` on; `count` is how many rules of a fixed number unmask.
    """
    if rule is Unmasking.DYNAMIC:
        sure = masked & (confidence >= threshold)
        best = torch.zeros_like(masked)
        best.scatter_(1, confidence.argmax(dim=1, keepdim=True), True)
        return torch.where(sure.any(dim=1, keepdim=True), sure, best & masked)
    if rule is Unmasking.LEADING:
        unsure = masked & (confidence < threshold)
        waits = torch.zeros_like(unsure)
        for distance in range(1, WAITS_FOR + 1):
            waits[:, distance:] |= unsure[:, :-distance]
        return masked & ~(unsure & waits)
    if rule is Unmasking.STATIC:
        order = confidence.argsort(dim=1, descending=True, stable=True)
        rank = order.argsort(dim=1)
    else:
        rank = masked.cumsum(dim=1) - 1
    return masked & (rank < count)


def unmasked_per_step(block_size: int, steps: int) -> list[int]:
    """Return how many slots each step unmasks: an even split, the remainder first.

    With more steps than slots it is one per step until the block is complete.
    """
    steps = min(steps, block_size)
    share, remainder = divmod(block_size, steps)
    return [share + (step < remainder) for step in range(steps)]
