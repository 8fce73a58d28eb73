import contextlib
import resource
import struct
import zlib

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wamdiff_ros.observation.image_decoding import (
    ENCODINGS,
    ImageError,
    decode_compressed,
    decode_raw,
)

RED = (200, 40, 20)  # R, G, B


def patch(colour=RED, height=16, width=24):
    return np.full((height, width, 3), colour, np.uint8)


def mosaic(pattern, colour, height=16, width=24):
    raw = np.zeros((height, width), np.uint8)
    for place, letter in enumerate(pattern):
        raw[place // 2 :: 2, place % 2 :: 2] = colour['rgb'.index(letter)]
    return raw


def decode(encoding, array, **more):
    """Decode an array whose rows are the image's rows."""
    height = more.pop('height', len(array))
    width = more.pop('width', array.shape[1])
    step = more.pop('step', array[0].nbytes)
    return decode_raw(encoding, height, width, step, array.tobytes(), **more)


def jpeg(rgb, quality=95):
    bgr = cv2.cvtColor(rgb, cv2.COLOR_RGB2BGR)
    return cv2.imencode('.jpg', bgr, [cv2.IMWRITE_JPEG_QUALITY, quality])[1].tobytes()


def png(rgb):
    return cv2.imencode('.png', cv2.cvtColor(rgb, cv2.COLOR_RGB2BGR))[1].tobytes()


@pytest.fixture(scope='module')
def noise():
    return np.random.default_rng(0).integers(0, 256, (48, 64, 3), np.uint8)


@pytest.mark.parametrize(
    ('encoding', 'order'),
    [('rgb8', [0, 1, 2]), ('bgr8', [2, 1, 0]), ('8UC3', [2, 1, 0])],
)
def test_colour_encodings_give_rgb(encoding, order, noise):
    assert np.array_equal(decode(encoding, noise[..., order]), noise)


@pytest.mark.parametrize(
    ('encoding', 'order'),
    [('rgba8', [0, 1, 2, 3]), ('bgra8', [2, 1, 0, 3]), ('8UC4', [2, 1, 0, 3])],
)
def test_alpha_is_dropped(encoding, order, noise):
    rgba = np.dstack([noise, np.full(noise.shape[:2], 7, np.uint8)])
    assert np.array_equal(decode(encoding, rgba[..., order]), noise)


@pytest.mark.parametrize('encoding', ['mono8', '8UC1'])
def test_mono_repeats_the_channel(encoding, noise):
    assert np.array_equal(decode(encoding, noise[..., 0]), noise[..., [0, 0, 0]])


@pytest.mark.parametrize('encoding', ['mono16', '16UC1'])
@pytest.mark.parametrize('bigendian', [False, True])
def test_sixteen_bits_keep_the_upper_eight(encoding, bigendian, noise):
    raw = ((noise[..., 0].astype(np.uint16) << 8) | 0x5A).astype('>u2' if bigendian else '<u2')
    assert np.array_equal(decode(encoding, raw, is_bigendian=bigendian), noise[..., [0, 0, 0]])


@pytest.mark.parametrize(('encoding', 'order'), [('rgb16', [0, 1, 2]), ('bgr16', [2, 1, 0])])
def test_sixteen_bit_colour(encoding, order, noise):
    raw = (noise[..., order].astype('<u2') << 8) | 0x5A
    assert np.array_equal(decode(encoding, raw), noise)


@pytest.mark.parametrize('colour', [RED, (20, 200, 40), (40, 20, 200)])
@pytest.mark.parametrize('pattern', ['rggb', 'bggr', 'gbrg', 'grbg'])
def test_every_bayer_pattern_gives_its_colour(pattern, colour):
    assert np.array_equal(decode(f'bayer_{pattern}8', mosaic(pattern, colour)), patch(colour))


def test_sixteen_bit_bayer():
    raw = (mosaic('grbg', RED).astype('<u2') << 8) | 0x33
    assert np.array_equal(decode('bayer_grbg16', raw), patch())


def yuv(colour):
    """BT.601 studio range, the textbook formula."""
    r, g, b = (value / 255 for value in colour)
    y = 16 + 65.481 * r + 128.553 * g + 24.966 * b
    u = 128 - 37.797 * r - 74.203 * g + 112.0 * b
    v = 128 + 112.0 * r - 93.786 * g - 18.214 * b
    return tuple(round(value) for value in (y, u, v))


@pytest.mark.parametrize(
    ('encoding', 'order'),
    [('yuv422', 'uyvy'), ('uyvy', 'uyvy'), ('yuv422_yuy2', 'yuyv'), ('yuyv', 'yuyv')],
)
def test_yuv422_orders(encoding, order):
    value = dict(zip('yuv', yuv(RED), strict=True))
    row = np.tile(np.array([value[letter] for letter in order], np.uint8), 12)
    rgb = decode(encoding, np.tile(row, (16, 1)), width=24)
    assert rgb.shape == (16, 24, 3)
    assert np.abs(rgb.astype(int) - RED).max() <= 3


@pytest.mark.parametrize(('encoding', 'order'), [('nv12', 'uv'), ('nv21', 'vu')])
@pytest.mark.parametrize('padding', [0, 40])
def test_yuv420_semi_planar(encoding, order, padding):
    y, u, v = yuv(RED)
    chroma = np.tile(np.array([{'u': u, 'v': v}[letter] for letter in order], np.uint8), 12)
    rows = np.vstack([np.full((16, 24), y, np.uint8), np.tile(chroma, (8, 1))])
    rows = np.pad(rows, ((0, 0), (0, padding)), constant_values=255)
    rgb = decode(encoding, rows, height=16, width=24)
    assert rgb.shape == (16, 24, 3)
    assert np.abs(rgb.astype(int) - RED).max() <= 3


@pytest.mark.parametrize('padding', [0, 40])
def test_nv24_has_a_colour_for_every_pixel(padding):
    colours = [RED, (20, 200, 40), (40, 20, 200), (90, 90, 90), (220, 210, 30)]
    y, u, v = np.array([yuv(colour) for colour in colours], np.uint8).T
    luma = np.pad(np.tile(y, (3, 1)), ((0, 0), (0, padding)), constant_values=255)
    chroma = np.tile(np.stack([u, v], axis=-1).ravel(), (3, 1))
    chroma = np.pad(chroma, ((0, 0), (0, 2 * padding)), constant_values=255)
    rgb = decode_raw('nv24', 3, 5, 5 + padding, luma.tobytes() + chroma.tobytes())
    assert rgb.shape == (3, 5, 3)
    assert np.abs(rgb.astype(int) - colours).max() <= 3


@given(
    padding=st.integers(0, 70),
    height=st.integers(1, 9),
    width=st.integers(1, 9),
    encoding=st.sampled_from(['rgb8', 'mono8', 'mono16', 'bgra8']),
)
def test_padded_rows_are_cropped(padding, height, width, encoding):
    channels = {'rgb8': 3, 'mono8': 1, 'mono16': 2, 'bgra8': 4}[encoding]
    row_bytes = width * channels
    rows = np.random.default_rng(height).integers(0, 256, (height, row_bytes), np.uint8)
    padded = np.pad(rows, ((0, 0), (0, padding)), constant_values=99)
    plain = decode_raw(encoding, height, width, row_bytes, rows.tobytes())
    assert np.array_equal(
        decode_raw(encoding, height, width, row_bytes + padding, padded.tobytes()), plain
    )


def test_result_does_not_alias_the_message():
    data = bytearray(patch().tobytes())
    rgb = decode_raw('rgb8', 16, 24, 72, data)
    data[:] = bytes(len(data))
    assert np.array_equal(rgb, patch())


def test_case_of_the_encoding_does_not_matter():
    assert np.array_equal(decode('RGB8', patch()), patch())


@pytest.mark.parametrize(
    ('fields', 'words'),
    [
        (('rgb8', 16, 24, 71, bytes(16 * 72)), 'step 71'),
        (('rgb8', 16, 24, 72, bytes(16 * 72 - 1)), '1151 bytes'),
        (('rgb8', 0, 24, 72, b''), '24 x 0'),
        (('rgb8', 16, 0, 72, b''), '0 x 16'),
        (('rgb8', -1, 24, 72, b''), '24 x -1'),
        (('mono8', 16384, 16384, 16384, b''), '16384 x 16384'),
        (('mono8', 1, 2**31, 2**31, b''), str(2**31)),
        (('h264', 16, 24, 72, bytes(4)), "'h264'"),
        (('', 16, 24, 72, bytes(4)), "''"),
        (('yuyv', 16, 23, 46, bytes(16 * 46)), 'width 23'),
        (('nv12', 15, 24, 24, bytes(24 * 24)), '24 x 15'),
        (('nv24', 16, 24, 24, bytes(16 * 24 * 3 - 1)), '767 bytes .* nv24 chroma'),
        (('nv24', 16, 24, 23, bytes(16 * 24 * 3)), 'step 23'),
        (('bayer_rggb8', 2, 24, 24, bytes(48)), '24 x 2'),
    ],
)
def test_bad_raw_images_are_refused_by_name(fields, words):
    with pytest.raises(ImageError, match=words):
        decode_raw(*fields)


@pytest.mark.parametrize('encoding', ENCODINGS)
def test_every_named_encoding_decodes(encoding):
    assert decode_raw(encoding, 8, 8, 64, bytes(64 * 24)).shape == (8, 8, 3)


def test_red_stays_red_in_jpeg_png_and_raw():
    as_jpeg = decode_compressed(jpeg(patch()), 'bgr8; jpeg compressed bgr8')
    assert np.abs(as_jpeg.astype(int) - RED).max() <= 4
    assert np.array_equal(decode_compressed(png(patch()), 'rgb8; png compressed bgr8'), patch())
    assert np.array_equal(decode('bgr8', patch()[..., ::-1]), patch())


@pytest.mark.parametrize('format_text', ['jpeg', 'png', '', 'rgb8; jpeg compressed rgb8'])
def test_bytes_decide_the_codec(format_text, noise):
    assert np.array_equal(decode_compressed(png(noise), format_text), noise)


def test_grey_files_give_three_channels(noise):
    data = cv2.imencode('.png', noise[..., 0])[1]
    assert np.array_equal(decode_compressed(data), noise[..., [0, 0, 0]])


def test_a_png_whose_last_chunk_claims_gigabytes_takes_no_memory(noise):
    header = png(noise)[:33]  # the signature and IHDR
    end = (0xF600_0923).to_bytes(4, 'big') + b'IEND' + bytes(7)
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ImageError, match='corrupt; check the link'):
        decode_compressed(header + end)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < 100 * 1024


