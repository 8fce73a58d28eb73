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
