"""Rotary position embeddings: M-RoPE for the language tower, axial RoPE for the vision tower.

M-RoPE gives every token a position on three axes (time, height, width). Text tokens count up on
all three together; an image's tokens share one time and spread over height and width, and the
text after it goes on from the larger of the two (Qwen3-VL).
"""

from collections.abc import Sequence

import torch


def mrope_positions(
    token_ids: Sequence[int],
    vision_token_ids: frozenset[int],
    grids: Sequence[tuple[int, int, int]],
    merge_size: int,
) -> tuple[torch.Tensor, int]:
    """Return the positions [3, L] of a prompt and the position of the token that follows it.

    `grids` holds (time, height, width) in patches of each image in order. A video's frames stand
    apart in the prompt, each a run of its own, so its grid serves `time` runs of one frame.
    """
    frames = [(h // merge_size, w // merge_size) for t, h, w in grids for _ in range(t)]
    columns = []
    next_position = 0
    index = 0
    while index < len(token_ids):
        if token_ids[index] not in vision_token_ids:
            columns.append(torch.full((3, 1), next_position))
            next_position += 1
            index += 1
            continue
        if not frames:
            raise ValueError(f'the prompt has more images than the {len(grids)} grids given')
        height, width = frames.pop(0)
        run = token_ids[index : index + height * width]
        if len(run) < height * width or not all(token in vision_token_ids for token in run):
            raise ValueError(
                f'an image of {height}x{width} tokens has fewer placeholders than that at {index}'
            )
        rows, cols = torch.meshgrid(torch.arange(height), torch.arange(width), indexing='ij')
        image = torch.stack((torch.zeros_like(rows), rows, cols)).reshape(3, -1)
        columns.append(image + next_position)
        next_position += max(height, width)
        index += height * width
    if frames:
        raise ValueError(f'{len(frames)} image grids have no placeholder tokens in the prompt')
    return torch.cat(columns, dim=1), next_position


class MRope(torch.nn.Module):
    """Interleaved M-RoPE: frequency i belongs to axis i mod 3, as far as that axis goes."""

    def __init__(self, head_dim: int, theta: float, section: tuple[int, int, int]):
        super().__init__()
        inverse = 1.0 / theta ** (torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
        index = torch.arange(head_dim // 2)
        axis = torch.zeros_like(index)
        for which in (1, 2):
            axis[(index % 3 == which) & (index < 3 * section[which])] = which
        self.register_buffer('inverse_frequency', inverse, persistent=False)
        self.register_buffer('axis', axis, persistent=False)

    def forward(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """positions [3, n, L] → cos, sin [n, 1, L, head_dim] in float32."""
        angles = positions[self.axis].permute(1, 2, 0).float() * self.inverse_frequency
        angles = torch.cat((angles, angles), dim=-1).unsqueeze(1)
        return angles.cos(), angles.sin()


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotate x [..., head_dim] by the angles of cos and sin, in float32, back to x's dtype."""
    first, second = x.float().chunk(2, dim=-1)
    return (x * cos + torch.cat((-second, first), dim=-1) * sin).to(x.dtype)


def axial_angles(
    height: int, width: int, merge_size: int, head_dim: int, theta: float = 10000.0
) -> torch.Tensor:
    """Return the angles [height*width, head_dim] of an image's patches in merge-window order."""
    quarter = head_dim // 2
    inverse = 1.0 / theta ** (torch.arange(0, quarter, 2, dtype=torch.float32) / quarter)
    rows, cols = torch.meshgrid(torch.arange(height), torch.arange(width), indexing='ij')
    places = merge_order(torch.stack((rows, cols), dim=-1), merge_size)  # [h*w, 2]
    angles = (places[:, :, None] * inverse).flatten(1)  # [h*w, head_dim/2]: rows, then columns
    return torch.cat((angles, angles), dim=-1)


def merge_order(grid: torch.Tensor, merge_size: int) -> torch.Tensor:
    """Reorder [height, width, c] to [height*width, c], so that each merge window is contiguous."""
    height, width, channels = grid.shape
    windows = grid.reshape(
        height // merge_size, merge_size, width // merge_size, merge_size, channels
    )
    return windows.transpose(1, 2).reshape(height * width, channels)
