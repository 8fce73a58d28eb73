"""Block diffusion decoding (WAM-Diff2): blocks of B slots, denoised together, one after another.

Each block starts fully masked. A denoising step predicts a token for every masked slot and
unmasks those that the rule picks; the forward that first denoises the next block commits the
clean one to the KV cache. Labels are not shifted: slot i predicts its own token.

Deliberately different from the reference implementation: the mask token is never predicted,
nothing after the end-of-sequence token is kept, and no commit is spent on a block that nobody
will read.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import torch

from .sampling import Sampler, Sampling, insist_on_finite
from .unmasking import Unmasking, choose_slots, unmasked_per_step

if TYPE_CHECKING:
    from ..model.config import ModelConfig


@dataclass(frozen=True)
class BlockSettings:
    """How blocks are decoded."""

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

    @classmethod
    def of(cls, config: 'ModelConfig', **changes: Any) -> 'BlockSettings':
        """Return how a checkpoint of blocks is to be decoded, but for `changes`."""
        own = {
            'block_size': config.block_size,
            'mask_token_id': config.mask_token_id,
            'eos_token_ids': config.eos_token_ids,
            'denoising_steps': config.denoising_steps,
            'unmasking': config.unmasking,
            'confidence_threshold': config.confidence_threshold,
        }
        return cls(**(own | changes))


class BlockModel(Protocol):
    """A network with the prompt in its KV cache, `batch` answers at a time."""

    batch: int
    device: torch.device

    def denoise(
        self, block: torch.Tensor, masked: torch.Tensor, before: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return logits float32 [m, vocab] of the m masked slots of block [n, L], row by row.

        The slots see the prompt, the committed blocks and each other; nothing is kept. L is B,
        or several blocks of B, each of which sees those before it. `before` [n, B] is the clean
        block in front of them, which is committed first. A model of static shapes returns the
        logits of all n*L slots.
        """
        ...


class Pace(Protocol):
    """Knows how much there is time for; asked before every forward."""

    def blocks_at_once(self, left: int) -> int:
        """Return how many of the `left` blocks the next forward is to denoise.

        One, or all that the answer may still need if there is no time for a forward each.
        """
        ...

    def another_step(self, left: int) -> bool:
        """Return whether a further step of this block fits before the `left` blocks after it."""
        ...


class Unhurried:
    """All the time in the world."""

    def blocks_at_once(self, left: int) -> int:
        """See Pace."""
        return 1

    def another_step(self, left: int) -> bool:
        """See Pace."""
        return True


@dataclass(frozen=True)
class Answer:
    """A decoded answer: no mask token, nothing from the end-of-sequence token on."""

    token_ids: tuple[int, ...]
    ended: bool  # an end-of-sequence token stood behind it; otherwise something may be missing
    finished: bool  # the model ended it, in its own time: the end is not one filled in


@dataclass
class Trace:
    """What decoding did: for timings, for tests, and for counting."""

    steps_per_block: list[int] = field(default_factory=list)
    commits: int = 0
    bulk_filled_slots: int = 0  # slots that took their last prediction when steps or time ran out
    cut_short: bool = False  # by the pace, or by a stop within a block
    record: bool = False
    steps: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = field(default_factory=list)


@torch.inference_mode()
def decode_blocks(
    model: BlockModel,
    settings: BlockSettings,
    max_new_tokens: int,
    *,
    samplings: Sequence[Sampling] | None = None,
    stop: Callable[[], bool] = lambda: False,
    pace: Pace | None = None,
    trace: Trace | None = None,
) -> list[Answer]:
    """Decode one answer per prompt of `model`; the budget is rounded up to whole blocks.

    `samplings` has one entry per answer where they differ. `stop` is asked before every forward
    but the first; once true, decoding ends with what it has. `pace` fills in what there is no
    time to denoise: slots of a block with their newest predictions, or the whole rest of the
    answer from one forward.
    """
    trace = Trace() if trace is None else trace
    pace = Unhurried() if pace is None else pace
    sampler = Sampler(samplings or [settings.sampling] * model.batch, model.device)
    left = -(-max_new_tokens // settings.block_size)
    answers: list[list[int]] = [[] for _ in range(model.batch)]
    ended, finished = [False] * model.batch, [False] * model.batch
    before = None  # the newest clean block; the next forward commits it
    while True:
        count = pace.blocks_at_once(left)
        left -= count
        active = torch.tensor([not done for done in ended], device=model.device)

        def another(left: int = left, count: int = count) -> bool:
            return count == 1 and not stop() and pace.another_step(left)

        block, hurried = denoise_block(
            model, settings, active, before, count, sampler, another, trace
        )
        trace.commits += before is not None
        # The end is looked for only in a complete block: within one, later slots may be
        # unmasked before earlier ones.
        for row, tokens in enumerate(block.tolist()):
            if not ended[row]:
                ends = [i for i, token in enumerate(tokens) if token in settings.eos_token_ids]
                answers[row] += tokens[: ends[0]] if ends else tokens
                ended[row] = bool(ends)
                # An end that only fills a block for lack of time is not the model's.
                finished[row] = bool(ends) and not hurried
        if count > 1 or left == 0 or all(ended) or stop():
            break
        before = block
    return [Answer(tuple(ids), *how) for ids, *how in zip(answers, ended, finished, strict=True)]


def denoise_block(
    model: BlockModel,
    settings: BlockSettings,
    active: torch.Tensor,
    before: torch.Tensor | None,
    count: int,
    sampler: Sampler,
    another: Callable[[], bool],
    trace: Trace,
) -> tuple[torch.Tensor, bool]:
    """Return `count` clean blocks [n, count * B], and whether that was hurried.

    `before` is the clean block in front of them. After the first step, `another` says whether
    there may be one more. Rows that are not `active` [n] are filled with EOS.
    """
    size = count * settings.block_size
    block = torch.full((model.batch, size), settings.mask_token_id, device=model.device)
    block[~active] = settings.eos_token_ids[0] if settings.eos_token_ids else 0
    masked = active[:, None].expand_as(block).clone()  # [n, L]
    prediction = block
    counts = unmasked_per_step(settings.block_size, settings.denoising_steps)
    dynamic = settings.unmasking in (Unmasking.DYNAMIC, Unmasking.LEADING)
    steps, hurried = 0, count > 1
    lowest = torch.ones((), device=model.device)
    for share in counts:
        if steps and dynamic and not masked.any():
            break
        if steps and not another():
            hurried = True
            break
        logits = model.denoise(block, masked, before)  # [m, vocab]
        before = None
        logits[:, settings.mask_token_id] = -torch.inf
        tokens, probability = sampler(logits, masked)
        lowest = torch.minimum(lowest, probability.min())  # NaN stays NaN
        if len(tokens) < block.numel():
            tokens = prediction.masked_scatter(masked, tokens)
            probability = torch.zeros_like(masked, dtype=torch.float32).masked_scatter(
                masked, probability
            )
        prediction = torch.where(masked, tokens.view_as(block), prediction)
        confidence = torch.where(masked, probability.view_as(block), -1.0)
        if trace.record:
            trace.steps.append((block.clone(), prediction.clone(), confidence.clone()))
        chosen = choose_slots(
            settings.unmasking, settings.confidence_threshold, confidence, masked, share
        )
        block = torch.where(chosen, prediction, block)
        masked = masked & ~chosen
        steps += 1
    insist_on_finite(lowest)  # once a block: asking waits for the device
    trace.steps_per_block.append(steps)
    trace.bulk_filled_slots += int(masked.sum())
    trace.cut_short |= hurried
    return torch.where(masked, prediction, block), hurried
