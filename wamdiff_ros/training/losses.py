"""Losses over masked slots: weighted cross-entropy, and divergences between student and teacher.

Every function returns one number per slot [m]; `macro_average` makes them a sample's mean over
its answer, and a batch's mean over its samples. All in float32.
"""

import torch
from torch.nn.functional import cross_entropy, kl_div, log_softmax

# Below this a probability of the mixture is not told from 0 (the reference's clamp).
SMALLEST_MIXTURE = 1e-8


def macro_average(values: torch.Tensor, shares: torch.Tensor) -> torch.Tensor:
    """Return the mean over samples of each sample's sum of `values` over its answer's length.

    shares [m]: one over (samples in the batch times tokens in the slot's filled answer). Slots
    that are not masked count in that length with a loss of zero.
    """
    return (values * shares).sum()


def masked_cross_entropy(
    logits: torch.Tensor, labels: torch.Tensor, noise: torch.Tensor | None = None
) -> torch.Tensor:
    """Logits [m, vocab], labels [m] → cross-entropy [m], times 1/t with `noise` t [m].

    The weight 1/t makes the sum an upper bound of the negative log-likelihood (stage I).
    """
    loss = cross_entropy(logits.float(), labels, reduction='none')
    return loss if noise is None else loss / noise


def jensen_shannon(
    student: torch.Tensor, teacher: torch.Tensor, beta: float = 0.5, temperature: float = 1.0
) -> torch.Tensor:
    """Return the generalised Jensen-Shannon divergence [m] of logits [m, vocab], times τ².

    β·KL(teacher‖mixture) + (1-β)·KL(student‖mixture), the mixture holding β of the teacher. The
    distillation loss of stages II and III, without 1/t.
    """
    s, t = _log_probabilities(student, temperature), _log_probabilities(teacher, temperature)
    mixture = (beta * t.exp() + (1 - beta) * s.exp()).clamp(min=SMALLEST_MIXTURE).log()
    return temperature**2 * (beta * _divergence(t, mixture) + (1 - beta) * _divergence(s, mixture))


def forward_kl(
    student: torch.Tensor,
    teacher: torch.Tensor,
    temperature: float = 1.0,
    noise: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return KL(teacher‖student) [m] of logits [m, vocab], times τ², and 1/t with `noise` t."""
    s, t = _log_probabilities(student, temperature), _log_probabilities(teacher, temperature)
    loss = temperature**2 * _divergence(t, s)
    return loss if noise is None else loss / noise


def reverse_kl(
    student: torch.Tensor, teacher: torch.Tensor, temperature: float = 1.0
) -> torch.Tensor:
    """Return KL(student‖teacher) [m] of logits [m, vocab], times τ²; never weighted by 1/t."""
    s, t = _log_probabilities(student, temperature), _log_probabilities(teacher, temperature)
    return temperature**2 * _divergence(s, t)


def _log_probabilities(logits: torch.Tensor, temperature: float) -> torch.Tensor:
    return log_softmax(logits.float() / temperature, dim=-1)


def _divergence(log_p: torch.Tensor, log_q: torch.Tensor) -> torch.Tensor:
    return kl_div(log_q, log_p, reduction='none', log_target=True).sum(dim=-1)
