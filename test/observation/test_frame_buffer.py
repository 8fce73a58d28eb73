import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wamdiff_ros.observation.frame_buffer import EncodedFrame, FrameBuffer


def frame(stamp_ns):
    return EncodedFrame(stamp_ns, 'front', lambda: None)


def filled(stamps_ns, capacity=8):
    buffer = FrameBuffer(capacity)
    for stamp_ns in stamps_ns:
        buffer.add(frame(stamp_ns))
    return buffer


def stamp(found):
    return None if found is None else found.stamp_ns


@given(stamps=st.lists(st.integers(-50, 50), max_size=40), time_ns=st.integers(-60, 60))
def test_lookup_equals_brute_force(stamps, time_ns):
    buffer = filled(stamps, capacity=100)
    past = [s for s in stamps if s <= time_ns]
    assert stamp(buffer.newest_before(time_ns)) == max(past, default=None)
    found = buffer.nearest(time_ns)
    nearest = min((abs(s - time_ns) for s in stamps), default=None)
    assert (None if found is None else abs(found.stamp_ns - time_ns)) == nearest
    found = buffer.nearest(0, latest_ns=time_ns)
    assert (found is None) == (not past)
    assert found is None or found.stamp_ns <= time_ns
    assert stamp(buffer.oldest()) == min(stamps, default=None)


@given(stamps=st.lists(st.integers(0, 99), max_size=60), capacity=st.integers(1, 10))
def test_the_newest_frames_stay_and_every_loss_is_counted(stamps, capacity):
    buffer = filled(stamps, capacity)
    counters = buffer.counters()
    assert counters.received == len(stamps)
    assert len(buffer) == counters.received - counters.duplicate - counters.overwritten
    assert len(buffer) == min(capacity, len(set(stamps))) or counters.out_of_order
    assert stamp(buffer.newest_before(100)) == max(stamps, default=None)


def test_duplicate_stamps_keep_the_first_frame():
    buffer = FrameBuffer(4)
    first = frame(10)
    buffer.add(first)
    buffer.add(frame(10))
    assert buffer.newest_before(10) is first
    assert buffer.counters().duplicate == 1


def test_out_of_order_frames_are_sorted_in():
    buffer = filled([10, 30, 20])
    assert stamp(buffer.newest_before(29)) == 20
    assert buffer.counters().out_of_order == 1


def test_rejected_frame_uncovers_the_next_newest():
    buffer = filled([10, 20])
    buffer.reject(buffer.newest_before(99), 'truncated')
    assert stamp(buffer.newest_before(99)) == 10
    assert (buffer.counters().undecodable, buffer.counters().last_error) == (1, 'truncated')


def test_rejecting_a_frame_that_has_left_is_counted_only():
    buffer = filled([10])
    gone = buffer.newest_before(99)
    buffer.clear()
    buffer.add(frame(10))
    buffer.reject(gone, 'truncated')
    assert len(buffer) == 1
    assert buffer.counters().undecodable == 1


def test_clear_keeps_the_counters():
    buffer = filled([1, 2, 3])
    buffer.clear()
    assert len(buffer) == 0
    assert buffer.counters().received == 3


def test_capacity_below_one_is_refused():
    with pytest.raises(ValueError, match='capacity 0'):
        FrameBuffer(0)


def test_concurrent_adds_and_reads_lose_nothing():
    buffer = FrameBuffer(10_000)
    wrong = []

    def write(first):
        for stamp_ns in range(first, 4000, 4):
            buffer.add(frame(stamp_ns))

    def read():
        for time_ns in range(4000):
            found = buffer.newest_before(time_ns)
            if found is not None and found.stamp_ns > time_ns:
                wrong.append(found)

    threads = [threading.Thread(target=write, args=(first,)) for first in range(4)]
    threads += [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not wrong
    assert len(buffer) == buffer.counters().received == 4000


MS = 1_000_000


@given(
    period=st.integers(10 * MS, 200 * MS),
    jitter=st.lists(st.floats(-0.02, 0.02), min_size=40, max_size=40),
    lost=st.sets(st.integers(10, 38), max_size=8),
)
def test_frames_that_never_arrive_are_counted_by_the_gap_they_leave(period, jitter, lost):
    stamps = [round((i + jitter[i]) * period) for i in range(40)]
    arrived = [stamp for i, stamp in enumerate(stamps) if i not in lost]
    counters = filled(arrived).counters()
    assert (counters.received, counters.missing) == (len(arrived), len(lost))


def test_frames_that_are_only_late_or_double_are_not_missing():
    stamps = [i * 100 for i in range(20)]
    assert filled([*stamps[:12], stamps[13], stamps[12], *stamps[13:]]).counters().missing == 0


def test_a_camera_that_changes_its_rate_is_soon_taken_at_its_word():
    fast, slow = [i * 50 for i in range(30)], [1450 + i * 100 for i in range(1, 60)]
    buffer = filled([*fast, *slow[:20]])
    missing = buffer.counters().missing
    for stamp_ns in slow[20:]:
        buffer.add(frame(stamp_ns))
    assert buffer.counters().missing == missing < 15


def test_the_time_before_a_clear_is_no_gap():
    buffer = filled([i * 100 for i in range(10)])
    buffer.clear()
    buffer.add(frame(90_000))
    assert buffer.counters().missing == 0


def test_one_rejected_frame_that_comes_again_and_again_says_nothing_of_the_period():
    buffer = filled(range(0, 1000, 100))
    for _ in range(30):
        buffer.add(frame(1000))
        buffer.reject(buffer.newest_before(1000), 'no picture')
    buffer.add(frame(1100))
    assert buffer.counters().missing == 0
    buffer.add(frame(1400))
    assert buffer.counters().missing == 2
