"""The stages one after another on a few samples, judged by what the planner then answers."""

import pytest
from accelerate.state import AcceleratorState
from training_data import records, tiny_checkpoint

from wamdiff_ros.parameters import Parameters
from wamdiff_ros.runtime.session import PlanningSession
from wamdiff_ros.training.conversations import write_displacements
from wamdiff_ros.training.recipe import Recipe
from wamdiff_ros.training.trainer import Trainer


@pytest.fixture(autouse=True)
def _one_accelerator_per_run():
    yield
    AcceleratorState._reset_state(reset_partial_state=True)


def train(some, init, output, **changes):
    AcceleratorState._reset_state(reset_partial_state=True)
    values = {
        'init': init,
        'output': output,
        'data': (output,),
        'batch': {'planning': len(some)},
        'learning_rate': 5e-3,
        'vision_learning_rate': 1e-3,
        'warm_up_steps': 10,
        'weight_decay': 0.0,
        'precision': 'fp32',
        'keep_checkpoints': 1,
    }
    return Trainer(Recipe(**{**values, **changes}), some).run()


def answers(checkpoint, some, **parameters):
    session = PlanningSession.load(
        Parameters.from_mapping({'model_dir': str(checkpoint), **parameters})
    )
    return [session.plan(record.observation()) for record in some]


@pytest.mark.slow
def test_every_stage_answers_what_it_was_taught(tmp_path):
    some = records(3)
    taught = [write_displacements(record.waypoints_base_m) for record in some]
    assert len(set(taught)) == 3
    init = tiny_checkpoint(tmp_path / 'init')
    first = train(some, init, tmp_path / 'b1', kind='autoregressive', steps=240)
    assert [result.answer for result in answers(first, some)] == taught
    blocks = {'kind': 'block', 'weighting': 'none', 'noisy_copies': 2}
    b4 = train(some, first, tmp_path / 'b4', steps=500, block_size=4, **blocks)
    assert [result.answer for result in answers(b4, some)] == taught
    # Stage II: a teacher of smaller blocks, whose student learns from its own answers too.
    b8 = train(
        some,
        b4,
        tmp_path / 'b8',
        kind='distillation',
        teacher=b4,
        steps=200,
        block_size=8,
        distillation_share=0.5,
        weighting='none',
        on_policy_every=4,
        noisy_copies=2,
    )
    results = answers(b8, some)
    assert [result.answer for result in results] == taught
    assert all(result.plan is not None for result in results)
    forwards = [result.counts.denoising_forwards for result in results]
    assert max(forwards) < 64, 'blocks should not need one forward per token'
