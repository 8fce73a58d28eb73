"""The network against `transformers`' own Qwen3-VL with the same weights."""

import json

import pytest
import torch
from golden_data import (
    GOLDEN,
    golden_engine,
    golden_prompt,
    grid,
    image_processor,
    inputs,
    prefill,
)
from safetensors.torch import load_file

from wamdiff_ros.decoding.autoregressive import decode_tokens
from wamdiff_ros.decoding.sampling import Sampling

transformers = pytest.importorskip('transformers', reason='oracle of these tests')


def theirs(variant):
    """Return transformers' model with a golden checkpoint's weights."""
    values = json.loads((GOLDEN / variant / 'config.json').read_text())
    text = dict(values['text_config'], model_type='qwen3_vl_text')
    rope = text.pop('rope_scaling')
    text['rope_parameters'] = {**rope, 'rope_theta': text.pop('rope_theta')}
    config = transformers.Qwen3VLConfig(
        text_config=text,
        vision_config=dict(values['vision_config'], model_type='qwen3_vl_vision'),
        tie_word_embeddings=values['tie_word_embeddings'],
        **{k: v for k, v in values.items() if k.endswith('token_id') and k != 'mask_token_id'},
    )
    model = transformers.Qwen3VLForConditionalGeneration(config).eval()
    weights = load_file(GOLDEN / variant / 'model.safetensors')
    missing, surplus = model.load_state_dict(weights, strict=False)
    assert not surplus and set(missing) <= {'lm_head.weight'}
    model.tie_weights()
    return model


def their_inputs(engine, name):
    prompt, images = golden_prompt(name, engine.config)
    ids = torch.tensor([prompt.token_ids])
    arguments = {'input_ids': ids, 'attention_mask': torch.ones_like(ids)}
    if images:
        arguments['pixel_values'] = torch.cat([inputs()[f'{i}.pixel_values'] for i in images])
        arguments['image_grid_thw'] = torch.tensor([grid(i) for i in images])
        arguments['mm_token_type_ids'] = (ids == engine.config.image_token_id).int()
    return arguments


@pytest.mark.parametrize('variant', ('A_tied', 'B_untied'))
@pytest.mark.parametrize('name', ('P1', 'P2', 'P3'))
def test_causal_logits_equal_transformers(variant, name, tmp_path):
    engine = golden_engine(variant, tmp_path, block_size=1)
    _, mine = prefill(engine, [name], 8, all_logits=True)
    with torch.no_grad():
        logits = theirs(variant)(**their_inputs(engine, name)).logits
    torch.testing.assert_close(mine, logits, atol=1e-4, rtol=0)


@pytest.mark.parametrize('name', ('P2', 'P3'))
def test_autoregressive_decoding_equals_generate(name, tmp_path):
    engine = golden_engine('B_untied', tmp_path, block_size=1)
    prefill(engine, [name], 12)
    (answer,) = decode_tokens(engine, (-1,), Sampling(), 12)
    ids = their_inputs(engine, name)
    generated = theirs('B_untied').generate(
        **ids, max_new_tokens=12, do_sample=False, eos_token_id=None
    )
    assert list(answer.token_ids) == generated[0, ids['input_ids'].shape[1] :].tolist()


@pytest.mark.parametrize('size', ((64, 96), (70, 100), (33, 200), (480, 640), (8, 9), (721, 1281)))
def test_patches_equal_the_image_processor_of_transformers(size):
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import (
        Qwen2VLImageProcessorPil,
    )

    mine = image_processor()
    processor = Qwen2VLImageProcessorPil(
        size={'shortest_edge': mine.min_pixels, 'longest_edge': mine.max_pixels},
        patch_size=mine.patch_size,
        temporal_patch_size=mine.temporal_patch_size,
        merge_size=mine.merge_size,
        image_mean=list(mine.mean),
        image_std=list(mine.std),
    )
    rgb = torch.randint(
        0, 256, (*size, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(1)
    ).numpy()
    expected = processor([rgb], return_tensors='pt')
    patches, patch_grid = mine.patches(rgb)
    assert list(patch_grid) == expected['image_grid_thw'][0].tolist()
    torch.testing.assert_close(
        torch.from_numpy(patches.copy()), expected['pixel_values'].float(), atol=1e-6, rtol=0
    )
