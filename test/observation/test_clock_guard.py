from hypothesis import given
from hypothesis import strategies as st

from wamdiff_ros.observation.clock_guard import BACKWARD_NS, ClockGuard

SECOND = 1_000_000_000


def test_equal_advance_is_no_jump():
    guard = ClockGuard(SECOND)
    assert guard.check(100 * SECOND, 0) is None
    assert guard.check(160 * SECOND, 60 * SECOND) is None


def test_forward_jump_gives_its_size():
    guard = ClockGuard(SECOND)
    guard.check(0, 0)
    assert guard.check(3 * SECOND, SECOND // 10) == 'the clock jumped 2.900 s forward'


def test_backward_jump_of_any_visible_size_is_a_jump():
    guard = ClockGuard(SECOND)
    guard.check(10 * SECOND, 0)
    assert guard.check(10 * SECOND - 1, 1000).endswith('backward')


def test_a_step_back_is_a_jump_also_when_time_has_gone_on_farther_since():
    guard = ClockGuard(SECOND)
    guard.check(10 * SECOND, 0)
    # 0.1 s back within 0.25 s, which is how often the node checks.
    jump = guard.check(10 * SECOND + 150_000_000, 250_000_000)
    assert jump == 'the clock jumped 0.100 s backward'


def test_time_that_stands_longer_than_the_threshold_is_a_backward_jump():
    guard = ClockGuard(SECOND)
    guard.check(10 * SECOND, 0)
    assert guard.check(10 * SECOND, 2 * SECOND) == 'the clock jumped 2.000 s backward'


def test_a_jump_is_reported_once():
    guard = ClockGuard(SECOND)
    guard.check(0, 0)
    assert guard.check(100 * SECOND, 1)
    assert guard.check(101 * SECOND, SECOND + 1) is None


def test_after_a_reset_there_is_nothing_to_compare_with():
    guard = ClockGuard(SECOND)
    guard.check(0, 0)
    guard.reset()
    assert guard.check(100 * SECOND, 1) is None


@given(st.lists(st.tuples(st.integers(0, SECOND), st.integers(-BACKWARD_NS, SECOND)), max_size=50))
def test_differences_within_the_threshold_never_add_up(steps):
    guard = ClockGuard(SECOND)
    ros_ns, steady_ns = 50 * SECOND, 0
    guard.check(ros_ns, steady_ns)
    for advance_ns, difference_ns in steps:
        steady_ns += advance_ns
        forward_ns = max(advance_ns + difference_ns, 0)
        ros_ns += forward_ns
        assert guard.check(ros_ns, steady_ns) is None
