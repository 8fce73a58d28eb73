"""When inference counts as dead."""

from types import SimpleNamespace

import pytest

from wamdiff_ros.parameters import Parameters
from wamdiff_ros.ros.inference_thread import Work
from wamdiff_ros.ros.watchdog import Watchdog


def thread(**changes):
    state = {'work': None, 'failures': 0, 'last_error': '', 'lost': False, 'alive': True}
    made = SimpleNamespace(**(state | changes))
    made.is_alive = lambda: made.alive
    return made


def watched(inference, seconds, **parameters):
    """Return what was said at the end of so many seconds, with four checks a second."""
    watchdog = Watchdog(inference, Parameters.from_mapping(parameters))
    return [watchdog.check(i / 4) for i in range(4 * seconds + 1)][-1]


def test_inference_that_does_not_return_is_dead_after_the_timeout():
    stuck = thread(work=Work('planning'))
    assert watched(stuck, 9) == ''
    said = watched(stuck, 10)
    assert said.startswith('inference has not returned for 10.0 s while planning')
    assert 'raise inference_timeout_s' in said


def test_every_inference_has_its_own_time():
    inference = thread()
    watchdog = Watchdog(inference, Parameters.from_mapping({}))
    for i in range(400):
        if i % 20 == 0:  # every five seconds
            inference.work = Work('planning')
        assert watchdog.check(i / 4) == ''


def test_idle_inference_may_be_so_for_ever():
    assert watched(thread(), 3600) == ''


def test_time_that_a_suspended_process_slept_is_not_waited():
    stuck = thread(work=Work('planning'))
    watchdog = Watchdog(stuck, Parameters.from_mapping({}))
    assert watchdog.check(0.0) == ''
    assert watchdog.check(0.25) == ''
    assert watchdog.check(7200.0) == ''


def test_what_is_captured_or_compiled_first_has_ten_times_as_long():
    captures = thread(work=Work('capturing prefill, 1x64x2048', is_first=True))
    assert watched(captures, 99) == ''
    assert 'while capturing prefill' in watched(captures, 100)


def test_timeout_is_the_parameter_and_zero_turns_it_off():
    stuck = thread(work=Work('describing'))
    assert 'for 2.0 s while describing' in watched(stuck, 2, inference_timeout_s=2.0)
    assert watched(stuck, 3600, inference_timeout_s=0.0) == ''


@pytest.mark.parametrize(('failures', 'dead'), [(49, False), (50, True), (70, True)])
def test_failures_in_a_row_are_dead_from_the_parameter_on(failures, dead):
    said = watched(thread(failures=failures, last_error='RuntimeError: a cold'), 1)
    wanted = f'inference has failed {failures} times in a row, the last time with RuntimeError'
    assert said.startswith(wanted) if dead else said == ''


def test_zero_turns_the_count_of_failures_off():
    assert watched(thread(failures=10**6), 1, max_inference_failures=0) == ''


def test_a_lost_device_is_dead_at_once():
    lost = thread(lost=True, failures=1, last_error='AcceleratorError: CUDA error: misaligned')
    said = watched(lost, 0, inference_timeout_s=0.0, max_inference_failures=0)
    assert said == 'inference has lost its device: AcceleratorError: CUDA error: misaligned'


def test_a_thread_that_has_ended_is_dead():
    assert watched(thread(alive=False), 0).startswith('the inference thread has ended')
