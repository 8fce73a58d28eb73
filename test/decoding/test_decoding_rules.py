"""Rules that every answer keeps, whatever the weights."""

import pytest
import torch
from golden_data import features, golden_engine, golden_prompt, prefill
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wamdiff_ros.decoding.autoregressive import decode_tokens
from wamdiff_ros.decoding.block_diffusion import BlockSettings, Trace, decode_blocks
from wamdiff_ros.decoding.sampling import Sampling, sample
from wamdiff_ros.decoding.unmasking import Unmasking, choose_slots, unmasked_per_step

MASK, EOS, VOCAB = 30, 7, 32


class RandomModel:
    """Random logits that favour end-of-sequence and mask tokens, whatever the block holds."""

    device = torch.device('cpu')

    def __init__(self, batch, seed):
        self.batch = batch
        self.generator = torch.Generator().manual_seed(seed)
        self.committed = []

    def denoise(self, block, masked, before=None):
        assert (block[masked] == MASK).all()
        if before is not None:
            assert (before != MASK).all()
            self.committed.append(before)
        logits = 3 * torch.randn(int(masked.sum()), VOCAB, generator=self.generator)
        logits[:, MASK] += 6
        logits[:, EOS] += 2
        return logits


@pytest.mark.parametrize('temperature', [0.0, 1.0])
@pytest.mark.parametrize('step', [0, 1])
def test_logits_that_are_not_finite_end_the_decoding(temperature, step):
    class Breaks(RandomModel):
        steps = 0

        def denoise(self, block, masked, before=None):
            logits = super().denoise(block, masked, before)
            if self.steps == step:
                logits[-1, 3] = torch.nan
            self.steps += 1
            return logits

    rule = BlockSettings(8, MASK, (EOS,), 4, Unmasking.STATIC, sampling=Sampling(temperature))
    with pytest.raises(FloatingPointError, match='NaN'):
        decode_blocks(Breaks(1, 0), rule, 8)


@given(
    seed=st.integers(0, 10**6),
    batch=st.integers(1, 3),
    block_size=st.sampled_from([1, 4, 8, 32]),
    steps=st.integers(1, 40),
    unmasking=st.sampled_from(Unmasking),
    threshold=st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.5]),
    temperature=st.sampled_from([0.0, 1.0]),
    budget=st.integers(1, 70),
)
def test_no_answer_holds_a_mask_or_anything_from_the_end_on(
    seed, batch, block_size, steps, unmasking, threshold, temperature, budget
):
    model = RandomModel(batch, seed)
    trace = Trace()
    answers = decode_blocks(
        model,
        BlockSettings(
            block_size, MASK, (EOS,), steps, unmasking, threshold, Sampling(temperature)
        ),
        budget,
        trace=trace,
    )
    blocks = len(trace.steps_per_block)
    for answer in answers:
        assert MASK not in answer.token_ids and EOS not in answer.token_ids
        assert answer.finished or len(answer.token_ids) == blocks * block_size
    assert trace.commits == len(model.committed) == blocks - 1
    assert all(1 <= used <= min(steps, block_size) for used in trace.steps_per_block)


@pytest.mark.parametrize('block_size', (1, 4, 8, 32))
def test_a_threshold_above_one_takes_one_forward_per_slot(block_size):
    trace = Trace()
    settings = BlockSettings(block_size, MASK, (), block_size, confidence_threshold=1.01)
    decode_blocks(RandomModel(1, 0), settings, 3 * block_size, trace=trace)
    assert trace.steps_per_block == [block_size] * 3
    assert trace.bulk_filled_slots == 0


@given(st.integers(1, 64), st.integers(1, 80))
def test_steps_share_a_block_evenly_with_the_remainder_first(block_size, steps):
    counts = unmasked_per_step(block_size, steps)
    assert sum(counts) == block_size and len(counts) == min(steps, block_size)
    assert max(counts) - min(counts) <= 1 and counts == sorted(counts, reverse=True)


