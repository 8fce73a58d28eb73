"""Quantised networks stay near the float network; what cannot run is refused with the reason."""

import copy
import sys
from dataclasses import replace

import pytest
import torch
from tiny_shape import TINY
from torch import nn

from wamdiff_ros.benchmark.contender import Contender, fixed_settings
from wamdiff_ros.benchmark.shapes import random_network
from wamdiff_ros.benchmark.workload import made_up_question
from wamdiff_ros.parameters import QUANTISATIONS, Parameters
from wamdiff_ros.runtime.engine import Engine
from wamdiff_ros.runtime.int8_linear import Int8Linear
from wamdiff_ros.runtime.options import EngineOptions
from wamdiff_ros.runtime.quantisation import (
    Quantisation,
    QuantisationError,
    options_for,
    quantise,
)
from wamdiff_ros.runtime.session import PlanningSession

CPU = torch.device('cpu')
PARTS = ('language', 'vision', 'head')
# Largest relative error of logits with one part quantised: 8 bits have steps of 1/127 of the
# largest weight of a row, 4 bits of 1/7 of the largest of 64.
BOUND = {'int8_weight_only': 0.02, 'int8_dynamic': 0.05, 'int4_weight_only': 0.3, 'w4a8': 0.3}

needs_int8 = pytest.mark.skipif(
    not Int8Linear.available(), reason='this CPU has no VNNI, or this torch no oneDNN'
)


def needs_torchao():
    pytest.importorskip('torchao', reason='requirements/quantisation.txt is not installed')


@pytest.fixture(scope='module')
def network():
    return random_network(TINY, torch.float32, CPU)


def logits(network):
    question = made_up_question(TINY, text_tokens=20, grid=(1, 4, 8))
    engine = Engine(network)
    images = [
        engine.encode_image(place, image.patches, image.grid)
        for place, image in enumerate(question.images)
    ]
    return engine.prefill([question.prompt], [images], 8, all_logits=True)[1]


def relative_error(network, quantisation):
    quantised = copy.deepcopy(network)
    quantise(quantised, quantisation)
    plain, coarse = logits(network), logits(quantised)
    return float((coarse - plain).norm() / plain.norm())


@needs_int8
@pytest.mark.parametrize('part', PARTS)
@pytest.mark.parametrize('method', QUANTISATIONS[1:])
def test_a_quantised_part_stays_within_the_error_of_its_bits(network, part, method):
    needs_torchao()
    error = relative_error(network, Quantisation(**{part: method}))
    assert 0.0 < error < BOUND[method]


@needs_int8
@pytest.mark.parametrize('method', QUANTISATIONS[1:])
def test_a_quantised_network_answers_with_what_a_planner_turns_on(network, method):
    needs_torchao()
    quantisation = Quantisation.parse(method)
    quantised = copy.deepcopy(network)
    quantise(quantised, quantisation)
    options = options_for(quantisation, EngineOptions())
    contender = Contender(quantised, TINY, options, fixed_settings(TINY))
    assert (
        contender.answer(made_up_question(TINY, text_tokens=20, grid=(1, 4, 8)), 16).tokens == 16
    )


@needs_int8
@pytest.mark.parametrize('dtype', (torch.float32, torch.bfloat16))
@pytest.mark.parametrize('bias', (False, True))
def test_int8_linear_computes_what_torchao_computes(dtype, bias):
    needs_torchao()
    from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_

    torch.manual_seed(0)
    linear = nn.Linear(192, 576, bias=bias).to(dtype).requires_grad_(False)
    x = torch.randn(2, 17, 192, dtype=dtype)
    x[0, 3] = 0.0
    reference = copy.deepcopy(linear)
    quantize_(reference, Int8DynamicActivationInt8WeightConfig())
    mine, theirs, exact = (layer(x).float() for layer in (Int8Linear(linear), reference, linear))
    assert (mine - theirs).norm() / exact.norm() < 0.01
    assert (mine - exact).norm() < 1.1 * (theirs - exact).norm()
    assert torch.equal(mine[0, 3], exact[0, 3])  # a row of zeros stays one


