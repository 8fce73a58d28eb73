"""Whatever is in a message: an image or an ImageError, a state or an EgoError, and no more memory.

The fields are those of sensor_msgs/Image, CompressedImage and nav_msgs/Odometry, drawn without
any sense, and good ones with damage.
"""

import contextlib
import math
import resource

import cv2
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from mutations import mutations

from wamdiff_ros.observation.ego_buffer import EgoBuffer
from wamdiff_ros.observation.image_decoding import (
    ENCODINGS,
    MAX_PIXELS,
    ImageError,
    decode_compressed,
    decode_raw,
)
from wamdiff_ros.observation.not_ready import NotReady
from wamdiff_ros.types import EgoState

uint32 = st.one_of(st.integers(0, 40), st.sampled_from([2**14, 2**16, 2**31, 2**32 - 1]))


@settings(max_examples=200)
@given(
    encoding=st.one_of(st.sampled_from(ENCODINGS), st.text(max_size=20)),
    height=uint32,
    width=uint32,
    step=uint32,
    data=st.binary(max_size=3000),
    is_bigendian=st.booleans(),
)
def test_any_fields_of_an_image_give_rgb_of_their_size_or_an_image_error(
    encoding, height, width, step, data, is_bigendian
):
    with contextlib.suppress(ImageError):
        rgb = decode_raw(encoding, height, width, step, data, is_bigendian)
        assert (rgb.shape, rgb.dtype) == ((height, width, 3), np.uint8)


def _files():
    picture = np.random.default_rng(1).integers(0, 256, (24, 32, 3), np.uint8)
    options = [
        ('.jpg', []),
        ('.jpg', [cv2.IMWRITE_JPEG_PROGRESSIVE, 1]),
        ('.jpg', [cv2.IMWRITE_JPEG_RST_INTERVAL, 1]),
        ('.png', []),
    ]
    return [cv2.imencode(kind, picture, flags)[1].tobytes() for kind, flags in options]


FILES = _files()


@settings(max_examples=200)
@given(file=st.sampled_from(FILES), mutate=mutations())
def test_any_damage_to_a_file_gives_a_bounded_image_or_an_image_error(file, mutate):
    with contextlib.suppress(ImageError):
        rgb = decode_compressed(mutate(file))
        assert rgb.dtype == np.uint8
        assert rgb.shape[0] * rgb.shape[1] <= MAX_PIXELS


def test_ten_thousand_frames_with_one_percent_corrupt_leave_no_memory_behind():
    rng = np.random.default_rng(2)
    good, corrupt = FILES[0], 0
    for i in range(10_000):
        if i == 2000:  # allocators have what they need
            before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        data = bytearray(good)
        if i % 100 == 0:
            data[rng.integers(2, len(data))] ^= 0xFF
            del data[rng.integers(len(data) // 2, len(data)) :]
        try:
            assert decode_compressed(data).shape == (24, 32, 3)
        except ImageError:
            corrupt += 1
    grown_mib = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib) / 1024
    assert corrupt == 100
    # One leaked frame of 2.3 kB in a hundred would be 0.2 MiB, every frame 18 MiB.
    assert grown_mib < 8


number = st.one_of(
    st.floats(), st.sampled_from([0.0, 1.0, -1.0, 1e300, -1e300, 5e-324, math.nan, math.inf])
)
states = st.builds(
    lambda stamp_ms, frame, numbers: EgoState(
        stamp_ms * 1_000_000,
        frame,
        'base_link',
        tuple(numbers[:3]),
        tuple(numbers[3:7]),
        tuple(numbers[7:9]),
        numbers[9],
        (0.0, 0.0),
    ),
    st.integers(1, 500),
    st.sampled_from(['odom', 'map']),
    st.one_of(
        st.lists(number, min_size=10, max_size=10),
        # Mostly good ones, or nothing would ever be stored.
        st.lists(st.floats(-50, 50), min_size=6, max_size=6).map(
            lambda v: [*v[:3], 0.0, 0.0, 0.0, 1.0, *v[3:]]
        ),
    ),
)


@settings(max_examples=150)
@given(messages=st.lists(states, max_size=30), asked_ms=st.integers(0, 600))
def test_any_odometry_gives_finite_states_or_a_reason(messages, asked_ms):
    buffer = EgoBuffer(300_000_000, 200_000_000)
    for state in messages:
        assert isinstance(buffer.break_before(state, 1.0), str)
        with contextlib.suppress(ValueError):  # EgoError is one
            buffer.add(state)
    assert isinstance(buffer.disagreement(), str)
    with contextlib.suppress(NotReady):
        found = buffer.at(asked_ms * 1_000_000)
        assert math.isclose(math.hypot(*found.orientation_xyzw), 1.0, abs_tol=1e-6)
        for values in (found.position_fixed_m, found.velocity_base_mps):
            assert np.isfinite(values).all()
        assert np.isfinite([found.yaw_rate_radps, *found.acceleration_base_mps2]).all()