def test_leading_unmasks_the_first_unsure_digit_of_each_number_and_all_that_is_sure():
    #                       1    2    .    3    ,    0    9    .    7
    sure = torch.tensor([[0.5, 0.4, 1.0, 0.3, 1.0, 0.95, 0.6, 0.9, 0.2]])
    masked, unmasked = torch.ones_like(sure, dtype=torch.bool), []
    while masked.any():
        chosen = choose_slots(Unmasking.LEADING, 0.9, sure, masked, 0)
        unmasked.append(chosen[0].nonzero().flatten().tolist())
        masked &= ~chosen
    assert unmasked == [[0, 2, 4, 5, 6, 7], [1, 8], [3]]


@given(st.lists(st.floats(0, 1), min_size=8, max_size=32), st.integers(0, 2**32 - 1))
def test_leading_unmasks_what_dynamic_does_and_always_the_first_masked_slot(sure, bits):
    confidence = torch.tensor([sure])
    masked = torch.tensor([[bool(bits >> i & 1) for i in range(len(sure))]])
    confidence = torch.where(masked, confidence, -1.0)
    leading = choose_slots(Unmasking.LEADING, 0.9, confidence, masked, 0)
    assert not (leading & ~masked).any()
    assert not (masked & (confidence >= 0.9) & ~leading).any()
    if masked.any():
        assert leading[0, masked[0].nonzero()[0]].all()


@pytest.mark.parametrize('forwards', (1, 2, 5, 9))
def test_a_stop_hands_over_what_there_is(forwards):
    asked = []

    def stop():
        asked.append(None)
        return len(asked) >= forwards

    settings = BlockSettings(4, MASK, (), 4, confidence_threshold=1.01)
    (answer,) = decode_blocks(RandomModel(1, 1), settings, 40, stop=stop)
    assert 4 <= len(answer.token_ids) < 40 and not answer.finished
    assert MASK not in answer.token_ids


def test_an_end_that_the_stop_filled_in_does_not_finish_the_answer():
    class AlwaysEnds(RandomModel):
        def denoise(self, block, masked, before=None):
            logits = torch.zeros(int(masked.sum()), VOCAB)
            logits[:, EOS] = 1.0
            return logits

    settings = BlockSettings(4, MASK, (EOS,), 4)
    (stopped,) = decode_blocks(AlwaysEnds(1, 0), settings, 40, stop=lambda: True)
    assert stopped.token_ids == () and not stopped.finished
    (whole,) = decode_blocks(AlwaysEnds(1, 0), settings, 40)
    assert whole.token_ids == () and whole.finished


@pytest.mark.parametrize('prompt', ('P2', 'P3', 'P4'))  # 45, 13 and 40 tokens
@pytest.mark.parametrize('block_size', (4, 8, 16))
def test_cached_decoding_equals_an_uncached_forward(prompt, block_size, tmp_path):
    """Each block's logits, once with the cache and once from a forward over everything."""
    engine = golden_engine('B_untied', tmp_path, block_size=block_size)
    prefill(engine, [prompt], 3 * block_size)
    answer = torch.randint(0, 500, (1, 3 * block_size), generator=torch.Generator().manual_seed(0))
    cached = []
    for block in answer.split(block_size, dim=1):
        cached.append(engine.denoise(block, torch.ones_like(block, dtype=torch.bool)))
        engine.commit(block)
    torch.testing.assert_close(
        torch.cat(cached), uncached(engine, prompt, answer), atol=1e-5, rtol=0
    )


