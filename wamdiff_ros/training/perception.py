"""Teach a vision tower to see before it learns to speak: the nano models' vision pre-training.

A real Qwen3-VL comes with a vision tower that has seen a billion pictures. A nano one starts from
noise, and letters are a thin channel to learn to see through. So its tower first learns with a
head that is thrown away afterwards: from all image tokens together the expert's waypoints, the
critical objects and the meta-behaviours; from each token what lies in its part of the picture.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, smooth_l1_loss

from ..model.network import Network
from ..simulation.boxes import KINDS
from ..simulation.truth import LATERAL, LONGITUDINAL
from ..types import Command
from .network_forward import ImageGroup, attention_in
from .records import OBJECTS, DrivingRecord

COMMANDS = tuple(Command)
# Waypoints are learnt in units of about their spread [m], per waypoint: forward, left. To the left
# a third of it: ten centimetres across decide whether a vehicle stays in its lane.
SCALE_M = np.array([0.5, 0.1]) + np.outer(np.arange(1, 9) / 8, (12.0, 2.0))
STATE = 2 + len(COMMANDS)  # speed, standing still; the command


@dataclass(frozen=True, eq=False)
class Seen:
    """What a batch of n pictures shows; the head learns to say it."""

    state: torch.Tensor  # [n, STATE], what the head is told besides the picture
    waypoints: torch.Tensor  # [n, 16] in units of SCALE_M
    objects: torch.Tensor  # [n, 12], 0 or 1
    longitudinal: torch.Tensor  # [n], index into LONGITUDINAL
    lateral: torch.Tensor  # [n], index into LATERAL
    cells: torch.Tensor  # [n, rows * columns, kinds], 1 where a box covers a token's part


def seen(records: Sequence[DrivingRecord], rows: int, columns: int) -> Seen:
    """Turn records into targets; `rows` x `columns` tokens per picture."""
    state = np.zeros((len(records), STATE), np.float32)
    for row, record in enumerate(records):
        speed = record.velocity_base_mps[0]
        state[row, :2] = speed / 10, speed < 0.1
        state[row, 2 + COMMANDS.index(record.command)] = 1
    waypoints = np.stack([np.asarray(r.waypoints_base_m) / SCALE_M for r in records])
    return Seen(
        torch.from_numpy(state),
        torch.from_numpy(waypoints.reshape(len(records), -1).astype(np.float32)),
        torch.tensor([[float(r.objects[name]) for name in OBJECTS] for r in records]),
        torch.tensor([LONGITUDINAL.index(r.longitudinal) for r in records]),
        torch.tensor([LATERAL.index(r.lateral) for r in records]),
        torch.stack([cells(r.boxes, rows, columns) for r in records]),
    )


def cells(boxes, rows: int, columns: int) -> torch.Tensor:
    """Return which kinds lie in each cell, [rows * columns, kinds].

    A cell holds a thing if that covers a quarter of the cell, or has a quarter of its own area,
    at least, in it. `boxes`: (kind, left, top, right, bottom) in fractions of the picture.
    """
    held = np.zeros((rows, columns, len(KINDS)), np.float32)
    y, x = np.arange(rows + 1) / rows, np.arange(columns + 1) / columns
    for kind, left, top, right, bottom in boxes:
        wide = np.clip(np.minimum(right, x[1:]) - np.maximum(left, x[:-1]), 0, None)
        high = np.clip(np.minimum(bottom, y[1:]) - np.maximum(top, y[:-1]), 0, None)
        overlap = np.outer(high, wide)
        enough = min(1 / (rows * columns), (right - left) * (bottom - top)) / 4
        held[overlap >= max(enough, 1e-9), KINDS.index(kind)] = 1
    return torch.from_numpy(held.reshape(-1, len(KINDS)))


class PerceptionHead(nn.Module):
    """Reads image tokens; thrown away after vision pre-training."""

    def __init__(self, token_size: int, tokens: int, features: int, hidden: int = 384):
        """features: how many token sequences the tower gives: its output and deepstack layers."""
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(token_size) for _ in range(features))
        self.kinds = nn.ModuleList(nn.Linear(token_size, len(KINDS)) for _ in range(features))
        self.squeeze = nn.Linear(token_size * features, 48)
        self.state = nn.Linear(STATE, hidden)
        self.all = nn.Linear(48 * tokens, hidden)
        self.mix = nn.Sequential(nn.GELU(), nn.Linear(hidden, hidden), nn.GELU())
        self.waypoints = nn.Linear(hidden, 16)
        self.objects = nn.Linear(hidden, len(OBJECTS))
        self.longitudinal = nn.Linear(hidden, len(LONGITUDINAL))
        self.lateral = nn.Linear(hidden, len(LATERAL))

    def forward(self, features: list[torch.Tensor], state: torch.Tensor):
        """Features [n, tokens, size] each → logits as in `Seen`, cells once per feature."""
        normed = [norm(f) for norm, f in zip(self.norms, features, strict=True)]
        kinds = [head(f) for head, f in zip(self.kinds, normed, strict=True)]
        squeezed = self.squeeze(torch.cat(normed, dim=-1)).flatten(1)
        hidden = self.mix(self.all(squeezed) + self.state(state))
        return (
            self.waypoints(hidden),
            self.objects(hidden),
            self.longitudinal(hidden),
            self.lateral(hidden),
            kinds,
        )


def perception_losses(said, truth: Seen) -> dict[str, torch.Tensor]:
    """Return the losses of what a `PerceptionHead` says, by name; their sum is minimised."""
    waypoints, objects, longitudinal, lateral, kinds = said
    # Things are rare: without a weight "nothing there" is learnt first and for long.
    rare = torch.tensor(8.0, device=waypoints.device)
    return {
        'waypoints': 4 * smooth_l1_loss(waypoints, truth.waypoints, beta=0.05),
        'objects': binary_cross_entropy_with_logits(objects, truth.objects),
        'longitudinal': cross_entropy(longitudinal, truth.longitudinal),
        'lateral': cross_entropy(lateral, truth.lateral),
        'cells': 2
        * sum(binary_cross_entropy_with_logits(k, truth.cells, pos_weight=rare) for k in kinds)
        / len(kinds),
    }


class VisionForward(nn.Module):
    """A network's vision tower and the head on top, as one module with one forward."""

    def __init__(self, network: Network, image_size: tuple[int, int], fused_attention: bool):
        """image_size: (width, height) of all pictures, in pixels."""
        super().__init__()
        vision = network.config.vision
        token = vision.patch_size * vision.spatial_merge_size
        self.columns, self.rows = (edge // token for edge in image_size)
        self.network = network.requires_grad_(False)
        network.vision.requires_grad_(True)
        self.perception = PerceptionHead(
            network.config.text.hidden_size,
            self.rows * self.columns,
            1 + len(vision.deepstack_layers),
        )
        self.attention = attention_in(network, fused_attention)

    def compile_layers(self) -> None:
        """Compile the tower's layers, all by the same code."""
        for layer in self.network.vision.blocks:
            layer.compile()

    def forward(self, images: Sequence[ImageGroup], truth: Seen):
        """Return what the head says of one image per sample, see `PerceptionHead`."""
        if len(images) != 1 or len(images[0].rows) != len(truth.state):
            raise ValueError('vision pre-training takes one camera and one image size')
        tokens, deepstack = self.network.vision(images[0].patches, images[0].grid, self.attention)
        return self.perception([feature.float() for feature in (tokens, *deepstack)], truth.state)
