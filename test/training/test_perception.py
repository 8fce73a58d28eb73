"""Targets and head of vision pre-training."""

import numpy as np
import torch
from training_data import records

from wamdiff_ros.simulation.boxes import KINDS
from wamdiff_ros.training.perception import SCALE_M, PerceptionHead, cells, perception_losses, seen


def test_a_cell_holds_what_covers_it_and_what_lies_in_it():
    red, vehicle = KINDS.index('red'), KINDS.index('vehicle')
    held = cells(
        [('red', 0.51, 0.01, 0.53, 0.05), ('vehicle', 0.0, 0.5, 1.0, 1.0)], rows=2, columns=4
    ).reshape(2, 4, len(KINDS))
    assert held[:, :, red].tolist() == [[0, 0, 1, 0], [0, 0, 0, 0]]  # small, yet in its cell
    assert held[:, :, vehicle].tolist() == [[0, 0, 0, 0], [1, 1, 1, 1]]


def test_a_box_that_only_touches_a_cell_is_not_in_it():
    held = cells([('green', 0.0, 0.0, 0.26, 1.0)], rows=1, columns=4)
    assert held[:, KINDS.index('green')].tolist() == [1, 0, 0, 0]


def test_targets_are_those_of_the_records():
    some = records(4)
    truth = seen(some, 2, 4)
    metres = truth.waypoints.reshape(4, 8, 2).numpy() * SCALE_M
    np.testing.assert_allclose(metres, [r.waypoints_base_m for r in some], atol=1e-4)
    assert truth.objects.tolist() == [[float(v) for v in r.objects.values()] for r in some]
    assert truth.state[:, 0].tolist() == [
        np.float32(record.velocity_base_mps[0] / 10) for record in some
    ]


def test_the_head_learns_what_tokens_show():
    torch.manual_seed(0)
    some, head = records(4), PerceptionHead(16, tokens=8, features=2)
    truth = seen(some, 2, 4)
    features = [torch.randn(4, 8, 16) for _ in range(2)]
    optimizer = torch.optim.AdamW(head.parameters(), lr=1e-2)
    first = last = None
    for _ in range(60):
        last = sum(perception_losses(head(features, truth.state), truth).values())
        first = first or last.item()
        optimizer.zero_grad()
        last.backward()
        optimizer.step()
    assert last.item() < 0.1 * first
