"""Each faster path of the engine against the plain one."""

from dataclasses import fields, replace

import pytest
import torch
from golden_data import VARIANTS, features, golden_engine, golden_prompt, prefill

from wamdiff_ros.decoding.block_diffusion import BlockSettings, Trace, decode_blocks
from wamdiff_ros.decoding.unmasking import Unmasking
from wamdiff_ros.runtime import products
from wamdiff_ros.runtime.engine import Engine
from wamdiff_ros.runtime.graph_runner import GraphRunner, compiled
from wamdiff_ros.runtime.options import PLAIN, EngineOptions
from wamdiff_ros.runtime.paged_forward import PagedBackend
from wamdiff_ros.runtime.torch_paged_kernel import TORCH_KERNELS

SWITCHES = [f.name for f in fields(EngineOptions) if f.type is bool or f.type == 'bool']
FAST = {name: replace(PLAIN, **{name: True}) for name in SWITCHES}
FAST['all'] = EngineOptions(runtime='eager')
RULES = [
    BlockSettings(8, 511, (366, 214), 8, confidence_threshold=0.5),
    BlockSettings(8, 511, (366, 214), 3, Unmasking.STATIC),
]


def buffers_only(function):
    """Stand in for a compiler: the buffers are what is tested."""
    return function


def on_graphs(engine, compiler=buffers_only, **arguments):
    runner = GraphRunner(engine.device, compiler)
    options = EngineOptions(runtime='graph')
    return Engine(engine.network, options, runner=runner, **arguments), runner


def answers(engine, name, rule, new_tokens=32):
    prefill(engine, name if isinstance(name, list) else [name], new_tokens)
    trace = Trace(record=True)
    return decode_blocks(engine, rule, new_tokens, trace=trace), trace


def assert_equal_decoding(one, other):
    assert one[0] == other[0]
    assert one[1].steps_per_block == other[1].steps_per_block
    for (block, x0, p), (block2, x02, p2) in zip(one[1].steps, other[1].steps, strict=True):
        assert torch.equal(block, block2)
        shown = p >= 0
        assert torch.equal(x0[shown], x02[shown])
        torch.testing.assert_close(p, p2, atol=1e-5, rtol=0)


@pytest.fixture(scope='module')
def plain_answers(tmp_path_factory):
    """What the plain path answers: per rule, with a checkpoint of its own for each."""
    return {
        index: decoded(PLAIN, index, tmp_path_factory.mktemp('plain'))
        for index in range(len(RULES))
    }


def decoded(options, index, folder):
    engine = golden_engine(VARIANTS[index], folder, 3.0, options, block_size=8)
    prompts = ['P2', 'P3', 'P2', ['P4', 'P5'], ['P1', 'P3']]
    return [answers(engine, prompt, RULES[index]) for prompt in prompts]


@pytest.mark.parametrize('index', range(len(RULES)), ids=('dynamic', 'static'))
@pytest.mark.parametrize('path', FAST)
def test_each_switch_decodes_as_the_plain_path_does(
    path, index, plain_answers, tmp_path, monkeypatch
):
    monkeypatch.setattr(products, 'FLOAT_OUTPUTS', 1)  # the golden networks are narrow
    fast = decoded(FAST[path], index, tmp_path)
    for one, other in zip(plain_answers[index], fast, strict=True):
        assert_equal_decoding(one, other)


def test_a_folded_commit_spares_one_forward_per_block(tmp_path, monkeypatch):
    forwards = {}
    for name in ('folded_commit', 'prefix_reuse'):
        engine = golden_engine('A_tied', tmp_path / name, options=FAST[name], block_size=8)
        count, forward = [], engine._forward
        monkeypatch.setattr(
            engine, '_forward', lambda *a, c=count, f=forward: c.append(1) or f(*a)
        )
        answers(engine, 'P2', BlockSettings(8, 511, (), 2))
        forwards[name] = len(count)
    assert forwards == {'folded_commit': 4 * 2, 'prefix_reuse': 4 * 2 + 3}


def test_several_blocks_in_one_forward_see_those_before_them_and_not_those_after(tmp_path):
    for number, options in enumerate((PLAIN, FAST['all'])):
        engine = golden_engine('A_tied', tmp_path / str(number), options=options, block_size=8)
        tokens = torch.randint(0, 500, (1, 24), generator=torch.Generator().manual_seed(1))
        masked = torch.ones(1, 8, dtype=torch.bool)
        prefill(engine, ['P2'], 24)
        alone = []
        for block in tokens.split(8, dim=1):
            alone.append(engine.denoise(block, masked))
            engine.commit(block)
        prefill(engine, ['P2'], 24)
        together = engine.denoise(tokens, masked.repeat(1, 3))
        torch.testing.assert_close(together, torch.cat(alone), atol=1e-5, rtol=0)
        prefill(engine, ['P2'], 24)
        behind = engine.denoise(tokens[:, 8:], masked.repeat(1, 2), tokens[:, :8])
        torch.testing.assert_close(behind, torch.cat(alone[1:]), atol=1e-5, rtol=0)


