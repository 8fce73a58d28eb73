"""Products with packed weights against plain ones."""

import gc

import pytest
import torch
from golden_data import golden_engine

from wamdiff_ros.runtime import products
from wamdiff_ros.runtime.engine import Engine
from wamdiff_ros.runtime.options import PLAIN, EngineOptions
from wamdiff_ros.runtime.products import Packed, Plain, product

DTYPES = [torch.float32, torch.bfloat16]


def weight_of(dtype, outputs=1024, inputs=64):
    return torch.randn(outputs, inputs, generator=torch.Generator().manual_seed(0)).to(dtype)


@pytest.fixture(autouse=True)
def packing():
    if not products.pays(weight_of(torch.float32), 32):
        pytest.skip('this torch packs no weights on this processor')


@pytest.mark.parametrize('dtype', DTYPES, ids=str)
@pytest.mark.parametrize('rows', (0, 1, 31, 32, 65))
def test_packed_weights_give_what_plain_ones_do(dtype, rows):
    weight = weight_of(dtype)
    if not products.pays(weight, 32):
        pytest.skip(f'no packed weights in {dtype} on this processor')
    packed, plain = Packed(weight, 32), Plain(weight)
    x, to = torch.randn(2, rows, 64).to(dtype), torch.randn(2, rows, 1024).to(dtype)
    before = to.clone()
    close = {'rtol': 2e-2, 'atol': 2e-2} if dtype == torch.bfloat16 else {}
    torch.testing.assert_close(packed(x), plain(x), **close)
    torch.testing.assert_close(packed.added(x, to), plain.added(x, to), **close)
    assert torch.equal(to, before)


def test_small_float_products_stay_plain():
    assert isinstance(product(weight_of(torch.float32), 32), Packed)
    assert isinstance(product(weight_of(torch.float32, outputs=256), 32), Plain)
    assert isinstance(product(weight_of(torch.float32), 1), Plain)
    assert isinstance(product(weight_of(torch.float32), None), Plain)


def test_who_packs_the_same_weight_shares_the_copy_and_nobody_keeps_it_alive():
    weight, other = weight_of(torch.float32), weight_of(torch.float32)
    one, two = product(weight, 32), product(weight, 32)
    assert one is two
    assert product(other, 32) is not one
    count = len(products._PACKED)
    del one, two
    gc.collect()
    assert len(products._PACKED) == count - 1


def test_an_engine_packs_unless_a_compiler_does(tmp_path, monkeypatch):
    monkeypatch.setattr(products, 'FLOAT_OUTPUTS', 1)
    network = golden_engine('A_tied', tmp_path, block_size=8).network
    layer = Engine(network, EngineOptions())._text._layers[0]
    assert all(isinstance(p, Packed) for p in (layer.qkv, layer.gate_up, layer.out, layer.down))
    for options in (EngineOptions(runtime='graph'), EngineOptions(packed_weights=False)):
        assert isinstance(Engine(network, options)._text._layers[0].qkv, Plain)
    assert Engine(network, PLAIN)._head == network.head
