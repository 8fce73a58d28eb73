"""Every decoding case of the reference: same tokens, same forwards, same order of unmasking."""

import numpy as np
import pytest
import torch
from golden_data import generate_cases, golden_engine, prefill, traces

from wamdiff_ros.decoding.block_diffusion import (
    BlockSettings,
    Trace,
    Unmasking,
    decode_blocks,
)

RULES = {
    'low_confidence_dynamic': Unmasking.DYNAMIC,
    'low_confidence_static': Unmasking.STATIC,
    'sequential': Unmasking.SEQUENTIAL,
}
CASES = {case['name']: case for case in generate_cases()}
TRACED = sorted({key.split('/')[0] for key in traces()})


def untold_case(name):
    """Return the case of a trace that generate.json leaves out; its settings are in its name."""
    if name.startswith('A_P2_eos_block'):
        # The case without an end; its end is a token that first comes up in the named block.
        case = CASES['A_P2_b8_s8_dyn0.5']
        block, tokens = int(name[-1]), case['output'][0]
        new = [t for t in tokens[8 * block : 8 * block + 8] if t not in tokens[: 8 * block]]
        return case | {'kwargs': case['kwargs'] | {'eos_token_id': new[-1]}}
    if name == 'BN_nopad':
        case = CASES['BN_eos_sample0_first']
        return case | {'kwargs': case['kwargs'] | {'eos_token_id': -1}}
    stem, rule = name.rsplit('_', 1)
    case = CASES[{'A_P2_b8_s8': 'A_P2_b8_s8_dyn0.5', 'B_P1_b8_s8': 'B_P1_b8_s8_dyn0.9'}[stem]]
    changes = {'remasking_strategy': STRATEGIES[rule[:3]]}
    if rule.startswith('dyn'):
        changes['confidence_threshold'] = float(rule[3:])
    return case | {'kwargs': case['kwargs'] | changes}


STRATEGIES = {
    'dyn': 'low_confidence_dynamic',
    'sta': 'low_confidence_static',
    'seq': 'sequential',
}
CASES |= {name: untold_case(name) for name in TRACED if name not in CASES}
# Where the reference predicts the mask token, leaves padding visible or has a horizon, the right
# behaviour differs from it and has tests of its own below.
DIFFERENT = [n for n in CASES if 'maskpred' in n or n.startswith(('BL', 'BR', 'BT')) or '_h' in n]
TOLD = [case['name'] for case in generate_cases()]
SAME = [n for n in TOLD if n not in DIFFERENT and not n.startswith('BN')]


def decode(name, tmp_path, prompts=None, **changes):
    """Decode the prompt of a golden case; returns answers and trace."""
    case = CASES[name]
    options = case['kwargs'] | changes
    eos = options['eos_token_id']
    engine = golden_engine(
        case['variant'], tmp_path, case['norm_scale'], block_size=options['block_size']
    )
    prefill(engine, prompts or [case['prompt']], options['max_new_tokens'])
    settings = BlockSettings(
        block_size=options['block_size'],
        mask_token_id=options['mask_token_id'],
        eos_token_ids=() if eos < 0 else (eos,),
        denoising_steps=options['denoising_steps'],
        unmasking=RULES[options['remasking_strategy']],
        confidence_threshold=options['confidence_threshold'],
    )
    trace = Trace(record=True)
    answers = decode_blocks(engine, settings, options['max_new_tokens'], trace=trace)
    return answers, trace


@pytest.mark.parametrize('name', SAME)
def test_tokens_and_forwards_equal_the_reference(name, tmp_path):
    case = CASES[name]
    (answer,), trace = decode(name, tmp_path)
    expected, eos = case['output'][0], case['kwargs']['eos_token_id']
    if eos in expected:
        expected = expected[: expected.index(eos)]
    stopped_early = eos in case['output'][0]
    if case['robust']:
        assert list(answer.token_ids) == expected
        assert trace.steps_per_block == case['block_actual_steps']
        assert sum(trace.steps_per_block) == case['forwards']['denoise']
    else:  # a tie within 1e-4 may fall either way; lengths and forwards do not depend on it
        assert len(answer.token_ids) == len(expected)
        assert trace.steps_per_block == case['block_actual_steps']
    # The reference commits the last block of a run that was not stopped; nobody reads it.
    assert trace.commits == len(trace.steps_per_block) - 1
    assert case['forwards']['commit'] == trace.commits + (not stopped_early)


