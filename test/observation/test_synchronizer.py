import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wamdiff_ros.observation.frame_buffer import EncodedFrame
from wamdiff_ros.observation.image_decoding import ImageError
from wamdiff_ros.observation.not_ready import NotReady
from wamdiff_ros.observation.synchronizer import Synchronizer
from wamdiff_ros.parameters import Parameters
from wamdiff_ros.types import Command, EgoState

MS = 1_000_000


def synchronizer(cameras=('front', 'left'), ego_ms=(), **parameters):
    made = Synchronizer(Parameters.from_mapping({'cameras': cameras, **parameters}))
    for time_ms in ego_ms:
        made.ego.add(ego(time_ms))
    return made


def ego(time_ms):
    x_m = time_ms * 0.01
    return EgoState(
        round(time_ms * MS),
        'odom',
        'base_link',
        (x_m, 0.0, 0.0),
        (0.0, 0.0, 0.0, 1.0),
        (10.0, 0.0),
        0.0,
        (0.0, 0.0),
    )


def see(target, camera, time_ms, error=None, log=None):
    """Add a frame whose pixels tell its stamp."""

    def decode():
        if log is not None:
            log.append((camera, time_ms))
        if error:
            raise ImageError(error)
        return np.full((2, 2, 3), time_ms % 256, np.uint8)

    target.frames[camera].add(EncodedFrame(round(time_ms * MS), camera, decode))


def reason(target, now_ms):
    with pytest.raises(NotReady) as not_ready:
        target.observe(now_ms * MS)
    return not_ready.value.reason


def test_t0_is_the_newest_frame_of_the_first_camera():
    sync = synchronizer(ego_ms=range(0, 200, 20))
    for time_ms in (30, 65, 100):
        see(sync, 'front', time_ms)
        see(sync, 'left', time_ms + 4)
    observation = sync.observe(110 * MS)
    assert observation.t0_ns == 100 * MS
    assert [frame.camera for frame in observation.frames] == ['front', 'left']
    assert [frame.stamp_ns for frame in observation.frames] == [100 * MS, 104 * MS]
    assert observation.frames[1].rgb[0, 0, 0] == 104
    assert observation.ego.stamp_ns == 100 * MS
    assert observation.ego.position_fixed_m == pytest.approx((1.0, 0.0, 0.0))
    assert observation.command is Command.STRAIGHT


def test_order_of_cameras_is_the_configured_one():
    sync = synchronizer(cameras=('right', 'front', 'left'), ego_ms=[0])
    for camera in ('left', 'front', 'right'):
        see(sync, camera, 0)
    found = sync.observe(0).frames
    assert [frame.camera for frame in found] == ['right', 'front', 'left']


def test_frame_from_the_future_is_not_used():
    sync = synchronizer(ego_ms=range(0, 300, 50))
    for camera, times_ms in (('front', (100, 150)), ('left', (70, 101))):
        for time_ms in times_ms:
            see(sync, camera, time_ms)
    assert sync.observe(100 * MS).t0_ns == 100 * MS
    assert sync.observe(100 * MS).frames[1].stamp_ns == 70 * MS
    assert sync.observe(101 * MS).frames[1].stamp_ns == 101 * MS
    assert sync.observe(149 * MS).t0_ns == 100 * MS


def test_only_frames_from_the_future_is_a_reason():
    sync = synchronizer(ego_ms=[0])
    see(sync, 'front', 400)
    assert reason(sync, 100) == (
        'all frames of camera front are from the future, the next by 0.300 s; check the clocks '
        'or camera.front.stamp_offset_s'
    )


def test_missing_camera_is_named_with_its_topic():
    sync = synchronizer(ego_ms=[0])
    assert reason(sync, 0) == 'no frame from camera front yet (topic camera/front/image)'
    see(sync, 'front', 0)
    assert reason(sync, 0) == 'no frame from camera left yet (topic camera/left/image)'


def test_old_frame_is_a_reason_with_figures():
    sync = synchronizer(cameras=('front',), ego_ms=range(0, 500, 50))
    see(sync, 'front', 0)
    assert sync.observe(250 * MS).t0_ns == 0
    assert reason(sync, 420) == 'newest frame of camera front is 0.420 s old, limit 0.250 s'


def test_skewed_camera_is_a_reason_with_figures():
    sync = synchronizer(ego_ms=range(0, 500, 50))
    see(sync, 'front', 200)
    see(sync, 'left', 140)
    assert reason(sync, 210) == 'nearest frame of camera left is 0.060 s from t0, limit 0.050 s'


def test_while_another_camera_lags_the_newest_set_within_the_skew_is_used():
    sync = synchronizer(ego_ms=range(0, 500, 50))
    for time_ms in (100, 200):
        see(sync, 'front', time_ms)
    see(sync, 'left', 145)
    observation = sync.observe(240 * MS)
    assert [frame.stamp_ns for frame in observation.frames] == [100 * MS, 145 * MS]
    assert reason(sync, 360) == 'nearest frame of camera left is 0.055 s from t0, limit 0.050 s'
    see(sync, 'left', 245)
    assert sync.observe(250 * MS).t0_ns == 200 * MS


