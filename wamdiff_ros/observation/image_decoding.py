"""Bytes of a camera driver to RGB: the one place that decides the order of the channels.

Encodings are the colour, grey, Bayer and YUV ones of sensor_msgs/image_encodings.hpp, NV12, and
8UC and 16UC of 1, 3 and 4 channels; compressed images are JPEG and PNG. Everything leaves as uint8
[height, width, 3], 16-bit images by their upper 8 bits.
"""

import struct

import cv2
import numpy as np

MAX_SIDE = 16_384
MAX_PIXELS = 1 << 26  # bounds what one message can make us allocate: 192 MiB
# Two bits at least for 8 x 8 pixels: a JPEG that claims more pixels a byte than this lies.
MAX_JPEG_PIXELS_PER_BYTE = 1000

# encoding: (channels, bytes per channel, OpenCV conversion to RGB or None)
_PACKED = {
    'rgb8': (3, 1, None),
    'bgr8': (3, 1, cv2.COLOR_BGR2RGB),
    '8uc3': (3, 1, cv2.COLOR_BGR2RGB),
    'rgba8': (4, 1, cv2.COLOR_RGBA2RGB),
    'bgra8': (4, 1, cv2.COLOR_BGRA2RGB),
    '8uc4': (4, 1, cv2.COLOR_BGRA2RGB),
    'mono8': (1, 1, cv2.COLOR_GRAY2RGB),
    '8uc1': (1, 1, cv2.COLOR_GRAY2RGB),
    'rgb16': (3, 2, None),
    'bgr16': (3, 2, cv2.COLOR_BGR2RGB),
    '16uc3': (3, 2, cv2.COLOR_BGR2RGB),
    'rgba16': (4, 2, cv2.COLOR_RGBA2RGB),
    'bgra16': (4, 2, cv2.COLOR_BGRA2RGB),
    '16uc4': (4, 2, cv2.COLOR_BGRA2RGB),
    'mono16': (1, 2, cv2.COLOR_GRAY2RGB),
    '16uc1': (1, 2, cv2.COLOR_GRAY2RGB),
}
# OpenCV names a Bayer pattern after the second row's second and third pixel.
_BAYER = {
    'bayer_rggb': cv2.COLOR_BayerBG2RGB,
    'bayer_bggr': cv2.COLOR_BayerRG2RGB,
    'bayer_gbrg': cv2.COLOR_BayerGR2RGB,
    'bayer_grbg': cv2.COLOR_BayerGB2RGB,
}
for _pattern, _conversion in _BAYER.items():
    _PACKED[f'{_pattern}8'] = (1, 1, _conversion)
    _PACKED[f'{_pattern}16'] = (1, 2, _conversion)
_YUV422 = {
    'yuv422': cv2.COLOR_YUV2RGB_UYVY,
    'uyvy': cv2.COLOR_YUV2RGB_UYVY,
    'yuv422_yuy2': cv2.COLOR_YUV2RGB_YUY2,
    'yuyv': cv2.COLOR_YUV2RGB_YUY2,
}
_YUV420 = {'nv12': cv2.COLOR_YUV2RGB_NV12, 'nv21': cv2.COLOR_YUV2RGB_NV21}

_NV24 = 'nv24'

ENCODINGS = (*_PACKED, *_YUV422, *_YUV420, _NV24)


class ImageError(ValueError):
    """An image cannot be decoded; the message names the value and the remedy."""