def test_sixteen_bit_png_keeps_the_upper_eight(noise):
    data = cv2.imencode('.png', noise[..., 0].astype(np.uint16) << 8)[1]
    assert np.abs(decode_compressed(data).astype(int) - noise[..., [0, 0, 0]]).max() <= 1


def test_rotation_tag_is_ignored():
    tag = b'Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0'
    data = jpeg(patch())
    data = data[:2] + b'\xff\xe1' + struct.pack('>H', len(tag) + 2) + tag + data[2:]
    assert decode_compressed(data).shape == (16, 24, 3)


def test_padding_after_a_jpeg_is_accepted():
    assert decode_compressed(jpeg(patch()) + bytes(100)).shape == (16, 24, 3)


def test_end_marker_in_a_thumbnail_does_not_count(noise):
    thumbnail = jpeg(patch())
    segment = b'\xff\xe1' + struct.pack('>H', len(thumbnail) + 2) + thumbnail
    data = jpeg(noise)
    data = data[:2] + segment + data[2:]
    assert decode_compressed(data).shape == noise.shape
    # Refused before decoding: some versions of OpenCV return such a file half grey.
    with pytest.raises(ImageError, match='truncated'):
        decode_compressed(data[:-2])


@settings(max_examples=60)
@given(share=st.floats(0, 1, exclude_max=True), codec=st.sampled_from([jpeg, png]))
def test_truncated_files_are_refused(share, codec):
    whole = codec(np.random.default_rng(1).integers(0, 256, (48, 64, 3), np.uint8))
    with pytest.raises(ImageError):
        decode_compressed(whole[: int(share * len(whole))])


