"""Plain autoregressive decoding: one token a forward, each predicted by the one before it."""

from collections.abc import Callable, Sequence
from typing import Protocol

import torch

from .block_diffusion import Answer, Trace
from .sampling import Sampler, Sampling, insist_on_finite


class TokenModel(Protocol):
    """A network with the prompt in its KV cache, whose last row predicts the first new token."""

    batch: int
    device: torch.device

    def first_logits(self) -> torch.Tensor:
        """Return logits float32 [n, vocab] at the last prompt token."""
        ...

    def append(self, tokens: torch.Tensor) -> torch.Tensor:
        """Append tokens [n] to the cache and return the logits float32 [n, vocab] after them."""
        ...


@torch.inference_mode()
def decode_tokens(
    model: TokenModel,
    eos_token_ids: tuple[int, ...],
    sampling: Sampling,
    max_new_tokens: int,
    *,
    samplings: Sequence[Sampling] | None = None,
    stop: Callable[[], bool] = lambda: False,
    trace: Trace | None = None,
) -> list[Answer]:
    """Decode one answer per prompt; `stop` is asked before every forward.

    `samplings` has one entry per answer where they differ.
    """
    trace = Trace() if trace is None else trace
    sampler = Sampler(samplings or [sampling] * model.batch, model.device)
    slot = torch.ones(model.batch, 1, dtype=torch.bool, device=model.device)
    answers: list[list[int]] = [[] for _ in range(model.batch)]
    finished = [False] * model.batch
    logits = model.first_logits()
    for index in range(max_new_tokens):
        tokens, probability = sampler(logits, slot)
        insist_on_finite(probability)
        for row, token in enumerate(tokens.tolist()):
            finished[row] = finished[row] or token in eos_token_ids
            if not finished[row]:
                answers[row].append(token)
        if all(finished) or index == max_new_tokens - 1:
            break
        if stop():
            trace.cut_short = True
            break
        logits = model.append(tokens)
        trace.steps_per_block.append(1)
    return [Answer(tuple(ids), end, end) for ids, end in zip(answers, finished, strict=True)]
