"""The engine over pages (without a GPU on the plain kernel) decodes as it does over slots."""

import time
from typing import ClassVar

import pytest
import torch
from golden_data import features, golden_engine, golden_prompt, prefill
from tiny_session import load, observation, tiny_model

from wamdiff_ros.decoding.block_diffusion import BlockSettings, Trace, decode_blocks
from wamdiff_ros.decoding.unmasking import Unmasking
from wamdiff_ros.runtime import loaded_model
from wamdiff_ros.runtime.engine import Engine
from wamdiff_ros.runtime.graph_runner import GraphRunner
from wamdiff_ros.runtime.options import PLAIN, EngineOptions
from wamdiff_ros.runtime.paged_attention import PagedCache
from wamdiff_ros.runtime.paged_forward import PagedBackend
from wamdiff_ros.runtime.torch_paged_kernel import TORCH_KERNELS

RULE = BlockSettings(8, 511, (366, 214), 4, Unmasking.STATIC)
PROMPTS = (['P2'], ['P3'], ['P2'], ['P4', 'P5'], ['P1', 'P3'])


def decoded(engine):
    """Return answers, steps and confidences of several prompts, one after another."""
    results = []
    for names in PROMPTS:
        prefill(engine, names, 32)
        trace = Trace(record=True)
        results.append((decode_blocks(engine, RULE, 32, trace=trace), trace))
    return results


def assert_same(mine, wanted):
    for (answer, trace), (wanted_answer, wanted_trace) in zip(mine, wanted, strict=True):
        assert answer == wanted_answer
        assert trace.steps_per_block == wanted_trace.steps_per_block
        for (_, _, p), (_, _, wanted_p) in zip(trace.steps, wanted_trace.steps, strict=True):
            torch.testing.assert_close(p, wanted_p, atol=1e-5, rtol=0)


def over_pages(engine, options, **arguments):
    paged = Engine(engine.network, options, attention=PagedBackend(TORCH_KERNELS), **arguments)
    assert paged.backend.startswith('torch')
    return paged


@pytest.fixture
def plain(tmp_path):
    return golden_engine('A_tied', tmp_path, 3.0, block_size=8)


@pytest.mark.parametrize('options', [PLAIN, EngineOptions(runtime='eager')], ids=['plain', 'fast'])
def test_prompts_blocks_and_batches_decode_the_same(options, plain):
    wanted = decoded(plain)
    paged = over_pages(plain, options)
    assert_same(decoded(paged), wanted)
    assert isinstance(paged._cache, PagedCache)


def test_static_forwards_over_pages_decode_the_same(plain):
    wanted = decoded(plain)
    runner = GraphRunner(plain.device, lambda function: function)
    paged = over_pages(plain, EngineOptions(runtime='graph'), runner=runner)
    assert_same(decoded(paged), wanted)
    prefill(paged, ['P2'], 32)
    decode_blocks(paged, RULE, 32)
    captures = runner.captures
    prefill(paged, ['P1'], 32)  # another length, the same shapes
    decode_blocks(paged, RULE, 32)
    assert runner.captures == captures


def test_rollouts_over_pages_decode_the_same_and_the_prefix_is_kept(plain):
    prompt, images = golden_prompt('P2', plain.config)
    results = []
    for engine in (
        Engine(plain.network, EngineOptions(runtime='eager')),
        over_pages(plain, EngineOptions(runtime='eager')),
    ):
        encoded = features(engine, images)
        for _ in range(2):  # the second time from the cache
            reused, _ = engine.prefill([prompt], [encoded], 32, rollouts=3)
            answers = decode_blocks(engine, RULE, 32)
        results.append((reused, answers))
    assert results[0] == results[1]
    assert results[0][0] > 0


def test_tokens_one_by_one_decode_the_same(tmp_path):
    engine = golden_engine('A_tied', tmp_path, block_size=1)
    logits = []
    for each in (engine, over_pages(engine, PLAIN)):
        prefill(each, ['P1'], 8)
        rows = [each.first_logits()]
        for token in (3, 4, 5):
            rows.append(each.append(torch.tensor([token])))
        logits.append(torch.cat(rows))
    torch.testing.assert_close(logits[1], logits[0], atol=1e-4, rtol=0)


def test_the_vision_backend_takes_the_place_of_the_tower(plain):
    class Other:
        name = 'other'
        asked: ClassVar = []

        def __call__(self, patches, grid):
            self.asked.append(grid)
            return plain.network.vision(patches, grid)

    vision = Other()
    engine = Engine(plain.network, PLAIN, vision=vision)
    _, images = golden_prompt('P1', plain.config)
    (mine,), (wanted,) = features(engine, images), features(plain, images)
    assert vision.asked == [wanted.grid]
    assert engine.backend.endswith('vision: other')
    torch.testing.assert_close(mine.tokens, wanted.tokens)


def test_a_session_over_pages_plans_and_describes_as_one_over_slots(tmp_path, monkeypatch):
    monkeypatch.setattr(loaded_model, 'flashinfer_kernels', lambda *where: TORCH_KERNELS)
    model_dir = tiny_model(tmp_path)
    wanted, mine = load(model_dir, rollouts=3), load(model_dir, rollouts=3, attention='flashinfer')
    assert mine.backend == 'torch cpu float32'
    for seed in (1, 2, 2):
        seen = observation(seed=seed)
        results = [each.plan(seen, time.monotonic() + 60.0) for each in (wanted, mine)]
        assert results[0].answer == results[1].answer
        assert results[0].counts == results[1].counts
        assert wanted.describe(seen)[0] == mine.describe(seen)[0]
