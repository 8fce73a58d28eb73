"""Learning rates: a linear warm-up, then a cosine down to a floor; and which weights decay."""

import math

import torch

from .recipe import Recipe


def rate_factor(recipe: Recipe, step: int) -> float:
    """Return the share of the peak learning rate at `step`, counted from 0."""
    if step < recipe.warm_up_steps:
        return recipe.warm_up_from + (1 - recipe.warm_up_from) * step / recipe.warm_up_steps
    done = (step - recipe.warm_up_steps) / max(1, recipe.steps - 1 - recipe.warm_up_steps)
    cosine = (1 + math.cos(math.pi * min(1.0, done))) / 2
    return recipe.decay_to + (1 - recipe.decay_to) * cosine


def parameter_groups(model: torch.nn.Module, recipe: Recipe) -> list[dict]:
    """Return optimiser groups of a module around a `network`, their peak rate under 'peak'.

    The mergers learn at the language tower's rate (they write its inputs); biases and norms do
    not decay.
    """
    groups: dict[tuple[float, float], list[torch.nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        of_vision = name.startswith('network.model.visual.') and 'merger' not in name
        peak = recipe.vision_learning_rate if of_vision else recipe.learning_rate
        decay = recipe.weight_decay if parameter.dim() > 1 else 0.0
        groups.setdefault((peak, decay), []).append(parameter)
    return [
        {'params': parameters, 'lr': peak, 'peak': peak, 'weight_decay': decay}
        for (peak, decay), parameters in groups.items()
    ]


def set_rates(optimizer: torch.optim.Optimizer, recipe: Recipe, step: int) -> None:
    """Set the learning rate of every group for `step`."""
    factor = rate_factor(recipe, step)
    for group in optimizer.param_groups:
        group['lr'] = group['peak'] * factor
