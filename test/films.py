"""What is in a video: its frames, and whether something is drawn into the grey pictures of it."""

import av
from recording import WIDTH

from wamdiff_ros.pictures.overlay_painter import VIDEO_WIDTH

SCALE = VIDEO_WIDTH / WIDTH


def frames_of(path):
    """Return (time [s], picture [H, W, 3]) of every frame."""
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        assert (stream.codec_context.name, stream.codec_context.pix_fmt) == ('h264', 'yuv420p')
        return [(f.time, f.to_ndarray(format='rgb24')) for f in container.decode(stream)]


def at(picture, u, v):
    """Return the pixel [3] at (u, v) of the small image that the recording holds."""
    return picture[round((v + 0.5) * SCALE - 0.5), round((u + 0.5) * SCALE - 0.5)].astype(int)


def coloured(picture, u, v):
    """Is the pixel of the small image's (u, v) tinted, where the picture itself is grey?"""
    pixel = at(picture, u, v)
    return pixel.max() - pixel.min() > 25