@settings(max_examples=200)
@given(
    data=st.binary(max_size=200), head=st.sampled_from([b'', b'\xff\xd8', b'\x89PNG\r\n\x1a\n'])
)
def test_no_bytes_raise_anything_but_image_error(data, head):
    with pytest.raises(ImageError):
        decode_compressed(head + data)


@settings(max_examples=60)
@given(seed=st.integers(0, 10**6), codec=st.sampled_from([jpeg, png]))
def test_flipped_bytes_give_an_image_or_an_image_error(seed, codec):
    rng = np.random.default_rng(seed)
    data = bytearray(codec(patch()))
    for at in rng.integers(0, len(data), 3):
        data[at] = rng.integers(256)
    with contextlib.suppress(ImageError):
        assert decode_compressed(bytes(data)).dtype == np.uint8


def test_decompression_bomb_is_refused_from_its_header():
    header = struct.pack('>IIBBBBB', 60_000, 60_000, 8, 2, 0, 0, 0)

    def chunk(kind, body):
        return (
            struct.pack('>I', len(body)) + kind + body + struct.pack('>I', zlib.crc32(kind + body))
        )

    bomb = b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', header)
    bomb += chunk(b'IDAT', zlib.compress(bytes(1000))) + chunk(b'IEND', b'')
    with pytest.raises(ImageError, match='60000 x 60000'):
        decode_compressed(bomb)
    data = bytearray(jpeg(patch()))
    at = data.index(b'\xff\xc0')
    data[at + 5 : at + 9] = struct.pack('>HH', 65_500, 65_500)
    with pytest.raises(ImageError, match='65500 x 65500'):
        decode_compressed(bytes(data))


@pytest.mark.parametrize('data', [b'', b'GIF89a', b'\0\0\0\1' + bytes(50)])
def test_other_codecs_are_refused_by_format(data):
    with pytest.raises(ImageError, match='h264'):
        decode_compressed(data, 'h264')
