import pytest
import torch
from golden_data import GOLDEN, grid, inputs, prompt_specs
from safetensors.torch import load_file

from wamdiff_ros.model.rope import mrope_positions

VISION_IDS = frozenset((500, 501))
ROPE = load_file(GOLDEN / 'rope.safetensors')


def positions(ids, grids):
    return mrope_positions(ids, VISION_IDS, grids, merge_size=2)


@pytest.mark.parametrize('name', ('P1', 'P2', 'P3', 'P4', 'P5'))
def test_positions_and_delta_equal_the_reference(name):
    ids = inputs()[f'{name}.input_ids'][0].tolist()
    mine, following = positions(ids, [grid(i) for i in prompt_specs()[name]['images']])
    assert torch.equal(mine, ROPE[f'{name}.position_ids'][:, 0].long())
    assert following - len(ids) == ROPE[f'{name}.rope_deltas'].item()


@pytest.mark.parametrize('name', ('BL', 'BR', 'BN', 'BT'))
def test_padded_batches_have_the_positions_of_their_unpadded_prompts(name):
    images = list(prompt_specs()[name]['images'])
    rows = zip(inputs()[f'{name}.input_ids'], inputs()[f'{name}.attention_mask'], strict=True)
    for row, (ids, attention) in enumerate(rows):
        real = attention.bool()
        ids = ids[real].tolist()
        used = [images.pop(0)] if 500 in ids else []
        mine, _ = positions(ids, [grid(image) for image in used])
        assert torch.equal(mine, ROPE[f'{name}.position_ids'][:, row, real].long())


def test_the_frames_of_a_video_stand_apart():
    ids = ROPE['VIDEO.input_ids'][0].tolist()
    frame_tokens = ids.count(501) // 2
    height, width = next(
        (h, w)
        for h in (4, 2, 6, 8)
        for w in (4, 6, 2, 8)
        if h // 2 * (w // 2) == frame_tokens
        and torch.equal(positions(ids, [(2, h, w)])[0], ROPE['VIDEO.position_ids'][:, 0].long())
    )
    _, following = positions(ids, [(2, height, width)])
    assert following - len(ids) == ROPE['VIDEO.rope_deltas'].item()


@pytest.mark.parametrize(
    ('ids', 'grids', 'reason'),
    [
        ([1, 500, 500, 2], [], 'more images than the 0 grids'),
        ([1, 500, 2], [(1, 4, 4)], 'fewer placeholders'),
        ([1, 2], [(1, 2, 2)], 'no placeholder tokens'),
    ],
)
def test_placeholders_that_do_not_fit_the_images_are_refused(ids, grids, reason):
    with pytest.raises(ValueError, match=reason):
        positions(ids, grids)
