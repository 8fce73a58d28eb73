"""Teach a vision tower to see before it learns to speak: the nano models' vision pre-training.

A real Qwen3-VL comes with a vision tower that has seen a billion pictures. A nano one starts from
noise, and letters are a thin channel to learn to see through. So its tower first learns with a
head that is thrown away afterwards: from all image tokens together the expert's waypoints, the
critical objects and the meta-behaviours; from each token what lies in its part of the picture.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, smooth_l1_loss

from ..simulation.boxes import KINDS
from ..simulation.truth import LATERAL, LONGITUDINAL, OBJECTS
from ..types import Command
from .records import DrivingRecord

COMMANDS = tuple(Command)
# Waypoints are learnt in units of their spread [m], per waypoint: forward, left.
SCALE_M = np.array([0.5, 0.2]) + np.outer(np.arange(1, 9) / 8, (12.0, 6.0))
STATE = 4 + len(COMMANDS)  # speed, acceleration forward and left, standing still; the command


@dataclass(frozen=True, eq=False)
class Seen:
    """What a batch of n pictures shows; the head learns to say it."""

    state: torch.Tensor  # [n, STATE], what the head is told besides the picture
    waypoints: torch.Tensor  # [n, 16] in units of SCALE_M
    objects: torch.Tensor  # [n, 12], 0 or 1
    longitudinal: torch.Tensor  # [n], index into LONGITUDINAL
    lateral: torch.Tensor  # [n], index into LATERAL
    cells: torch.Tensor  # [n, rows * columns, kinds], 1 where a box covers a token's part


def seen(records: list[DrivingRecord], rows: int, columns: int) -> Seen:
    """Turn records into targets; `rows` x `columns` tokens per picture."""
    state = np.zeros((len(records), STATE), np.float32)
    for row, record in enumerate(records):
        speed = record.velocity_base_mps[0]
        state[row, :4] = (
            speed / 10,
            record.acceleration_base_mps2[0] / 3,
            record.acceleration_base_mps2[1] / 3,
            speed < 0.1,
        )
        state[row, 4 + COMMANDS.index(record.command)] = 1
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


def perception_loss(head: PerceptionHead, features: list[torch.Tensor], truth: Seen):
    """Return the loss, and its parts by name as detached numbers."""
    waypoints, objects, longitudinal, lateral, kinds = head(features, truth.state)
    # Things are rare: without a weight "nothing there" is learnt first and for long.
    rare = torch.tensor(8.0)
    parts = {
        'waypoints': 4 * smooth_l1_loss(waypoints, truth.waypoints, beta=0.05),
        'objects': binary_cross_entropy_with_logits(objects, truth.objects),
        'longitudinal': cross_entropy(longitudinal, truth.longitudinal),
        'lateral': cross_entropy(lateral, truth.lateral),
        'cells': 2
        * sum(binary_cross_entropy_with_logits(k, truth.cells, pos_weight=rare) for k in kinds)
        / len(kinds),
    }
    metres = (waypoints - truth.waypoints).detach().float().unflatten(1, (8, 2))
    metres = (metres * torch.from_numpy(SCALE_M).float()).norm(dim=-1).mean()
    return sum(parts.values()), {n: p.item() for n, p in parts.items()} | {'l2_m': metres.item()}