def test_fused_weights_are_not_held_twice_and_the_plain_tower_still_runs(tmp_path):
    engine = golden_engine('A_tied', tmp_path, options=PLAIN, block_size=8)
    before = answers(engine, 'P2', RULES[0])
    names = list(engine.network.state_dict())
    fused = Engine(engine.network, FAST['fused_weights'])
    layer = engine.network.text.layers[0]
    storage = layer.self_attn.q_proj.weight.untyped_storage().data_ptr()
    assert layer.self_attn.v_proj.weight.untyped_storage().data_ptr() == storage
    assert fused._text._layers[0].qkv.weight.untyped_storage().data_ptr() == storage
    assert_equal_decoding(before, answers(engine, 'P2', RULES[0]))
    assert list(engine.network.state_dict()) == names


@pytest.mark.parametrize('variant', VARIANTS)
def test_static_buffers_decode_as_the_plain_path_does(variant, tmp_path):
    plain = golden_engine(variant, tmp_path, 3.0, block_size=8)
    graphs, runner = on_graphs(plain)
    for names in ('P2', 'P4', 'P2', 'P3', ['P4', 'P5'], ['P1', 'P3'], 'P1'):
        assert_equal_decoding(answers(plain, names, RULES[0]), answers(graphs, names, RULES[0]))
    assert runner.captures > 0
    assert graphs.backend == 'sdpa graph cpu float32'


def test_a_shape_is_captured_once_and_again_only_for_another_cache(tmp_path):
    graphs, runner = on_graphs(golden_engine('A_tied', tmp_path, block_size=8))
    for name in ('P2', 'P4'):
        answers(graphs, name, RULES[1])
    captures = runner.captures
    for name in ('P2', 'P4') * 3:
        answers(graphs, name, RULES[1])
    assert runner.captures == captures
    answers(graphs, 'P2', RULES[1], 400)  # more than the cache's capacity
    assert captures < runner.captures <= 2 * captures


def test_prefix_reuse_over_static_buffers_is_equal_to_the_last_bit(tmp_path):
    graphs, _ = on_graphs(golden_engine('A_tied', tmp_path, block_size=8))
    prompt, names = golden_prompt('P2', graphs.config)
    images = features(graphs, names)
    block, masked = torch.full((1, 8), 511), torch.ones(1, 8, dtype=torch.bool)
    logits = []
    for expected in (0, 24):
        reused, _ = graphs.prefill([prompt], [images], 8)
        assert reused == expected
        logits.append(graphs.denoise(block, masked).clone())
    assert torch.equal(*logits)


@pytest.mark.parametrize(
    'engine_over',
    [
        lambda plain: plain,
        lambda plain: on_graphs(plain)[0],
        lambda plain: on_graphs(plain, attention=PagedBackend(TORCH_KERNELS))[0],
    ],
    ids=('plain', 'static slots', 'static pages'),
)
@pytest.mark.parametrize('number', [float('nan'), float('inf')])
def test_what_is_not_finite_in_the_cache_is_an_error_and_gone_after_a_reset(
    engine_over, number, tmp_path
):
    engine = engine_over(golden_engine('A_tied', tmp_path, 3.0, block_size=8))
    wanted = answers(engine, 'P2', RULES[0])
    prefill(engine, ['P2'], 32)
    with torch.inference_mode():
        engine._cache.values[:] = number
    with pytest.raises(FloatingPointError, match='NaN or infinity'):
        decode_blocks(engine, RULES[0], 32)
    engine.reset()
    assert_equal_decoding(answers(engine, 'P2', RULES[0]), wanted)


def test_forks_are_empty_after_a_reset_too(tmp_path):
    plain = golden_engine('A_tied', tmp_path, block_size=8)
    for attention in (None, PagedBackend(TORCH_KERNELS)):
        engine = Engine(plain.network, attention=attention)
        prompt, names = golden_prompt('P2', engine.config)
        engine.prefill([prompt], [features(engine, names)], 8, rollouts=2)
        decode_blocks(engine, RULES[0], 8)
        # A larger cache takes the place of the one that the forks stand on.
        engine.prefill([prompt], [features(engine, names)], 400)
        engine.reset()
        for cache in (engine._cache, engine._forks):
            assert cache.length == 0 and not cache.keys.any() and not cache.values.any()


@pytest.mark.slow
def test_compiled_blocks_decode_as_the_plain_path_does(tmp_path):
    """Only the forwards of blocks are compiled: a shape takes some ten seconds."""

    def compiler(step):
        return compiled(step) if step.func.__name__ == '_block_step' else step

    plain = golden_engine('A_tied', tmp_path, 3.0, block_size=8)
    graphs, _ = on_graphs(plain, compiler)
    for _ in range(2):
        assert_equal_decoding(
            answers(plain, 'P3', RULES[0], 16), answers(graphs, 'P3', RULES[0], 16)
        )
