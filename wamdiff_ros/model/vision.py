"""The vision tower: an image's patches to language-sized tokens, plus deepstack features.

Each image by itself: frames of different cameras do not see each other, and a frame's tokens can
then be kept for as long as the frame is. Images of equal size may go through together. Not
responsible for resizing (see image_processor).
"""

from collections.abc import Callable

import torch
from torch import nn

from .config import VisionConfig
from .rope import axial_angles, merge_order, rotate

# Query, key and value [n, heads, p, d] → output of that shape.
Attention = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
# Of the patches of one image: position embedding [p, hidden], cos and sin [p, head_dim].
Places = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


class PatchEmbed(nn.Module):
    """A 3-D convolution whose stride is its kernel, which is a linear map of each patch."""

    def __init__(self, config: VisionConfig):
        super().__init__()
        size = (config.temporal_patch_size, config.patch_size, config.patch_size)
        # The convolution holds the weight in the checkpoint's layout; it is never run as one.
        self.proj = nn.Conv3d(config.in_channels, config.hidden_size, size, stride=size)

    def forward(self, patches: torch.Tensor) -> torch.Tensor:
        """Patches [..., p, channels*time*height*width] → [..., p, hidden]."""
        return nn.functional.linear(patches, self.proj.weight.flatten(1), self.proj.bias)


class VisionMLP(nn.Module):
    """Feed-forward with the tanh form of GELU."""

    def __init__(self, config: VisionConfig):
        super().__init__()
        self.linear_fc1 = nn.Linear(config.hidden_size, config.intermediate_size)
        self.linear_fc2 = nn.Linear(config.intermediate_size, config.hidden_size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x [..., p, hidden] → the same shape."""
        return self.linear_fc2(nn.functional.gelu(self.linear_fc1(x), approximate='tanh'))


class VisionAttention(nn.Module):
    """Full attention among the patches of each image."""

    def __init__(self, config: VisionConfig):
        super().__init__()
        self.num_heads = config.num_heads
        self.qkv = nn.Linear(config.hidden_size, 3 * config.hidden_size)
        self.proj = nn.Linear(config.hidden_size, config.hidden_size)

    def project(self, x, cos, sin) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """x [n, p, hidden] → rotated query, rotated key and value [n, heads, p, d]."""
        qkv = self.qkv(x).unflatten(-1, (3, self.num_heads, -1))  # [n, p, 3, heads, d]
        query, key, value = (part.transpose(1, 2) for part in qkv.unbind(2))
        return rotate(query, cos, sin), rotate(key, cos, sin), value

    def forward(self, x, cos, sin, attention: Attention) -> torch.Tensor:
        """x [n, p, hidden] → the same shape."""
        out = attention(*self.project(x, cos, sin))
        return self.proj(out.transpose(1, 2).flatten(2))


class VisionBlock(nn.Module):
    """One pre-norm transformer block."""

    def __init__(self, config: VisionConfig):
        super().__init__()
        self.norm1 = nn.LayerNorm(config.hidden_size, eps=1e-6)
        self.norm2 = nn.LayerNorm(config.hidden_size, eps=1e-6)
        self.attn = VisionAttention(config)
        self.mlp = VisionMLP(config)

    def forward(self, x, cos, sin, attention: Attention) -> torch.Tensor:
        """x [n, p, hidden] → the same shape."""
        x = x + self.attn(self.norm1(x), cos, sin, attention)
        return x + self.mlp(self.norm2(x))


class PatchMerger(nn.Module):
    """Merge each window of patches to one token; deepstack mergers norm after the merge."""

    def __init__(self, config: VisionConfig, norm_merged: bool):
        super().__init__()
        self.merged_size = config.hidden_size * config.spatial_merge_size**2
        self.norm_merged = norm_merged
        size = self.merged_size if norm_merged else config.hidden_size
        self.norm = nn.LayerNorm(size, eps=1e-6)
        self.linear_fc1 = nn.Linear(self.merged_size, self.merged_size)
        self.linear_fc2 = nn.Linear(self.merged_size, config.out_hidden_size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x [n, p, hidden] → [n, p / merge_size**2, out_hidden]."""
        merged = (x.shape[0], -1, self.merged_size)
        x = self.norm(x.reshape(merged)) if self.norm_merged else self.norm(x).reshape(merged)
        return self.linear_fc2(nn.functional.gelu(self.linear_fc1(x)))


class VisionTower(nn.Module):
    """Patches of an image → its tokens."""

    def __init__(self, config: VisionConfig):
        super().__init__()
        self.config = config
        self.patch_embed = PatchEmbed(config)
        self.pos_embed = nn.Embedding(config.num_position_embeddings, config.hidden_size)
        self.blocks = nn.ModuleList(VisionBlock(config) for _ in range(config.depth))
        self.merger = PatchMerger(config, norm_merged=False)
        self.deepstack_merger_list = nn.ModuleList(
            PatchMerger(config, norm_merged=True) for _ in config.deepstack_layers
        )

    def position_embedding(self, height: int, width: int) -> torch.Tensor:
        """Return the learned square grid, resampled bilinearly to [height*width, hidden]."""
        side = round(self.config.num_position_embeddings**0.5)
        square = self.pos_embed.weight.reshape(1, side, side, -1).permute(0, 3, 1, 2)
        grid = nn.functional.interpolate(
            square.float(), (height, width), mode='bilinear', align_corners=True
        )
        grid = grid[0].permute(1, 2, 0).to(square.dtype)
        return merge_order(grid, self.config.spatial_merge_size)

    def places(self, height: int, width: int) -> Places:
        """Return what depends on a patch's place alone: its embedding and its rotation."""
        config = self.config
        position = self.position_embedding(height, width)
        angles = axial_angles(
            height, width, config.spatial_merge_size, config.hidden_size // config.num_heads
        ).to(position.device)
        return position, angles.cos(), angles.sin()

    def forward(
        self,
        patches: torch.Tensor,
        grid: tuple[int, int, int],
        attention: Attention = nn.functional.scaled_dot_product_attention,
        places: Places | None = None,
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Encode one image, or n of equal size.

        patches [height*width, channels*time*patch*patch] in merge-window order, or [n, …] of
        that; grid (1, height, width) in patches; places: what `places` returned for the grid, to
        spare computing it again. Returns tokens [height*width / merge**2, out_hidden], or [n, …]
        of that, and one tensor of that shape per deepstack layer.
        """
        if patches.dim() == 2:
            tokens, deepstack = self(patches[None], grid, attention, places)
            return tokens[0], [features[0] for features in deepstack]
        time, height, width = grid
        if time != 1 or patches.shape[1] != height * width:
            raise ValueError(f'{patches.shape[1]} patches do not fill a grid of {grid}')
        return self.encode(patches, places or self.places(height, width), attention)

    def encode(
        self,
        patches: torch.Tensor,
        places: Places,
        attention: Attention = nn.functional.scaled_dot_product_attention,
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Encode patches [n, p, dim] of images that have these `places`; see forward."""
        position, cos, sin = places
        x = self.patch_embed(patches.to(self.pos_embed.weight.dtype)) + position
        deepstack = []
        for index, block in enumerate(self.blocks):
            x = block(x, cos, sin, attention)
            # The reference takes mergers in the order of the list, one per listed layer.
            if index in self.config.deepstack_layers:
                merger = self.config.deepstack_layers.index(index)
                deepstack.append(self.deepstack_merger_list[merger](x))
        return self.merger(x), deepstack
