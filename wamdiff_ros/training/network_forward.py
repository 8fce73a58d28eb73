"""One forward of the network over a training batch: images into place, both towers, the head."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from ..model.network import Network
from ..model.text import RMSNorm
from .attention import chunked_attention, chunks_of
from .block_layout import BlockBatch


@dataclass(frozen=True, eq=False)
class ImageGroup:
    """The images of a batch that share one size."""

    grid: tuple[int, int, int]  # (1, height, width) in patches
    patches: torch.Tensor | None  # [k, height*width, dim]
    rows: torch.Tensor  # [k], the sample that each belongs to
    starts: torch.Tensor  # [k], where its placeholders begin in the sample
    # [k, 1 + deepstack layers, T, hidden] of a tower that is not trained, instead of the patches.
    features: torch.Tensor | None = None


class NetworkForward(nn.Module):
    """The network as one module with one forward, as data-parallel wrappers need it."""

    def __init__(self, network: Network, train_vision: bool, fused_attention: bool):
        """fused_attention: torch's kernel, which is fast on a GPU and slow on a CPU."""
        super().__init__()
        self.network = network
        self.train_vision = train_vision
        self.fused_attention = fused_attention
        network.vision.requires_grad_(train_vision)
        self._attention = attention_in(network, fused_attention)

    def compile_layers(self) -> None:
        """Compile what lies around attention in each layer, for any length of sequence."""
        network = self.network
        modules = [*network.text.layers, *network.vision.blocks]
        for attention in (getattr(m, 'self_attn', None) or m.attn for m in modules):
            attention.project = torch.compile(attention.project, dynamic=True)
        norms = [m for m in network.text.modules() if isinstance(m, RMSNorm)]
        for module in (*(m.mlp for m in modules), *norms):
            module.compile(dynamic=True)

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
        if visible is None:
            visible = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device)
            visible = visible.tril()[None, None]
        attend = (_FusedAttend if self.fused_attention else _ChunkedAttend)(visible, batch.rows)
        hidden = text(x, batch.positions, attend, deepstack, batch.rows)
        return self.network.head(hidden.flatten(0, 1)[batch.slots])

    def _embed(self, token_ids: torch.Tensor, images: Sequence[ImageGroup]):
        """token_ids [n, S] → x [n, S, hidden] with the images' tokens, deepstack inputs alike."""
        x = self.network.text.embed_tokens(token_ids)
        shape, size = x.shape, token_ids.shape[1]
        x = x.flatten(0, 1)
        deepstack = [torch.zeros_like(x) for _ in self.network.config.vision.deepstack_layers]
        for group in images:
            tokens, features = self._see(group)  # [k, T, hidden] each
            first = group.rows * size + group.starts
            places = (first[:, None] + torch.arange(tokens.shape[1], device=x.device)).flatten()
            x = x.index_copy(0, places, tokens.flatten(0, 1).to(x.dtype))
            for index, feature in enumerate(features):
                deepstack[index] = deepstack[index].index_copy(
                    0, places, feature.flatten(0, 1).to(x.dtype)
                )
        return x.view(shape), [layer.view(shape) for layer in deepstack]

    def _see(self, group: ImageGroup) -> tuple[torch.Tensor, Sequence[torch.Tensor]]:
        if group.features is not None:
            tokens, *features = group.features.unbind(1)
            return tokens, features
        with torch.set_grad_enabled(self.train_vision and torch.is_grad_enabled()):
            return self.network.vision(group.patches, group.grid, self._attention)


def attention_in(network: Network, fused: bool):
    """Make a network ready for training; return the attention for its vision tower."""
    for module in network.modules():
        if isinstance(module, (RMSNorm, nn.LayerNorm)):
            module.register_forward_hook(_to_autocast)
    return scaled_dot_product_attention if fused else chunked_attention


class _FusedAttend:
    """Attention within the batch under one mask; the last layer's queries are some rows only."""

    def __init__(self, visible: torch.Tensor, rows: slice):
        self._visible, self._rows = visible, visible[:, :, rows]

    def __call__(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
    ) -> torch.Tensor:
        """See model.text.Attend."""
        whole = query.shape[2] == key.shape[2]
        return scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=self._visible if whole else self._rows,
            enable_gqa=True,
        )


class _ChunkedAttend:
    """The same, computed in chunks."""

    def __init__(self, visible: torch.Tensor, rows: slice):
        self._chunks = chunks_of(visible[:, 0])
        self._last = chunks_of(visible[:, 0, rows])

    def __call__(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
    ) -> torch.Tensor:
        """See model.text.Attend."""
        chunks = self._chunks if query.shape[2] == key.shape[2] else self._last
        dtype = value.dtype
        return chunked_attention(query.to(dtype), key.to(dtype), value, chunks)


def _to_autocast(module: nn.Module, inputs, output: torch.Tensor) -> torch.Tensor:
    """Round a norm's output once, where autocast would round it for every projection anew."""
    device = output.device.type
    if torch.is_autocast_enabled(device):
        return output.to(torch.get_autocast_dtype(device))
    return output
