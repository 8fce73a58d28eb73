"""Answers on time, on a clock that stands still but for the forwards of a network."""

import pytest
import torch
from tiny_session import load, observation, speak, tiny_model

from wamdiff_ros.decoding.block_diffusion import BlockSettings, Trace, decode_blocks
from wamdiff_ros.runtime.pace import Costs, DeadlinePace

MS = 10**6
ANSWER = ','.join(f'{4.0 * (i + 1):.2f},0.00' for i in range(8))


class SlowedClock:
    """Every forward of an engine takes `forward_ns` on it, and nothing else takes any time."""

    def __init__(self, engine, forward_ns):
        self.now_ns = 0
        self._forward_ns = forward_ns
        engine.after_forward = self._forward

    def __call__(self):
        return self.now_ns

    def _forward(self, stage, rows):
        self.now_ns += self._forward_ns


def slowed(session, forward_ns):
    """Return a session over a loaded one's parts, and its clock."""
    clock = SlowedClock(session._engine, forward_ns)
    slow = session.on_clock(clock)
    return slow, clock


@pytest.fixture(scope='module')
def session(tmp_path_factory):
    """A tiny checkpoint, whose every answer reads as a plan."""
    loaded = load(tiny_model(tmp_path_factory.mktemp('model')))
    with pytest.MonkeyPatch.context() as patch:
        speak(patch, loaded, lambda ids: ANSWER)
        yield loaded


@pytest.mark.parametrize('deadline_ms', (20, 35, 50, 80, 120, 200, 500))
def test_every_tick_has_a_plan_within_its_deadline_and_one_forward(session, deadline_ms):
    forward_ns = 5 * MS
    slow, clock = slowed(session, forward_ns)
    for tick in range(3):
        deadline_ns = clock.now_ns + deadline_ms * MS
        result = slow.plan(observation(seed=tick), deadline_ns / 1e9)
        assert result.plan is not None, result.reason
        assert clock.now_ns <= deadline_ns + forward_ns
        counts = result.counts
        assert (counts.vision_forwards, counts.prefill_forwards) == (1, 2)
        in_time = deadline_ms * MS >= forward_ns * (1 + 2 + 4 * 3)  # four blocks of three steps
        assert result.cut_short is not in_time
        if in_time:
            assert counts.denoising_forwards == 12
        else:
            assert counts.bulk_filled_tokens > 0


def test_more_time_is_spent_on_more_forwards(session):
    slow, clock = slowed(session, 5 * MS)
    counts = []
    for deadline_ms in range(20, 100, 5):
        slow.reset()
        deadline_s = (clock.now_ns + deadline_ms * MS) / 1e9
        counts.append(slow.plan(observation(), deadline_s).counts)
    denoised = [c.denoising_forwards for c in counts]
    assert denoised == [1, 1, 1, *range(4, 13), 12, 12, 12, 12]
    # All but the one slot of the first block that the rule itself unmasks.
    assert counts[0].bulk_filled_tokens == 127 > counts[-1].bulk_filled_tokens


def test_without_a_deadline_nothing_is_cut_short(session):
    slow, _ = slowed(session, 1000 * MS)
    result = slow.plan(observation())
    assert not result.cut_short and result.counts.denoising_forwards == 12


def test_answers_that_cannot_be_read_when_filled_at_once_get_a_forward_per_block(
    session, monkeypatch
):
    monkeypatch.setattr(session._tokenizer, 'decode', lambda ids: 'nothing to read')
    slow, clock = slowed(session, 5 * MS)  # warming up shows it
    monkeypatch.undo()
    slow.reset()
    result = slow.plan(observation(), (clock.now_ns + 20 * MS) / 1e9)
    assert result.counts.denoising_forwards == 4 and result.cut_short
    assert result.plan is not None


def test_three_unread_fills_in_a_row_end_filling_at_once_and_fewer_do_not(session, monkeypatch):
    def hurried():
        deadline_s = (clock.now_ns + 20 * MS) / 1e9
        return slow.plan(observation(), deadline_s).counts.denoising_forwards

    slow, clock = slowed(session, 5 * MS)
    for unread, then in ((2, 1), (3, 4)):
        with monkeypatch.context() as patch:
            patch.setattr(session._tokenizer, 'decode', lambda ids: 'nothing to read')
            assert [hurried() for _ in range(unread)] == [1] * unread
        assert hurried() == then
    slow.reset()  # what warming up has shown is known, and all that came since forgotten
    assert hurried() == 1


def test_a_generous_deadline_changes_nothing(session, monkeypatch):
    monkeypatch.setattr(session._tokenizer, 'decode', str)
    slow, clock = slowed(session, MS)
    free = slow.plan(observation())
    timed = slow.plan(observation(), (clock.now_ns + 10**12) / 1e9)
    assert timed.answer == free.answer and not timed.cut_short


def test_costs_are_nearly_the_slowest_of_the_newest_measurements_but_no_spike():
    costs = Costs()
    assert costs.estimate_ns(1) == 0
    for spent in (5, 7, 6, 5, 6, 7, 5, 90, 80):
        costs.note(1, spent)
    assert costs.estimate_ns(1) == 7
    for _ in range(20):
        costs.note(1, 3)
    assert costs.estimate_ns(1) == 3


class Model:
    """Unsure of everything: as many steps as there are."""

    batch, device = 1, torch.device('cpu')

    def __init__(self, clock):
        self.clock = clock
        self.shapes = []

    def denoise(self, block, masked, before=None):
        self.shapes.append(block.shape[1] // 4 + (before is not None))
        self.clock[0] += 10
        return torch.zeros(int(masked.sum()), 10)


@pytest.mark.parametrize(
    ('deadline', 'at_once', 'shapes'),
    [
        (1000, True, [1, 1, 1, 2, 1, 1, 2, 1, 1]),  # at ease
        (90, True, [1, 1, 1, 2, 1, 1, 2, 1, 1]),  # just so
        (80, True, [1, 1, 1, 2, 1, 1, 2, 1]),  # a step less in the last block
        (30, True, [1, 2, 2]),  # one forward each
        (29, True, [3]),  # not even that: all from one forward
        (0, True, [3]),
        (0, False, [1, 2, 2]),  # late
    ],
)
def test_steps_are_given_up_before_blocks_and_late_blocks_before_early_ones(
    deadline, at_once, shapes
):
    clock, costs = [0], Costs()
    for shape in (1, 2, 3):
        costs.note(shape, 10)
    pace = DeadlinePace(costs, lambda: clock[0], deadline, 3, at_once)
    trace, model = Trace(), Model(clock)
    settings = BlockSettings(4, 9, (), 3, confidence_threshold=1.01)
    (answer,) = decode_blocks(model, settings, 12, pace=pace, trace=trace)
    assert model.shapes == shapes
    assert len(answer.token_ids) == 12
    assert trace.cut_short == (deadline < 90)


def test_an_answer_longer_than_expected_is_still_decoded():
    clock, costs = [0], Costs()
    for shape in (1, 2):
        costs.note(shape, 10)
    pace = DeadlinePace(costs, lambda: clock[0], 10**6, 1, True)
    model = Model(clock)
    decode_blocks(model, BlockSettings(4, 9, (), 2), 12, pace=pace)
    assert model.shapes == [1, 1, 2, 1, 2, 1]
