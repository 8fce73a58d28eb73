import pytest
import torch
from golden_data import GOLDEN, VARIANTS, golden_engine, prefill
from safetensors.torch import load_file


def golden_forward(variant):
    return load_file(GOLDEN / f'forward_{variant}.safetensors')


PREFILLS = [
    (variant, *key.removeprefix('prefill.').removesuffix('.logits').split('.bs'))
    for variant in VARIANTS
    for key in golden_forward(variant)
    if key.startswith('prefill.') and key.endswith('.logits')
]


@pytest.mark.parametrize(('variant', 'prompt', 'block_size'), PREFILLS)
def test_prefill_logits_equal_the_reference(variant, prompt, block_size, tmp_path):
    engine = golden_engine(variant, tmp_path, block_size=int(block_size))
    _, logits = prefill(engine, [prompt], 8, all_logits=True)
    golden = golden_forward(variant)[f'prefill.{prompt}.bs{block_size}.logits']
    torch.testing.assert_close(logits[0], golden, atol=1e-4, rtol=0)


@pytest.mark.parametrize('variant', VARIANTS)
def test_keys_values_and_first_denoising_logits_equal_the_reference(variant, tmp_path):
    engine = golden_engine(variant, tmp_path, block_size=8)
    golden = golden_forward(variant)
    prefill(engine, ['P2'], 8)
    for layer in range(4):
        for name, mine in (('k', engine._cache.keys), ('v', engine._cache.values)):
            torch.testing.assert_close(
                mine[layer, 0, :, :45], golden[f'prefill.P2.bs8.{name}{layer}'], atol=1e-4, rtol=0
            )
    block = torch.full((1, 8), engine.config.mask_token_id)
    logits = engine.denoise(block, torch.ones(1, 8, dtype=torch.bool))
    torch.testing.assert_close(logits, golden['denoise0.P2.bs8.logits'], atol=1e-4, rtol=0)
