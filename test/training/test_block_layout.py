import json

import numpy as np
import pytest
import torch
from golden_data import GOLDEN
from safetensors.torch import load_file

from wamdiff_ros.model.chat import Prompt
from wamdiff_ros.training import block_layout as layout
from wamdiff_ros.training.noise import Noise

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


def prompt(length: int, following: int) -> Prompt:
    return Prompt(tuple(range(1, length + 1)), torch.arange(length).expand(3, -1), following, ())


def test_masked_slots_are_labelled_with_their_own_token_and_share_out_the_answer():
    answer = layout.fill_answer(range(10, 21), EOS, 4)
    noisy, noise, *_ = Noise(layout.Layout(4, 2), MASK).add(answer, np.random.default_rng(0))
    batch = layout.lay_out_blocks([prompt(5, 9)], [answer], [noisy], [noise], 4, MASK)
    size = 5 + 3 * len(answer)
    assert batch.token_ids.shape == (1, size)
    assert batch.rows == slice(5 + len(answer), size)
    masked = torch.zeros(size, dtype=torch.bool)
    masked[batch.rows.start + batch.slots] = True
    assert torch.equal(masked, batch.token_ids[0] == MASK)
    assert 0 < masked.sum() < 2 * len(answer)
    clean = torch.tensor(answer)
    assert torch.equal(batch.labels, clean.repeat(2)[masked[5 + len(answer) :]])
    assert torch.allclose(batch.shares, torch.tensor(1 / (2 * len(answer))))
    copies = batch.positions[:, 0, 5:].unflatten(1, (3, -1))
    assert torch.equal(copies, (9 + torch.arange(12)).expand(3, 3, -1))


def test_noisy_copies_do_not_see_each_other():
    kinds, blocks = layout.token_kinds(5, 8, 4, copies=2)
    visible = layout.visibility(kinds, blocks)
    single = layout.visibility(*layout.token_kinds(5, 8, 4))
    first, second = slice(13, 21), slice(21, 29)
    assert not visible[first, second].any() and not visible[second, first].any()
    assert torch.equal(visible[:21, :21], single)
    assert torch.equal(visible[second, :13], single[first, :13])
    assert torch.equal(visible[second, second], single[first, first])


def test_samples_of_unequal_length_keep_the_mask_that_they_have_alone():
    lengths = [(5, 8), (7, 4)]
    both = layout.batch_visibility(lengths, 4, 1, 21)
    for row, (p, a) in enumerate(lengths):
        alone = layout.batch_visibility([(p, a)], 4, 1, p + 2 * a)[0, 0]
        size = p + 2 * a
        assert torch.equal(both[row, 0, :size, :size], alone)
        assert not both[row, 0, :size, size:].any()


def test_each_token_of_an_autoregressive_answer_is_predicted_by_the_one_before_it():
    batch = layout.lay_out_tokens([prompt(5, 9), prompt(3, 3)], [[20, 21], [30]], EOS)
    assert batch.token_ids.tolist() == [[1, 2, 3, 4, 5, 20, 21, EOS], [1, 2, 3, 30] + [EOS] * 4]
    assert batch.visible is None
    assert batch.rows == slice(2, 7)
    assert batch.slots.tolist() == [2, 3, 4, 5 + 0, 5 + 1]
    assert batch.labels.tolist() == [20, 21, EOS, 30, EOS]
    assert batch.positions[0, 0].tolist() == [0, 1, 2, 3, 4, 9, 10, 11]
    assert torch.allclose(batch.shares, torch.tensor([1 / 6] * 3 + [1 / 4] * 2))