@pytest.mark.parametrize('name', [name for name in TRACED if name not in DIFFERENT])
def test_every_denoising_forward_equals_the_reference(name, tmp_path):
    case, golden = CASES[name], traces()
    _, trace = decode(name, tmp_path, ['P4', 'P5'] if name.startswith('BN') else None)
    mask = case['kwargs']['mask_token_id']
    for step, (ids, x0, p) in enumerate(trace.steps):
        masked = golden[f'{name}/ids'][step] == mask
        np.testing.assert_array_equal(ids, golden[f'{name}/ids'][step])
        np.testing.assert_array_equal(x0[masked], golden[f'{name}/x0'][step][masked])
        # The reference leaves the mask token its share of the probability, at most 1e-3 here.
        np.testing.assert_allclose(
            p.numpy()[masked], golden[f'{name}/p'][step][masked], atol=1e-3, rtol=0
        )
    assert len(trace.steps) == len(golden[f'{name}/ids'])


@pytest.mark.parametrize('name', [n for n in CASES if 'maskpred' in n])
def test_the_mask_token_is_never_an_answer_and_never_stalls_a_block(name, tmp_path):
    case = CASES[name]
    (answer,), trace = decode(name, tmp_path)
    assert case['kwargs']['mask_token_id'] not in answer.token_ids
    assert len(answer.token_ids) == 16
    assert all(steps <= 8 for steps in trace.steps_per_block)
    assert trace.bulk_filled_slots == 0


def test_nothing_follows_the_end_of_sequence_token(tmp_path):
    (answer,), trace = decode('A_P2_eos_block2', tmp_path)
    raw = CASES['A_P2_eos_block2']['output'][0]
    assert 366 in raw and raw[raw.index(366) + 1 :]  # the reference keeps what follows
    assert list(answer.token_ids) == raw[: raw.index(366)]
    assert answer.finished
    assert trace.commits == 2


@pytest.mark.parametrize(
    ('batch', 'prompts'),
    [('BL_leftpad', ['P1', 'P4']), ('BR_rightpad', ['P1', 'P4']), ('BT_leftpad_b8', ['P3', 'P1'])],
)
def test_unequal_prompts_in_a_batch_are_answered_as_if_alone(batch, prompts, tmp_path):
    answers, _ = decode(batch, tmp_path, prompts)
    for answer, prompt in zip(answers, prompts, strict=True):
        assert list(answer.token_ids) == CASES[f'{prompt}_single']['output'][0]


@pytest.mark.parametrize(('ended', 'eos'), [(0, 224), (1, 329)])
def test_a_finished_answer_does_not_disturb_the_other_one(ended, eos, tmp_path):
    name = f'BN_eos_sample{ended}_first'
    answers, _ = decode(name, tmp_path, ['P4', 'P5'])
    other = 1 - ended
    assert answers[ended].token_ids == () and answers[ended].finished
    assert list(answers[other].token_ids) == CASES[name]['output'][other]


def test_fewer_steps_than_slots_end_in_a_counted_bulk_fill(tmp_path):
    _, trace = decode('A_P2_b32_s4_dyn0.9', tmp_path)
    assert trace.steps_per_block == [4, 4]
    assert trace.bulk_filled_slots > 0


def test_positions_continue_after_the_prompt_on_all_axes(tmp_path):
    name = 'A_P2_b8_s8_dyn0.5'
    engine = golden_engine('A_tied', tmp_path, block_size=8)
    prefill(engine, ['P2'], 8)
    first = torch.tensor(traces()[f'{name}/pos'][0]).long()
    cos, sin = engine.network.text.rope(first)
    assert torch.equal(engine._cos, cos) and torch.equal(engine._sin, sin)