def decode_raw(
    encoding: str, height: int, width: int, step: int, data, is_bigendian: bool = False
) -> np.ndarray:
    """Convert the fields of a sensor_msgs/Image to RGB.

    `data` is any bytes-like object; rows of `step` bytes may be padded at their end. NV12 and
    NV21 carry `height` rows of luma, then height / 2 rows of chroma, all `step` bytes long. NV24
    carries `height` rows of chroma, each as long as two of luma, as V4L2 lays them out.
    Returns uint8 [height, width, 3]; raises ImageError.
    """
    name = encoding.strip().lower()
    _check_size(height, width)
    if name in _PACKED:
        channels, depth, conversion = _PACKED[name]
        rows = _rows(name, height, width * channels * depth, step, data)
        if depth == 2:
            rows = rows.view('>u2' if is_bigendian else '<u2') >> 8
        image = rows.astype(np.uint8, copy=False).reshape(height, width, channels)
        if name.startswith('bayer') and min(height, width) < 3:
            raise ImageError(f'{width} x {height} is too small for {name}, send at least 3 x 3')
    elif name in _YUV422:
        if width % 2:
            raise ImageError(f'width {width} is odd, {name} needs an even one')
        image = _rows(name, height, width * 2, step, data).reshape(height, width, 2)
        conversion = _YUV422[name]
    elif name in _YUV420:
        if width % 2 or height % 2:
            raise ImageError(f'{width} x {height} has an odd side, {name} needs even ones')
        image = _rows(name, height * 3 // 2, width, step, data)
        conversion = _YUV420[name]
    elif name == _NV24:
        return _nv24(height, width, step, np.frombuffer(data, np.uint8))
    else:
        raise ImageError(
            f'encoding {encoding[:40]!r} is not supported; set the driver to one of '
            f'{", ".join(ENCODINGS)}'
        )
    return image.copy() if conversion is None else cv2.cvtColor(image, conversion)


def decode_compressed(data, format: str = '') -> np.ndarray:
    """Decode the JPEG or PNG of a sensor_msgs/CompressedImage to RGB uint8 [height, width, 3].

    The bytes say which codec and which colours they hold; `format` is only quoted in errors
    ("bgr8; jpeg compressed bgr8"), for drivers disagree on how to write it. A truncated file is
    refused instead of shown half grey. Rotation tags are ignored: camera calibrations are for
    the sensor as it is. Raises ImageError.
    """
    data = bytes(data)
    if data.startswith(b'\xff\xd8'):
        height, width = _jpeg_size(data)
        if height * width > MAX_JPEG_PIXELS_PER_BYTE * len(data):
            raise ImageError(
                f'JPEG of {len(data)} bytes claims {width} x {height} pixels; check the link to '
                'the camera'
            )
    elif data.startswith(b'\x89PNG\r\n\x1a\n'):
        height, width = _png_size(data)
    else:
        raise ImageError(
            f'{len(data)} bytes of format {format[:40]!r} are neither JPEG nor PNG '
            f'(they start with {data[:8].hex(" ") or "nothing"}); publish one of the two'
        )
    _check_size(height, width)
    flags = cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION
    try:
        bgr = cv2.imdecode(np.frombuffer(data, np.uint8), flags)
    except cv2.error as error:
        raise ImageError(f'{len(data)} bytes of {format[:40]!r} are corrupt: {error}') from error
    if bgr is None or bgr.shape != (height, width, 3):
        raise ImageError(
            f'{len(data)} bytes of {format[:40]!r} are corrupt; check the link to the camera'
        )
    return cv2.cvtColor(bgr, cv2.COLOR_BGR2RGB)


def _nv24(height: int, width: int, step: int, data: np.ndarray) -> np.ndarray:
    """Convert a plane of Y and one of U and V in turn, both of full resolution."""
    luma = _rows(_NV24, height, width, step, data)
    chroma = _rows(f'{_NV24} chroma', height, 2 * width, 2 * step, data[height * step :])
    # OpenCV has no such conversion: each pixel becomes a pair of YUYV, of which one is kept.
    pairs = np.repeat(luma, 2, axis=1)
    yuyv = np.stack([pairs, chroma], axis=-1)
    return cv2.cvtColor(yuyv, cv2.COLOR_YUV2RGB_YUY2)[:, ::2].copy()


def _check_size(height: int, width: int) -> None:
    sides_fit = 1 <= height <= MAX_SIDE and 1 <= width <= MAX_SIDE
    if not sides_fit or height * width > MAX_PIXELS:
        raise ImageError(
            f'an image of {width} x {height} pixels is outside 1 … {MAX_SIDE} a side and '
            f'{MAX_PIXELS} in all; check the driver'
        )


def _rows(name: str, rows: int, row_bytes: int, step: int, data) -> np.ndarray:
    """Return uint8 [rows, row_bytes] without the padding, contiguous."""
    if step < row_bytes:
        raise ImageError(
            f'step {step} is less than the {row_bytes} bytes of a row of {name}; '
            f'the driver must publish step >= {row_bytes}'
        )
    flat = np.frombuffer(data, np.uint8)
    if flat.size < rows * step:
        raise ImageError(
            f'{flat.size} bytes of data are fewer than {rows} rows of step {step} '
            f'({rows * step} bytes) of {name}; check the driver'
        )
    return np.ascontiguousarray(flat[: rows * step].reshape(rows, step)[:, :row_bytes])


def _png_size(data: bytes) -> tuple[int, int]:
    """Return (height, width) from the header, after following the chunks to the end."""
    at = 8
    while data[at + 4 : at + 8] != b'IEND':
        if at + 12 > len(data):
            raise ImageError(
                f'PNG of {len(data)} bytes is truncated or corrupt; check the link to the camera'
            )
        at += 12 + int.from_bytes(data[at : at + 4], 'big')
    # OpenCV takes as much memory as a chunk claims to be long, also its last one.
    lengths = data[8:12] + data[at : at + 4]
    if data[12:16] != b'IHDR' or lengths != struct.pack('>II', 13, 0) or len(data) < at + 12:
        raise ImageError(f'PNG of {len(data)} bytes is corrupt; check the link to the camera')
    width, height = struct.unpack('>II', data[16:24])
    return height, width


def _jpeg_size(data: bytes) -> tuple[int, int]:
    """Return (height, width) from the frame header, after checking that the end is there."""
    size = None
    at = 2
    while at + 4 <= len(data):
        if data[at] != 0xFF:
            break
        marker = data[at + 1]
        if marker == 0xFF:  # fill byte
            at += 1
            continue
        length = int.from_bytes(data[at + 2 : at + 4], 'big')
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC) and at + 9 <= len(data):
            size = struct.unpack('>HH', data[at + 5 : at + 9])
        if marker == 0xDA:  # start of scan: no marker but restarts until the end of the image
            if size is not None and data.find(b'\xff\xd9', at) >= 0:
                return size
            break
        at += 2 + length
    raise ImageError(
        f'JPEG of {len(data)} bytes is truncated or corrupt; check the link to the camera'
    )
