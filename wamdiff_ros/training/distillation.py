"""Distillation, stages II and III: the student answers as its teacher does on the same noise.

Block-wise (stage II): the teacher is the checkpoint of the previous, smaller block size. It runs
under the attention mask of its own block size, so in the student's block it sees the clean tokens
before its own smaller one. Cross-scale (stage III): a larger teacher of the same block size.
"""

from functools import partial

import numpy as np
import torch

from ..model.config import load_config
from ..model.network import Network
from ..model.weights import load_network
from . import losses
from .batches import TaskBatch, move
from .network_forward import NetworkForward
from .on_policy import OnPolicy
from .recipe import Recipe, RecipeError


class Teacher:
    """A frozen checkpoint and how a student learns from it."""

    def __init__(self, recipe: Recipe, student: Network, device: torch.device, rank: int = 0):
        config, mine = load_config(recipe.teacher), student.config
        if config.block_size == 1:
            raise RecipeError(
                f'teacher {recipe.teacher} is autoregressive: its labels are shifted, so it '
                'cannot say what belongs in a slot; adapt it to blocks first'
            )
        if recipe.block_size % config.block_size:
            raise RecipeError(
                f'teacher {recipe.teacher} has block size {config.block_size}, which does not '
                f"divide the student's {recipe.block_size}"
            )
        for name in ('mask_token_id', 'image_token_id', 'eos_token_ids'):
            if getattr(config, name) != getattr(mine, name):
                raise RecipeError(
                    f'teacher {recipe.teacher} has {name} {getattr(config, name)}, the student '
                    f'{getattr(mine, name)}; they must share one tokenizer'
                )
        if config.text.vocab_size != mine.text.vocab_size:
            raise RecipeError(
                f'teacher {recipe.teacher} has a vocabulary of {config.text.vocab_size}, the '
                f'student of {mine.text.vocab_size}'
            )
        self._recipe = recipe
        self.block_size = config.block_size
        dtype = torch.bfloat16 if recipe.precision == 'bf16' else torch.float32
        network = load_network(recipe.teacher, config, dtype=dtype, device=device)
        self._forward = NetworkForward(
            network, train_vision=False, fused_attention=device.type != 'cpu'
        )
        if recipe.compile:
            self._forward.compile_layers()
        self._rank, self._device = rank, device
        self._on_policy = OnPolicy(recipe, student, dtype) if recipe.on_policy_every else None
        divergence = getattr(losses, recipe.divergence)
        options = {'beta': recipe.beta} if recipe.divergence == 'jensen_shannon' else {}
        self._divergence = partial(divergence, temperature=recipe.temperature, **options)

    def losses(self, model, batch: TaskBatch, step: int) -> dict[str, torch.Tensor]:
        """Return (1 - r) times the cross-entropy and r times the divergence.

        Every `on_policy_every`-th step is about the student's own answers, which nobody should
        learn by heart: there the divergence stands alone.
        """
        recipe, layout, share = self._recipe, batch.layout, self._recipe.distillation_share
        if recipe.on_policy_every and step % recipe.on_policy_every == recipe.on_policy_every - 1:
            random = np.random.default_rng((recipe.seed, 3, step, self._rank))
            layout = self._on_policy.lay_out(batch, self.block_size, random)
            layout, share = move(layout, self._device), 1.0
        with torch.inference_mode():
            wanted = self._forward(layout, batch.images, as_teacher=True)
        logits = model(layout, batch.images)
        # Forward KL is the one that the reference weights by 1/t.
        weight = {'noise': layout.noise} if recipe.divergence == 'forward_kl' else {}
        divergence = self._divergence(logits, wanted, **weight)
        parts = {'divergence': share * losses.macro_average(divergence, layout.shares)}
        if share < 1:
            noise = layout.noise if recipe.weighting == 'inverse_t' else None
            loss = losses.masked_cross_entropy(logits, layout.labels, noise)
            parts['cross_entropy'] = (1 - share) * losses.macro_average(loss, layout.shares)
        return parts
