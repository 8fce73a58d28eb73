"""From logits to a token and the confidence in it, per slot."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Sampling:
    """Greedy at temperature 0; otherwise temperature, then top-k, then top-p."""

    temperature: float = 0.0
    top_k: int = 0  # 0: off
    top_p: float = 1.0  # 1: off
    seed: int = 0

    def __post_init__(self):
        if not self.temperature >= 0.0:
            raise ValueError(f'temperature {self.temperature} is below 0')
        if not 0.0 < self.top_p <= 1.0:
            raise ValueError(f'top_p {self.top_p} is outside 0 … 1 (0 excluded)')
        if self.top_k < 0:
            raise ValueError(f'top_k {self.top_k} is below 0')

    def generator(self, device: torch.device) -> torch.Generator | None:
        """Return a freshly seeded generator, so that equal calls give equal answers."""
        if self.temperature == 0.0:
            return None
        return torch.Generator(device).manual_seed(self.seed)


class Sampler:
    """Chooses tokens for a batch of answers, each with a sampling of its own.

    What an answer takes does not depend on what is decoded beside it.
    """

    def __init__(self, samplings: Sequence[Sampling], device: torch.device):
        self._samplings = samplings
        self._generators = [sampling.generator(device) for sampling in samplings]
        self._greedy = all(generator is None for generator in self._generators)

    def __call__(
        self, logits: torch.Tensor, masked: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits float32 [m, vocab] of all slots, or of those `masked` [n, L] → as `sample`."""
        if self._greedy or len(self._samplings) == 1:
            return sample(logits, self._samplings[0], self._generators[0])
        n, length = masked.shape
        all_slots = logits.shape[0] == n * length
        parts = logits.split([length] * n if all_slots else masked.sum(dim=1).tolist())
        chosen = map(sample, parts, self._samplings, self._generators)
        tokens, probabilities = zip(*chosen, strict=True)
        return torch.cat(tokens), torch.cat(probabilities)


def sample(
    logits: torch.Tensor, sampling: Sampling, generator: torch.Generator | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits float32 [m, vocab] → token ids [m] and their probabilities [m].

    Where logits are not finite, neither is the probability; see `insist_on_finite`.
    """
    if sampling.temperature == 0.0:
        best, tokens = logits.max(dim=-1, keepdim=True)
        return tokens[:, 0], (logits - best).exp_().sum(dim=-1).reciprocal_()
    logits = logits / sampling.temperature
    if 0 < sampling.top_k < logits.shape[-1]:
        smallest = logits.topk(sampling.top_k, dim=-1).values[:, -1:]
        logits = logits.masked_fill(logits < smallest, -torch.inf)
    if sampling.top_p < 1.0:
        ordered, order = logits.sort(dim=-1, descending=True)
        probability = ordered.softmax(dim=-1)
        # A token stays if those before it have not reached top_p, so the first always does.
        beyond = probability.cumsum(dim=-1) - probability >= sampling.top_p
        logits = logits.masked_fill(beyond.scatter(-1, order, beyond), -torch.inf)
    probability = logits.softmax(dim=-1)
    # A GPU that is asked to draw from NaN is lost to the process.
    tokens = torch.multinomial(probability.nan_to_num(1.0), 1, generator=generator)
    return tokens[:, 0], probability.gather(-1, tokens)[:, 0]


def insist_on_finite(probability: torch.Tensor) -> None:
    """Raise FloatingPointError unless all probabilities of a forward's tokens are numbers."""
    if not probability.isfinite().all():
        raise FloatingPointError(
            'the network computed NaN or infinity; if that goes on, try dtype float32 or check '
            'the weights'
        )