def test_odometry_is_needed_at_t0():
    sync = synchronizer(cameras=('front',))
    see(sync, 'front', 240)
    assert reason(sync, 250) == 'no odometry yet'
    sync.ego.add(ego(0))
    assert reason(sync, 250) == 'odometry ends 0.240 s (limit 0.200 s) before t0'


def test_nothing_is_decoded_before_everything_is_there():
    log = []
    sync = synchronizer()
    see(sync, 'front', 0, log=log)
    see(sync, 'left', 0, log=log)
    reason(sync, 0)
    assert log == []


def test_broken_frame_is_dropped_counted_and_the_next_newest_taken():
    sync = synchronizer(ego_ms=range(0, 200, 50))
    for time_ms, error in ((50, None), (100, None), (150, 'JPEG is truncated')):
        see(sync, 'front', time_ms, error)
        see(sync, 'left', time_ms)
    assert sync.observe(160 * MS).t0_ns == 100 * MS
    counters = sync.counters()
    assert counters['front.undecodable'] == 1
    assert counters['front.last_error'] == 'JPEG is truncated'
    assert counters['left.undecodable'] == 0


def test_broken_side_frame_falls_back_to_the_next_nearest():
    sync = synchronizer(ego_ms=[100])
    see(sync, 'front', 100)
    see(sync, 'left', 80)
    see(sync, 'left', 101, error='broken')
    assert sync.observe(110 * MS).frames[1].stamp_ns == 80 * MS


def test_reason_after_a_broken_frame_says_so():
    sync = synchronizer(cameras=('front',), ego_ms=[0])
    see(sync, 'front', 0, error='encoding h264 is not supported')
    assert 'encoding h264 is not supported' in reason(sync, 0)


def test_the_same_t0_is_returned_again_and_decoded_once():
    log = []
    sync = synchronizer(ego_ms=[0])
    see(sync, 'front', 0, log=log)
    see(sync, 'left', 0, log=log)
    first, second = sync.observe(0), sync.observe(100 * MS)
    assert first.t0_ns == second.t0_ns == 0
    assert len(log) == 2


def test_command_in_force_survives_a_reset():
    sync = synchronizer(cameras=('front',), ego_ms=[0])
    sync.command = Command.LEFT
    see(sync, 'front', 0)
    assert sync.observe(0).command is Command.LEFT
    sync.reset()
    assert 'no frame from camera front yet' in reason(sync, 0)
    see(sync, 'front', 0)
    sync.ego.add(ego(0))
    assert sync.observe(0).command is Command.LEFT
    assert sync.counters()['front.received'] == 2


def test_default_command_comes_from_the_parameters():
    sync = synchronizer(cameras=('front',), ego_ms=[0], default_command='right')
    see(sync, 'front', 0)
    assert sync.observe(0).command is Command.RIGHT


@given(
    front=st.lists(st.integers(0, 400), max_size=8),
    left=st.lists(st.integers(0, 400), max_size=8),
    odometry=st.lists(st.integers(0, 400), max_size=12),
    now_ms=st.integers(0, 450),
)
def test_an_observation_keeps_every_limit(front, left, odometry, now_ms):
    sync = synchronizer(ego_ms=odometry)
    for time_ms in front:
        see(sync, 'front', time_ms)
    for time_ms in left:
        see(sync, 'left', time_ms)
    try:
        observation = sync.observe(now_ms * MS)
    except NotReady as not_ready:
        assert not_ready.reason
        return
    t0_ms = observation.t0_ns / MS
    seen = [time_ms for time_ms in left if time_ms <= now_ms]
    complete = [f for f in front if f <= now_ms and any(abs(f - s) <= 50 for s in seen)]
    assert t0_ms == max(complete)
    assert now_ms - t0_ms <= 250
    assert abs(observation.frames[1].stamp_ns / MS - t0_ms) <= 50
    assert all(frame.stamp_ns <= now_ms * MS for frame in observation.frames)
    assert observation.ego.stamp_ns == observation.t0_ns
    assert min(abs(time_ms - t0_ms) for time_ms in odometry) <= 200


def test_a_frozen_camera_is_the_reason_and_a_new_picture_ends_it():
    sync = synchronizer(cameras=('front',), ego_ms=range(0, 1000, 20))

    def see_picture(time_ms, grey):
        rgb = np.full((2, 2, 3), grey, np.uint8)
        sync.frames['front'].add(EncodedFrame(time_ms * MS, 'front', lambda: rgb))

    for time_ms in range(0, 300, 100):  # 10 m/s
        see_picture(time_ms, 7)
        assert sync.observe(time_ms * MS).t0_ns == time_ms * MS
    see_picture(300, 7)
    assert reason(sync, 300).startswith('camera front has shown one picture for 0.30 s and 3.0 m')
    see_picture(400, 8)
    assert sync.observe(400 * MS).t0_ns == 400 * MS
