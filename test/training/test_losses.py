import json

import pytest
import torch
from golden_data import GOLDEN
from safetensors.torch import load_file

from wamdiff_ros.training import losses

CASES = ('mask_b4', 'mask_b8')


@pytest.fixture(params=CASES)
def golden(request):
    """Return one case's slots, flattened to the masked ones, and its numbers."""
    tensors = load_file(GOLDEN / 'training.safetensors')
    cases = json.loads((GOLDEN / 'training.json').read_text())['cases']
    case = next(case for case in cases if case['name'] == request.param)
    t = {name: tensors[f'{request.param}/{name}'] for name in _NAMES}
    masked = t['loss_mask'].bool()
    lengths = t['response_mask'].sum(1, dtype=torch.long)
    shares = (1 / (len(masked) * lengths))[:, None].expand_as(masked)
    logits = t['loss_logits'].clone().requires_grad_()
    return {
        'case': case,
        'masked': masked,
        'grid_logits': logits,
        'logits': logits[masked],
        'teacher': t['loss_teacher_logits'][masked],
        'labels': t['loss_labels_mod32'][masked].long(),
        'noise': t['t'][masked],
        'shares': shares[masked],
        **{name: t[name] for name in _NAMES[-3:]},
    }


_NAMES = (
    'loss_mask',
    'response_mask',
    'loss_logits',
    'loss_teacher_logits',
    'loss_labels_mod32',
    't',
    'wce_per_token',
    'wce_grad_sum_per_token',
    'jsd_grad_absum',
)


def test_weighted_cross_entropy_equals_the_reference(golden):
    loss = losses.masked_cross_entropy(golden['logits'], golden['labels'], golden['noise'])
    torch.testing.assert_close(loss, golden['wce_per_token'][golden['masked']])
    mean = losses.macro_average(loss, golden['shares'])
    assert mean.item() == pytest.approx(golden['case']['wce_mean'], rel=1e-5)
    (gradient,) = torch.autograd.grad(mean, golden['grid_logits'], retain_graph=True)
    torch.testing.assert_close(gradient.abs().sum(-1), golden['wce_grad_sum_per_token'])
    assert loss.mean().item() == pytest.approx(golden['case']['wce_sum'], rel=1e-5)


@pytest.mark.parametrize(
    ('key', 'beta', 'temperature'),
    [('jsd_T1.0_beta0.5', 0.5, 1), ('jsd_T2.0_beta0.5', 0.5, 2), ('jsd_T1.0_beta0.1', 0.1, 1)],
)
def test_jensen_shannon_divergence_equals_the_reference(golden, key, beta, temperature):
    loss = losses.jensen_shannon(golden['logits'], golden['teacher'], beta, temperature)
    mean = losses.macro_average(loss, golden['shares'])
    assert mean.item() == pytest.approx(golden['case'][key], rel=1e-5)
    if (beta, temperature) == (0.5, 1):
        (gradient,) = torch.autograd.grad(mean, golden['grid_logits'])
        torch.testing.assert_close(gradient.abs().sum(-1), golden['jsd_grad_absum'])


@pytest.mark.parametrize('temperature', (1, 2))
def test_reverse_kl_equals_the_reference(golden, temperature):
    loss = losses.reverse_kl(golden['logits'], golden['teacher'], temperature)
    mean = losses.macro_average(loss, golden['shares'])
    assert mean.item() == pytest.approx(golden['case'][f'reverse_kl_T{temperature}'], rel=1e-5)


def test_forward_kl_is_the_teachers_divergence_from_the_student_weighted_by_noise():
    torch.manual_seed(0)
    student, teacher = torch.randn(2, 5, 7).unbind(0)
    noise = torch.linspace(0.1, 1, 5)
    categorical = [torch.distributions.Categorical(logits=z / 2) for z in (teacher, student)]
    expected = 4 * torch.distributions.kl_divergence(*categorical)
    torch.testing.assert_close(losses.forward_kl(student, teacher, 2), expected)
    torch.testing.assert_close(losses.forward_kl(student, teacher, 2, noise), expected / noise)
