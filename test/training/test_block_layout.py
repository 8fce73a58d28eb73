import json

import pytest
import torch
from golden_data import GOLDEN
from safetensors.torch import load_file

from wamdiff_ros.training import block_layout as layout

MASK, EOS = 511, 505


@pytest.mark.parametrize('name', ('mask_b4', 'mask_b8', 'mask_b32'))
def test_who_sees_whom_equals_the_reference(name):
    golden = load_file(GOLDEN / 'training.safetensors')
    cases = json.loads((GOLDEN / 'training.json').read_text())
    case = next(case for case in cases['cases'] if case['name'] == name)
    for row, sample in enumerate(case['samples']):
        ids = cases['samples'][sample]['ids']
        prefix = ids.index(507) + 2  # up to the newline after "assistant"
        ends = ids.index(EOS, prefix)
        answer = layout.fill_answer(ids[prefix:ends], EOS, case['block_size'])
        kinds, blocks = layout.token_kinds(prefix, len(answer), case['block_size'])
        mine = layout.visibility(kinds, blocks)
        size = len(kinds)
        expected = golden[f'{name}/sdpa_full_mask'][row, :size, :size].bool()
        assert torch.equal(mine, expected)
        positions = golden[f'{name}/position_ids'][:, row, :size]
        assert torch.equal(
            positions[:, prefix : prefix + len(answer)], positions[:, prefix + len(answer) :]
        )


def test_noise_levels_are_spread_evenly_over_the_blocks():
    for seed in range(20):
        levels = layout.stratified_noise(8, torch.Generator().manual_seed(seed)).sort().values
        assert torch.allclose(levels.diff(), torch.full((7,), 1 / 8), atol=1e-6)
        assert 0 < levels[0] <= 1 / 8 and levels[-1] <= 1


def test_masked_slots_are_labelled_with_their_own_token_and_weighted_by_their_noise():
    generator = torch.Generator().manual_seed(0)
    answer = layout.fill_answer(range(10, 21), EOS, 4)
    prefix = ([1, 2, 3, 4, 5], torch.arange(5).expand(3, -1), 5)
    batch = layout.collate([prefix], [answer], 4, MASK, generator)
    noisy = slice(5 + len(answer), None)
    masked = batch.token_ids[0, noisy] == MASK
    assert masked.any() and not masked.all()
    assert torch.equal(batch.labels[0, noisy][masked], torch.tensor(answer)[masked])
    assert (batch.labels[0, : noisy.start] == -100).all()
    assert (batch.weights[0, noisy][masked] * len(answer) >= 1).all()
    assert torch.equal(batch.positions[:, 0, 5:17], batch.positions[:, 0, 17:])
