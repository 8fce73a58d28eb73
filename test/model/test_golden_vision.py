import numpy as np
import pytest
import torch
from golden_data import GOLDEN, VARIANTS, golden_engine, grid, image_processor, inputs
from safetensors.torch import load_file

IMAGES = ('img1', 'img2')


@pytest.mark.parametrize('image', ('img1', 'img2', 'img3_resize'))
def test_patches_equal_the_reference_processor(image):
    patches, size = image_processor().patches(inputs()[f'{image}.rgb'].numpy())
    assert size == grid(image)
    np.testing.assert_allclose(patches, inputs()[f'{image}.pixel_values'].numpy(), atol=1e-6)


@pytest.mark.parametrize('variant', VARIANTS)
@pytest.mark.parametrize('image', IMAGES)
def test_vision_tower_equals_the_reference(variant, image, tmp_path):
    engine = golden_engine(variant, tmp_path)
    golden = load_file(GOLDEN / f'forward_{variant}.safetensors')
    tower, patches = engine.network.vision, inputs()[f'{image}.pixel_values']
    _, height, width = grid(image)

    def close(value, name):
        torch.testing.assert_close(value, golden[f'vision.{image}.{name}'], atol=1e-4, rtol=0)

    close(tower.patch_embed(patches), 'patch_embed')
    close(tower.position_embedding(height, width), 'pos_embed_interp')
    features = engine.encode_image('x', patches.numpy(), grid(image))
    close(features.tokens, 'out')
    assert len(features.deepstack) == 3
    for index, value in enumerate(features.deepstack):
        close(value, f'deepstack{index}')


def test_a_grid_that_the_patches_do_not_fill_is_refused(tmp_path):
    engine = golden_engine('A_tied', tmp_path)
    with pytest.raises(ValueError, match='do not fill a grid'):
        engine.encode_image('x', inputs()['img1.pixel_values'].numpy(), (1, 4, 4))
