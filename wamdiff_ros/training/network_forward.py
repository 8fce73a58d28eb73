"""One forward of the network over a training batch: images into place, both towers, the head."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from ..model.network import Network
from .block_layout import BlockBatch


@dataclass(frozen=True, eq=False)
class ImageGroup:
    """The images of a batch that share one size."""

    grid: tuple[int, int, int]  # (1, height, width) in patches
    patches: torch.Tensor  # [k, height*width, dim]
    rows: torch.Tensor  # [k], the sample that each belongs to
    starts: torch.Tensor  # [k], where its placeholders begin in the sample


class NetworkForward(nn.Module):
    """The network as one module with one forward, as data-parallel wrappers need it."""

    def __init__(self, network: Network, train_vision: bool):
        super().__init__()
        self.network = network
        self.train_vision = train_vision
        network.vision.requires_grad_(train_vision)

    def forward(
        self, batch: BlockBatch, images: Sequence[ImageGroup], as_teacher: bool = False
    ) -> torch.Tensor:
        """Return logits float32 [m, vocab] of the batch's slots.

        `as_teacher` takes the attention mask of the teacher's block size.
        """
        visible = batch.visible
        if as_teacher and batch.teacher_visible is not None:
            visible = batch.teacher_visible
        text = self.network.text
        x, deepstack = self._embed(batch.token_ids, images)
        hidden = text(x, batch.positions, _Attend(visible), deepstack)
        return self.network.head(hidden.flatten(0, 1)[batch.slots])

    def _embed(self, token_ids: torch.Tensor, images: Sequence[ImageGroup]):
        """token_ids [n, S] → x [n, S, hidden] with the images' tokens, deepstack inputs alike."""
        x = self.network.text.embed_tokens(token_ids)
        shape, size = x.shape, token_ids.shape[1]
        x = x.flatten(0, 1)
        deepstack = [torch.zeros_like(x) for _ in self.network.config.vision.deepstack_layers]
        for group in images:
            with torch.set_grad_enabled(self.train_vision and torch.is_grad_enabled()):
                tokens, features = self.network.vision(group.patches, group.grid)  # [k, T, hidden]
            first = group.rows * size + group.starts
            places = (first[:, None] + torch.arange(tokens.shape[1], device=x.device)).flatten()
            x = x.index_copy(0, places, tokens.flatten(0, 1).to(x.dtype))
            for index, feature in enumerate(features):
                deepstack[index] = deepstack[index].index_copy(
                    0, places, feature.flatten(0, 1).to(x.dtype)
                )
        return x.view(shape), [layer.view(shape) for layer in deepstack]


class _Attend:
    """Attention within the batch under one mask, or causal without one."""

    def __init__(self, visible: torch.Tensor | None):
        self._visible = visible

    def __call__(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
    ) -> torch.Tensor:
        """See model.text.Attend."""
        return scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=self._visible,
            is_causal=self._visible is None,
            enable_gqa=True,
        )
