"""The bench on a tiny network: complete, consistent, and no judge."""

import argparse
import json
import multiprocessing
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch
from tiny_shape import TINY
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

pytest.importorskip('transformers', reason='requirements/bench.txt is not installed')

from wamdiff_ros.benchmark import bench, limits, measure, tick
from wamdiff_ros.benchmark.contender import Contender, fixed_settings
from wamdiff_ros.benchmark.cost import Sweep
from wamdiff_ros.benchmark.ladder import EVERYTHING, TRANSFORMERS, option_steps
from wamdiff_ros.benchmark.limits import Limits
from wamdiff_ros.benchmark.measure import Bench
from wamdiff_ros.benchmark.report_text import to_json, to_text
from wamdiff_ros.benchmark.shapes import QWEN3_VL_2B, random_network, token_by_token, twin
from wamdiff_ros.benchmark.side_by_side import take_turns
from wamdiff_ros.benchmark.transformers_model import TransformersBaseline
from wamdiff_ros.benchmark.work import language_forward, vision_forward
from wamdiff_ros.benchmark.workload import made_up_question
from wamdiff_ros.model.network import Network
from wamdiff_ros.runtime.int8_linear import Int8Linear
from wamdiff_ros.runtime.options import PLAIN, EngineOptions
from wamdiff_ros.runtime.paged_forward import PagedBackend
from wamdiff_ros.runtime.quantisation import Quantisation
from wamdiff_ros.runtime.torch_paged_kernel import TORCH_KERNELS
from wamdiff_ros.training.nano import SIZES, write_random_weights, write_skeleton

ROOT = Path(__file__).parents[2]
CPU = torch.device('cpu')
GRID = (1, 4, 8)


@pytest.fixture(scope='module')
def network():
    return random_network(TINY, torch.float32, CPU)


