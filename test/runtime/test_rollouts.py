"""Several answers to one prompt: decoded together, each as if alone."""

from dataclasses import replace

import pytest
import torch
from golden_data import features, golden_engine, golden_prompt
from tiny_session import load, observation, speak, tiny_model

from wamdiff_ros.decoding.autoregressive import decode_tokens
from wamdiff_ros.decoding.block_diffusion import BlockSettings, decode_blocks
from wamdiff_ros.decoding.sampling import Sampling
from wamdiff_ros.decoding.unmasking import Unmasking
from wamdiff_ros.runtime.kv_cache import KVCache
from wamdiff_ros.runtime.options import PLAIN, EngineOptions

SAMPLINGS = [Sampling(), *(Sampling(0.8, seed=seed) for seed in (1, 2, 3))]
OPTIONS = {'plain': PLAIN, 'all': EngineOptions(runtime='eager')}


def decoded(engine, samplings, rule):
    prompt, names = golden_prompt('P2', engine.config)
    engine.prefill([prompt], [features(engine, names)], 24, rollouts=len(samplings))
    return decode_blocks(engine, rule, 24, samplings=samplings)


@pytest.mark.parametrize('options', OPTIONS)
@pytest.mark.parametrize('unmasking', (Unmasking.DYNAMIC, Unmasking.STATIC))
def test_each_rollout_equals_a_run_alone_with_its_seed(options, unmasking, tmp_path):
    engine = golden_engine('B_untied', tmp_path, options=OPTIONS[options], block_size=8)
    rule = BlockSettings(8, 511, (366, 214), 4, unmasking, confidence_threshold=0.5)
    together = decoded(engine, SAMPLINGS, rule)
    alone = [decoded(engine, [sampling], rule)[0] for sampling in SAMPLINGS]
    assert together == alone
    assert len(set(together)) > 2


def test_autoregressive_rollouts_equal_runs_alone(tmp_path):
    engine = golden_engine('A_tied', tmp_path, 3.0, block_size=1)

    def answers(samplings):
        prompt, names = golden_prompt('P2', engine.config)
        engine.prefill([prompt], [features(engine, names)], 10, rollouts=len(samplings))
        return decode_tokens(engine, (), SAMPLINGS[0], 10, samplings=samplings)

    assert answers(SAMPLINGS) == [answers([sampling])[0] for sampling in SAMPLINGS]


def test_rollouts_read_one_prefix_and_keep_it_for_the_next_prompt(tmp_path):
    engine = golden_engine('A_tied', tmp_path, options=OPTIONS['all'], block_size=8)
    rule = BlockSettings(8, 511, (), 2)
    decoded(engine, SAMPLINGS, rule)
    prefix, forks = engine._cache, engine._answers
    assert forks.prefix is prefix and (prefix.batch, forks.batch) == (1, 4)
    before = prefix.keys.clone()
    prompt, names = golden_prompt('P2', engine.config)
    reused, _ = engine.prefill([prompt], [features(engine, names)], 24, rollouts=4)
    assert reused == 24
    decode_blocks(engine, rule, 24, samplings=SAMPLINGS)
    assert engine._answers is forks and engine.cache_allocations == 2
    assert torch.equal(before, prefix.keys)


def test_only_a_single_prompt_is_forked(tmp_path):
    engine = golden_engine('A_tied', tmp_path, block_size=8)
    prompt, names = golden_prompt('P2', engine.config)
    images = features(engine, names)
    with pytest.raises(ValueError, match='2 rollouts of 2 prompts'):
        engine.prefill([prompt] * 2, [images] * 2, 8, rollouts=2)
    cache = KVCache(engine.config.text, 2, 8, torch.float32, torch.device('cpu'))
    with pytest.raises(ValueError, match='2 prompts'):
        cache.fork(cache)


def test_the_plan_is_the_first_rollout_and_the_others_are_candidates(tmp_path, monkeypatch):
    folder = tiny_model(tmp_path)
    session, alone = load(folder, rollouts=4, rollout_temperature=1.0), load(folder)
    answer = ','.join(f'{4.0 * (i + 1):.2f},0.00' for i in range(8))
    back = answer.replace('12.00,0.00', '0.00,0.00')
    decode, texts = session._tokenizer.decode, []

    def faked(ids):
        texts.append(decode(ids))
        return {2: back, 3: 'nothing'}.get(len(texts), answer)

    speak(monkeypatch, session, faked)
    seen = observation()
    result = session.plan(seen)
    assert result.plan is not None
    # One turns back on the way, one could not be read.
    (candidate,) = result.candidates
    assert candidate.t0_ns == seen.t0_ns
    assert len(set(texts)) == 4
    assert texts[0] == alone.plan(seen).answer


def test_each_candidate_has_a_seed_of_its_own(tmp_path):
    session = load(tiny_model(tmp_path), rollouts=3, rollout_temperature=0.5, seed=7)
    assert session._rollouts == [Sampling(seed=7), Sampling(0.5, seed=8), Sampling(0.5, seed=9)]
    assert replace(session._rollouts[1], seed=9) == session._rollouts[2]