@torch.no_grad()
def uncached(engine, name, answer):
    """Logits [m, vocab] of the answer's tokens from one forward with a brute-force mask."""
    prompt, images = golden_prompt(name, engine.config)
    size, length = engine.config.block_size, len(prompt)
    x, positions, deepstack = engine._embed_prompts(
        [prompt], [features(engine, images)], 0, length
    )
    text = engine.network.text
    x = torch.cat((x, text.embed_tokens(answer)), dim=1)
    following = prompt.next_position + torch.arange(answer.shape[1])
    positions = torch.cat((positions, following.expand(3, 1, -1)), dim=2)
    deepstack = [torch.nn.functional.pad(d, (0, 0, 0, answer.shape[1])) for d in deepstack]
    number = [i // size for i in range(length)]
    number += [10_000 + i // size for i in range(answer.shape[1])]
    mask = torch.tensor([[k <= q for k in number] for q in number])

    def attend(layer, query, key, value):
        return torch.nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, enable_gqa=True
        )

    return engine.network.head(text(x, positions, attend, deepstack)[0, length:])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=10)
@given(prompts=st.lists(st.sampled_from(['P1', 'P2', 'P3', 'P4', 'P5']), min_size=2, max_size=3))
def test_a_batch_is_answered_like_its_prompts_alone(prompts, tmp_path_factory):
    engine = golden_engine('A_tied', tmp_path_factory.mktemp('m'), 3.0, block_size=8)
    rule = BlockSettings(8, 511, (366, 214), 8, confidence_threshold=0.5)

    def answers(names):
        prefill(engine, names, 24)
        return decode_blocks(engine, rule, 24)

    together = answers(prompts)
    assert together == [answers([name])[0] for name in prompts]


def test_sampling_with_one_seed_is_reproducible_and_with_another_differs(tmp_path):
    engine = golden_engine('A_tied', tmp_path, block_size=8)

    def answer(seed):
        prefill(engine, ['P2'], 24)
        rule = BlockSettings(8, 511, (), 8, sampling=Sampling(1.0, seed=seed))
        return decode_blocks(engine, rule, 24)[0].token_ids

    assert answer(1) == answer(1) != answer(2)


def test_top_k_and_top_p_keep_only_the_likeliest_tokens():
    logits = torch.log(torch.tensor([[0.5, 0.3, 0.15, 0.05]])).repeat(500, 1)
    generator = torch.Generator().manual_seed(0)
    tokens, p = sample(logits.clone(), Sampling(1.0, top_k=2), generator)
    assert set(tokens.tolist()) == {0, 1}
    torch.testing.assert_close(p[tokens == 0][0], torch.tensor(0.625))
    tokens, _ = sample(logits.clone(), Sampling(1.0, top_p=0.9), generator)
    assert set(tokens.tolist()) == {0, 1, 2}
    tokens, p = sample(logits.clone(), Sampling(1.0, top_p=1e-6), generator)
    assert set(tokens.tolist()) == {0} and torch.allclose(p, torch.ones(500))


def test_greedy_confidence_is_the_softmax_probability_in_float32():
    logits = torch.randn(20, 100, generator=torch.Generator().manual_seed(0))
    tokens, p = sample(logits, Sampling(), None)
    assert torch.equal(tokens, logits.argmax(-1))
    torch.testing.assert_close(p, logits.softmax(-1).max(-1).values)
    assert p.dtype == torch.float32


@pytest.mark.parametrize(
    'values', [{'temperature': -1}, {'temperature': float('nan')}, {'top_p': 0.0}, {'top_k': -1}]
)
def test_sampling_values_that_make_no_sense_are_refused(values):
    with pytest.raises(ValueError, match=next(iter(values))):
        Sampling(**values)


def test_autoregressive_decoding_ends_at_the_end_token(tmp_path):
    engine = golden_engine('A_tied', tmp_path, block_size=1)
    prefill(engine, ['P2'], 12)
    (long,) = decode_tokens(engine, (), Sampling(), 12)
    assert len(long.token_ids) == 12 and not long.finished
    end = long.token_ids[5]
    prefill(engine, ['P2'], 12)
    (short,) = decode_tokens(engine, (end,), Sampling(), 12)
    assert short.finished
    assert short.token_ids == long.token_ids[: long.token_ids.index(end)]
