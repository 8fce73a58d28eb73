"""The thread that owns the model, without ROS."""

import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from wamdiff_ros.observation.not_ready import NotReady
from wamdiff_ros.ros.inference_thread import (
    DescriptionOutcome,
    InferenceThread,
    TickRequest,
)
from wamdiff_ros.types import (
    CameraFrame,
    InferenceCounts,
    Observation,
    PlanningResult,
    StageTimings,
)

TIMEOUT_S = 60.0


class Session:
    """Plans when `go` is set, and writes down who called it from where."""

    backend, model_name = 'fake', 'fake'

    def __init__(self):
        self.calls = []
        self.deadlines_s = []
        self.threads = set()
        self.busy = threading.Event()
        self.go = threading.Event()
        self.go.set()
        self.error = None

    def plan(self, observation, deadline_s):
        self._note('plan')
        self.deadlines_s.append(deadline_s)
        self.busy.set()
        assert self.go.wait(TIMEOUT_S)
        if self.error:
            raise self.error
        counts = InferenceCounts()
        return PlanningResult(observation.t0_ns, None, 'none', '', StageTimings(), counts)

    def describe(self, observation, stop):
        self._note('describe')
        return None, StageTimings()

    def reset(self):
        self._note('reset')

    def _note(self, call):
        self.calls.append(call)
        self.threads.add(threading.get_ident())


@pytest.fixture
def rig():
    session = Session()
    progress = []

    def load(note, cancelled):
        progress.append(note)
        return session

    thread = InferenceThread(load, max_gap_ns=10**9)
    assert thread.loaded.result(TIMEOUT_S) == ('fake', 'fake')
    outcomes = []
    arrived = threading.Condition()

    def deliver(outcome):
        with arrived:
            outcomes.append(outcome)
            arrived.notify_all()

    def wait_for(count):
        with arrived:
            assert arrived.wait_for(lambda: len(outcomes) >= count, TIMEOUT_S), outcomes
        return outcomes[count - 1]

    def request(tick, t0_ns=None, **changes):
        observed = observation(tick * 10**8 if t0_ns is None else t0_ns)
        return replace(
            TickRequest(tick, 0, tick * 10**8, lambda grid_ns: observed, deliver), **changes
        )

    yield SimpleNamespace(
        session=session, thread=thread, request=request, wait_for=wait_for, progress=progress
    )
    session.go.set()
    assert thread.close(TIMEOUT_S)


def observation(t0_ns, size=(4, 4)):
    frame = CameraFrame('front', t0_ns, np.zeros((*size, 3), np.uint8))
    return Observation(t0_ns, (frame,), None, None)


def test_everything_is_called_from_one_thread(rig):
    rig.thread.submit(rig.request(1, describe=True, describe_until_s=float('inf')))
    rig.wait_for(2)
    rig.thread.reset()
    rig.thread.submit(rig.request(2))
    rig.wait_for(3)
    assert rig.session.calls == ['plan', 'describe', 'reset', 'plan']
    assert len(rig.session.threads) == 1
    assert threading.get_ident() not in rig.session.threads


def test_the_session_is_told_when_the_plan_is_needed(rig):
    for count, until_s in enumerate((12.5, None), start=1):
        rig.thread.submit(rig.request(count, plan_until_s=until_s))
        rig.wait_for(count)
    assert rig.session.deadlines_s == [12.5, None]


def test_observation_older_than_the_last_one_is_not_planned(rig):
    for count, t0_ns in enumerate((200, 200, 199), start=1):
        rig.thread.submit(rig.request(count, t0_ns=t0_ns))
        outcome = rig.wait_for(count)
    assert outcome.reason == 'no frame of camera front since the last plan'
    assert rig.session.calls == ['plan']


def test_tick_that_finds_inference_busy_is_skipped(rig):
    rig.session.go.clear()
    first, second = rig.request(1), rig.request(2)
    assert rig.thread.submit(first) is None
    assert rig.session.busy.wait(TIMEOUT_S)
    assert rig.thread.submit(second) is second
    rig.session.go.set()
    assert rig.wait_for(1).request is first


def test_not_ready_is_a_reason_and_not_an_error(rig):
    def observe(grid_ns):
        raise NotReady('no frame yet')

    rig.thread.submit(rig.request(1, observe=observe))
    outcome = rig.wait_for(1)
    assert (outcome.result, outcome.reason, outcome.traceback) == (None, 'no frame yet', '')
    assert rig.session.calls == []