@needs_int8
def test_what_a_row_becomes_does_not_depend_on_its_neighbours():
    torch.manual_seed(0)
    layer = Int8Linear(nn.Linear(64, 32, bias=False))
    x = torch.randn(3, 64)
    x[1] *= 100.0
    torch.testing.assert_close(layer(x)[:1], layer(x[:1]))


@needs_int8
def test_only_the_part_that_is_named_changes(network):
    quantised = copy.deepcopy(network)
    quantise(quantised, Quantisation(language='int8_dynamic'))
    kinds = {name: type(module) for name, module in quantised.named_modules()}
    assert kinds['model.language_model.layers.1.mlp.up_proj'] is Int8Linear
    assert kinds['model.visual.blocks.1.mlp.linear_fc1'] is nn.Linear
    assert quantised.lm_head is None


@needs_int8
def test_a_tied_head_is_quantised_and_the_embedding_is_not(network):
    quantised = copy.deepcopy(network)
    quantise(quantised, Quantisation(head='int8_dynamic'))
    assert isinstance(quantised.lm_head, Int8Linear)
    assert torch.equal(quantised.text.embed_tokens.weight, network.text.embed_tokens.weight)


def test_nothing_is_done_without_being_asked(network):
    assert relative_error(network, Quantisation()) == 0.0


@pytest.mark.parametrize(
    ('text', 'language', 'vision', 'head'),
    [
        ('w4a8', 'w4a8', 'w4a8', 'w4a8'),
        (
            'language=int8_dynamic,head=int8_weight_only',
            'int8_dynamic',
            'none',
            'int8_weight_only',
        ),
    ],
)
def test_a_quantisation_is_read_and_written_in_words(text, language, vision, head):
    read = Quantisation.parse(text)
    assert read == Quantisation(language, vision, head)
    assert Quantisation.parse(str(read).replace(' ', ',')) == read


@pytest.mark.parametrize(
    ('text', 'sentence'),
    [
        ('int3', "language: 'int3' is not one of none, int8_weight_only"),
        ('wheels=w4a8', "'wheels' is no part; wanted head, language, vision"),
    ],
)
def test_unknown_words_are_refused(text, sentence):
    with pytest.raises(QuantisationError, match=sentence):
        Quantisation.parse(text)


def test_four_bits_are_refused_where_groups_do_not_fit():
    odd = replace(TINY, text=replace(TINY.text, intermediate_size=96))
    with pytest.raises(QuantisationError, match=r'down_proj: 96 inputs are no multiple of 64'):
        quantise(random_network(odd, torch.float32, CPU), Quantisation(language='w4a8'))


def test_half_precision_is_refused_on_a_cpu():
    network = random_network(TINY, torch.float16, CPU)
    with pytest.raises(QuantisationError, match='float16 on a CPU'):
        quantise(network, Quantisation(vision='int8_weight_only'))


def test_int8_dynamic_is_refused_on_a_cpu_without_its_kernels(network, monkeypatch):
    monkeypatch.setattr(Int8Linear, 'available', staticmethod(lambda: False))
    with pytest.raises(QuantisationError, match='take int8_weight_only'):
        quantise(copy.deepcopy(network), Quantisation(head='int8_dynamic'))


def test_a_missing_torchao_is_named(network, monkeypatch):
    monkeypatch.setitem(sys.modules, 'torchao.quantization', None)
    with pytest.raises(QuantisationError, match=r'requirements/quantisation\.txt'):
        quantise(copy.deepcopy(network), Quantisation(language='int8_weight_only'))


@needs_int8
def test_the_planner_says_what_is_quantised():
    parameters = Parameters.from_mapping({'language_quantisation': 'int8_dynamic'})
    session = PlanningSession.load(parameters)
    assert session.backend == 'sdpa cpu float32 language=int8_dynamic'