@pytest.fixture(scope='module')
def report(network):
    int8 = [Quantisation.parse('int8_dynamic')] if Int8Linear.available() else []
    what = Bench(
        model='tiny', size='2b', network=network, settings=fixed_settings(TINY),
        questions=[made_up_question(TINY, text_tokens=20, grid=GRID, seed=s) for s in range(2)],
        tokens=16, rounds=2, token_network=network,
        sweep=Sweep((8, 16), (1, 2), (1, 2), (1, 2), (1, 4, 8)), quantisations=int8,
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:  # small kernels: fast, and not the limits
        patch.setattr(limits, 'MEMORY_BYTES', 1 << 20)
        patch.setitem(limits.GEMM_SIDE, 'cpu', 64)
        # Stands in for FlashInfer, which takes a GPU.
        patch.setattr(measure, '_flashinfer', lambda network: PagedBackend(TORCH_KERNELS))
        return measure.measure(what, [name for name in bench.SECTIONS if name != 'tick'])


def test_the_json_is_complete_and_valid(report):
    values = json.loads(json.dumps(to_json(report), allow_nan=False))
    for section in ('machine', 'workload', 'ladder', 'limits', 'stages', 'cost', 'profile'):
        assert values[section], section
    assert values['decode_vs_transformers_ar'] > 0
    assert values['machine']['versions']['torch'] == torch.__version__
    sweeps = {field.name for field in fields(Sweep)} | {'frames_in_window'}
    assert set(values['cost']) == sweeps
    assert {stage['name'] for stage in values['stages']} == {
        'vision', 'prefill', 'block forward', 'token forward',
    }  # fmt: skip


def test_ratios_are_quotients_of_the_seconds_beside_them(report):
    values = to_json(report)
    rungs = {rung['name']: rung for rung in values['ladder']}
    theirs = rungs[TRANSFORMERS]
    (top,) = (rung for name, rung in rungs.items() if name.endswith(EVERYTHING))
    for rung in rungs.values():
        assert rung['tokens_per_s'] == pytest.approx(rung['tokens'] / rung['decode_s'])
        assert rung['tokens_per_s_vs_transformers'] == pytest.approx(
            rung['tokens'] / rung['decode_s'] * theirs['decode_s'] / theirs['tokens']
        )
    assert values['decode_vs_transformers_ar'] == top['tokens_per_s_vs_transformers']
    assert values['prefill_vs_transformers'] == pytest.approx(
        theirs['prefill_s'] / (top['vision_s'] + top['prefill_s'])
    )
    names = list(rungs)
    for name, rung in rungs.items():
        if rung['turned_on']:
            place = names.index(name)
            # What comes after everything is compared with that.
            before = top if place > names.index(top['name']) else rungs[names[place - 1]]
            assert rung['tokens_per_s_vs_previous'] == pytest.approx(
                rung['tokens_per_s'] / before['tokens_per_s']
            )
    for stage in values['stages']:
        assert stage['floor_s'] == max(stage['compute_floor_s'], stage['memory_floor_s'])
        assert stage['fraction_of_limit'] == pytest.approx(stage['floor_s'] / stage['seconds'])
    for points in values['cost'].values():
        for point in points:
            assert point['answer_s'] == pytest.approx(
                point['vision_s'] + point['prefill_s'] + point['decode_s']
            )


def test_everybody_answers_with_as_many_tokens_and_the_same_ones(report):
    for rung in report.ladder:
        assert rung.tokens == 2 * 16
        if not rung.name.endswith('int8_dynamic'):
            assert rung.same_answer, rung.name


def test_a_tick_is_timed_beside_a_simulator_that_is_gone_afterwards():
    pytest.importorskip('panda3d', reason='requirements/simulation.txt is not installed')
    threads = torch.get_num_threads()
    measured = tick.measure_tick(ROOT / 'models' / 'nano', (900,), 3, CPU)
    assert measured.ticks == 3
    assert 0 < measured.p50_ms <= measured.p95_ms <= measured.p99_ms <= measured.max_ms
    assert torch.get_num_threads() == threads and not multiprocessing.active_children()


def test_a_simulator_that_does_not_start_is_an_error(monkeypatch):
    monkeypatch.setattr(tick, 'START_TIMEOUT_S', 0.01)
    with pytest.raises(RuntimeError, match='simulator did not render within'):
        tick.measure_tick(ROOT / 'models' / 'nano', (900,), 3, CPU)
    assert not multiprocessing.active_children()


def test_the_ladder_turns_on_one_option_after_another():
    before = replace(PLAIN, runtime='auto')  # eager on a CPU
    for name, options in option_steps(CPU):
        changed = [
            f.name
            for f in fields(EngineOptions)
            if getattr(options, f.name) != getattr(before, f.name)
        ]
        assert changed == [name]
        before = options
    assert before == EngineOptions()


def test_a_folded_commit_is_no_forward_of_its_own(report):
    forwards = {rung.name: rung.forwards for rung in report.ladder}
    # Two questions of two blocks, four steps each, and a commit between the blocks.
    assert forwards['blocks, plain'] == 2 * (2 * 4 + 1)
    assert forwards[f'blocks, + folded_commit{EVERYTHING}'] == 2 * 2 * 4
    assert forwards['token by token, plain'] == forwards[TRANSFORMERS] == 2 * 15


def test_a_missed_target_is_reported_and_is_no_failure(report, monkeypatch, capsys):
    slow = [replace(rung, tokens_per_s_vs_transformers=0.5) for rung in report.ladder]
    missed = replace(report, ladder=slow)
    assert 'MISSED' in to_text(missed)
    assert not to_json(missed)['targets'][0]['met']
    monkeypatch.setattr(measure, 'set_up', lambda args: None)
    monkeypatch.setattr(measure, 'measure', lambda what, sections: missed)
    assert bench.run(_options('--json')) == 0
    assert json.loads(capsys.readouterr().out)['decode_vs_transformers_ar'] == 0.5


def _options(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    bench.add_arguments(parser)
    return parser.parse_args(words)


def test_a_shape_without_a_checkpoint_has_no_tick_and_says_so_when_asked():
    assert bench.sections(_options()) == bench.SECTIONS
    assert 'tick' not in bench.sections(_options('--size', '2b'))
    assert bench.sections(_options('--model', 'm', '--only', 'tick')) == ['tick']
    with pytest.raises(ValueError, match='give a checkpoint as --model'):
        bench.sections(_options('--size', '2b', '--only', 'tick'))


def test_contenders_take_turns_and_the_first_call_is_not_counted():
    calls = []

    def contender(name):
        return lambda: calls.append(name) or len(calls)

    results = take_turns({name: contender(name) for name in 'abc'}, rounds=3)
    assert ''.join(calls) == 'abc' + 'abc' + 'bca' + 'cab'
    assert results['a'] == [4, 9, 11]


def test_transformers_has_the_same_weights_in_the_same_memory(network):
    question = made_up_question(TINY, text_tokens=20, grid=GRID)
    baseline = TransformersBaseline(network)
    theirs = baseline.answer(question, 12)
    single = token_by_token(TINY)
    mine = Contender(network, single, EngineOptions(), None).answer(question, 12)
    assert theirs.answer == mine.answer
    assert theirs.tokens == mine.tokens == 12
    plain = random_network(TINY, torch.float32, CPU)
    shared = TransformersBaseline(plain)._model.state_dict()
    for name, tensor in plain.state_dict().items():
        assert shared[name].data_ptr() == tensor.data_ptr(), name


def test_a_twin_shares_every_tensor_and_no_module(network):
    other = twin(network)
    other.model.visual.merger = None
    assert network.vision.merger is not None
    weight, same = (n.text.layers[0].mlp.up_proj.weight for n in (network, other))
    assert weight.data_ptr() == same.data_ptr()


def test_counted_work_is_what_torch_counts(network):
    # Of attention kernels only the one that is made of matrix products is counted.
    question = made_up_question(TINY, text_tokens=20, grid=GRID)
    contender = Contender(network, TINY, PLAIN, fixed_settings(TINY))
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        features = contender.encode(question)
    counted = vision_forward(TINY, 4, patches=32).flops
    assert counted == pytest.approx(counter.get_total_flops(), rel=0.01)
    contender.engine.prefill([question.prompt], [features], 8)
    block = torch.full((1, 8), TINY.mask_token_id)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        contender.engine.denoise(block, torch.ones_like(block, dtype=torch.bool))
    context = len(question.prompt) + 8
    counted = language_forward(TINY, 4, rows=8, context=context, head_rows=8).flops
    assert counted == pytest.approx(counter.get_total_flops(), rel=0.01)


def test_a_floor_is_the_larger_of_arithmetic_and_reading():
    measured = Limits(1e9, 1e9, 2e9, 0)
    assert measured.floor_s(3e9, 1e9) == 3.0
    assert measured.floor_s(1e9, 8e9) == 4.0


def test_the_published_shape_has_two_billion_parameters():
    with torch.device('meta'):
        count = sum(parameter.numel() for parameter in Network(QWEN3_VL_2B).parameters())
    assert count == 2_127_532_032


@pytest.mark.slow
def test_the_command_prints_one_json_object_and_leaves_both_files(tmp_path):
    pytest.importorskip('panda3d', reason='requirements/simulation.txt is not installed')
    model = tmp_path / 'tiny'
    write_skeleton(model, SIZES['tiny'], ['+1.0,-2.0'], block_size=8)
    write_random_weights(model, seed=0)
    result = subprocess.run(
        [sys.executable, '-m', 'wamdiff_ros.cli', 'bench', '--model', model, '--rounds', '1',
         '--questions', '1', '--tokens', '8', '--json', '--out', tmp_path / 'out'],
        cwd=ROOT, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    printed = json.loads(result.stdout)
    assert printed == json.loads((tmp_path / 'out' / 'bench.json').read_text())
    assert 'transformers, token by token' in (tmp_path / 'out' / 'bench.txt').read_text()


@pytest.mark.parametrize(
    ('options', 'sentence'),
    [
        (['--model', 'nowhere'], 'nowhere: no such folder'),
        (['--quantisation', 'int3'], "'int3' is not one of"),
    ],
)
def test_what_cannot_be_measured_ends_with_the_reason(options, sentence, capsys):
    from wamdiff_ros.cli import main

    assert main(['bench', *options]) == 1
    assert sentence in capsys.readouterr().err
