"""Block diffusion decoding (WAM-Diff2): blocks of B slots, denoised together, one after another.

Each block starts fully masked. A denoising step predicts a token for every masked slot and
unmasks those that the rule picks; the clean block is then committed to the KV cache and the next
one starts. Labels are not shifted: slot i predicts its own token.

Deliberately different from the reference implementation: the mask token is never predicted,
nothing after the end-of-sequence token is kept, and no commit is spent on a block that nobody
will read.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

import torch

from .sampling import Sampling, sample


class Unmasking(Enum):
    """Which masked slots a denoising step unmasks."""

    DYNAMIC = 'dynamic'  # all with enough confidence, or else the most confident one
    STATIC = 'static'  # a fixed number per step, the most confident ones
    SEQUENTIAL = 'sequential'  # a fixed number per step, left to right


@dataclass(frozen=True)
class BlockSettings:
    """How blocks are decoded; block size and mask id are facts of the checkpoint."""

    block_size: int
    mask_token_id: int
    eos_token_ids: tuple[int, ...]
    denoising_steps: int
    unmasking: Unmasking = Unmasking.DYNAMIC
    confidence_threshold: float = 0.9
    sampling: Sampling = field(default_factory=Sampling)

    def __post_init__(self):
        if self.block_size < 1 or self.denoising_steps < 1:
            raise ValueError(
                f'block_size {self.block_size} and denoising_steps {self.denoising_steps} must '
                'both be at least 1'
            )


class BlockModel(Protocol):
    """A network with the prompt in its KV cache, `batch` answers at a time."""

    batch: int
    device: torch.device

    def denoise(self, block: torch.Tensor, masked: torch.Tensor) -> torch.Tensor:
        """Return logits float32 [m, vocab] of the m masked slots of block [n, B], row by row.

        The slots see the prompt, the committed blocks and each other; nothing is kept.
        """
        ...

    def commit(self, block: torch.Tensor) -> None:
        """Append the clean block [n, B] to what later blocks see."""
        ...


@dataclass(frozen=True)
class Answer:
    """A decoded answer: no mask token, nothing from the end-of-sequence token on."""

    token_ids: tuple[int, ...]
    finished: bool  # the model ended it; otherwise it ran out of tokens or of time


@dataclass
class Trace:
    """What decoding did: for timings, for tests, and for counting."""

    steps_per_block: list[int] = field(default_factory=list)
    commits: int = 0
    bulk_filled_slots: int = 0  # slots that took their last prediction when steps or time ran out
    record: bool = False
    steps: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = field(default_factory=list)


@torch.inference_mode()
def decode_blocks(
    model: BlockModel,
    settings: BlockSettings,
    max_new_tokens: int,
    *,
    stop: Callable[[], bool] = lambda: False,
    trace: Trace | None = None,
) -> list[Answer]:
    """Decode one answer per prompt of `model`; the budget is rounded up to whole blocks.

    `stop` is asked before every forward but the first; once true, decoding ends with what it has.
    """
    trace = Trace() if trace is None else trace
    generator = settings.sampling.generator(model.device)
    blocks = -(-max_new_tokens // settings.block_size)
    answers: list[list[int]] = [[] for _ in range(model.batch)]
    finished = [False] * model.batch
    for index in range(blocks):
        active = torch.tensor([not done for done in finished], device=model.device)
        block, stopped = denoise_block(model, settings, active, generator, stop, trace)
        # The end is looked for only in a complete block: within one, later slots may be
        # unmasked before earlier ones.
        for row, tokens in enumerate(block.tolist()):
            if not finished[row]:
                ends = [i for i, token in enumerate(tokens) if token in settings.eos_token_ids]
                answers[row] += tokens[: ends[0]] if ends else tokens
                # An end that only fills a block for lack of time is not the model's.
                finished[row] = bool(ends) and not stopped
        if stopped or all(finished) or index == blocks - 1 or stop():
            break
        model.commit(block)
        trace.commits += 1
        if stop():
            break
    return [Answer(tuple(tokens), done) for tokens, done in zip(answers, finished, strict=True)]


def denoise_block(
    model: BlockModel,
    settings: BlockSettings,
    active: torch.Tensor,
    generator: torch.Generator | None,
    stop: Callable[[], bool],
    trace: Trace,
) -> tuple[torch.Tensor, bool]:
    """Return one clean block [n, B], and whether `stop` cut its denoising short.

    Rows that are not `active` [n] are filled with EOS.
    """
    size = settings.block_size
    block = torch.full((model.batch, size), settings.mask_token_id, device=model.device)
    block[~active] = settings.eos_token_ids[0] if settings.eos_token_ids else 0
    masked = active[:, None].expand_as(block).clone()  # [n, B]
    counts = unmasked_per_step(size, settings.denoising_steps)
    prediction = block.clone()
    steps, stopped = 0, False
    for count in counts:
        if steps and not masked.any():
            break
        if steps and stop():
            stopped = True
            break
        logits = model.denoise(block, masked)  # [m, vocab]
        logits[:, settings.mask_token_id] = -torch.inf
        tokens, probability = sample(logits, settings.sampling, generator)
        prediction[masked] = tokens
        confidence = torch.full(block.shape, -1.0, device=model.device)
        confidence[masked] = probability
        if trace.record:
            trace.steps.append((block.clone(), prediction.clone(), confidence.clone()))
        chosen = choose_slots(settings, confidence, masked, count)
        block = torch.where(chosen, prediction, block)
        masked &= ~chosen
        steps += 1
    trace.steps_per_block.append(steps)
    trace.bulk_filled_slots += int(masked.sum())
    return torch.where(masked, prediction, block), stopped


def choose_slots(
    settings: BlockSettings, confidence: torch.Tensor, masked: torch.Tensor, count: int
) -> torch.Tensor:
    """Return which masked slots [n, B] are unmasked now; confidence is -1 where not masked."""
    if settings.unmasking is Unmasking.DYNAMIC:
        sure = masked & (confidence >= settings.confidence_threshold)
        best = torch.zeros_like(masked)
        best.scatter_(1, confidence.argmax(dim=1, keepdim=True), True)
        return torch.where(sure.any(dim=1, keepdim=True), sure, best & masked)
    if settings.unmasking is Unmasking.STATIC:
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