def test_same_frame_is_not_planned_twice(rig):
    rig.thread.submit(rig.request(1, t0_ns=5))
    rig.wait_for(1)
    rig.thread.submit(rig.request(2, t0_ns=5))
    assert rig.wait_for(2).reason == 'no frame of camera front since the last plan'
    assert rig.session.calls == ['plan']


def test_exception_is_a_failed_tick_after_which_the_cache_is_not_trusted(rig):
    rig.session.error = RuntimeError('boom')
    rig.thread.submit(rig.request(1))
    outcome = rig.wait_for(1)
    assert outcome.reason == 'inference failed: RuntimeError: boom'
    assert 'Traceback' in outcome.traceback
    rig.session.error = None
    rig.thread.submit(rig.request(2))
    assert rig.wait_for(2).result is not None
    assert rig.session.calls == ['plan', 'reset', 'plan']


def test_failures_in_a_row_are_counted_until_something_is_inferred(rig):
    rig.session.error = RuntimeError('CUDA out of memory\nand more')
    for count in (1, 2):
        rig.thread.submit(rig.request(count))
        rig.wait_for(count)
    rig.thread.submit(rig.request(3, observe=nothing))  # says nothing of inference
    rig.wait_for(3)
    assert (rig.thread.failures, rig.thread.lost) == (2, False)
    assert rig.thread.last_error == 'RuntimeError: CUDA out of memory'
    rig.session.error = None
    rig.thread.submit(rig.request(4))
    rig.wait_for(4)
    assert rig.thread.failures == 0


def test_lost_device_stays_lost(rig):
    rig.session.error = RuntimeError('CUDA error: an illegal memory access was encountered')
    rig.thread.submit(rig.request(1))
    rig.wait_for(1)
    rig.session.error = None
    rig.thread.submit(rig.request(2))
    rig.wait_for(2)
    assert rig.thread.lost


def test_what_it_is_at_is_told_and_a_capture_amid_it_too(rig):
    assert rig.thread.work is None
    rig.session.go.clear()
    rig.thread.submit(rig.request(1))
    assert rig.session.busy.wait(TIMEOUT_S)
    assert (rig.thread.work.doing, rig.thread.work.is_first) == ('planning', False)
    rig.progress[0]('capturing vision')
    assert (rig.thread.work.doing, rig.thread.work.is_first) == ('capturing vision', True)
    rig.session.go.set()
    rig.wait_for(1)
    assert rig.thread.work is None


def test_gap_and_new_image_size_clear_the_cache(rig):
    rig.thread.submit(rig.request(1))
    rig.wait_for(1)
    rig.thread.submit(rig.request(2, observe=nothing))
    assert rig.wait_for(2).reason == 'no frame'
    rig.thread.submit(rig.request(3, t0_ns=3 * 10**9))
    assert rig.wait_for(3).cleared == 'no observation for 2.90 s'
    wider = observation(31 * 10**8, size=(4, 8))
    rig.thread.submit(rig.request(4, observe=lambda grid_ns: wider))
    assert rig.wait_for(4).cleared == 'camera front changed from 4x4 to 8x4'
    assert rig.session.calls == ['plan', 'reset', 'plan', 'reset', 'plan']


def nothing(grid_ns):
    raise NotReady('no frame')


def test_inference_that_is_slower_than_a_gap_keeps_its_cache(rig):
    for tick, t0_ns in enumerate((10**9, 4 * 10**9, 7 * 10**9), start=1):
        rig.thread.submit(rig.request(tick, t0_ns=t0_ns))
        assert rig.wait_for(tick).cleared == ''
    assert rig.session.calls == ['plan'] * 3


def test_description_is_left_out_with_a_reason_when_there_is_no_time_for_it(rig):
    rig.thread.submit(rig.request(1, describe=True, describe_until_s=0.0))
    assert rig.wait_for(2).reason == 'no time was left for a description'
    rig.thread.submit(rig.request(2, describe=True, describe_until_s=float('inf')))
    assert isinstance(rig.wait_for(4), DescriptionOutcome)
    assert rig.session.calls == ['plan', 'plan', 'describe']


def test_load_that_fails_gives_its_own_error():
    def load(progress, cancelled):
        raise ValueError('no such file')

    thread = InferenceThread(load, max_gap_ns=1)
    with pytest.raises(ValueError, match='no such file'):
        thread.loaded.result(TIMEOUT_S)
    assert thread.close(TIMEOUT_S)


def test_close_cancels_a_load():
    def load(progress, cancelled):
        progress('waiting')
        while not cancelled():
            time.sleep(0.01)
        raise RuntimeError('cancelled')

    thread = InferenceThread(load, max_gap_ns=1)
    assert thread.close(TIMEOUT_S)
    assert thread.progress == 'waiting'
