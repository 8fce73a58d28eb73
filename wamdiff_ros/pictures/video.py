"""Write an H.264 video that browsers play, frame by frame with true times."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

TICKS_PER_SECOND = 1000


class VideoError(RuntimeError):
    """The video cannot be written."""


def pyav() -> Any:
    """Return the module that encodes. Raises VideoError where it is not installed."""
    try:
        import av
    except ImportError as error:
        raise VideoError(
            'writing videos needs PyAV: pip install -r requirements/simulation.txt'
        ) from error
    return av


class VideoWriter:
    """An mp4 file of RGB frames, as a context manager; width and height must be even."""

    def __init__(self, path: Path, width: int, height: int, rate_hz: float) -> None:
        self._av = av = pyav()
        self._last_pts = -1
        try:
            # The index goes to the front of the file, so that playing starts while loading.
            self._container = av.open(str(path), 'w', options={'movflags': '+faststart'})
            self._stream = self._container.add_stream('libx264', rate=max(1, round(rate_hz)))
        except (OSError, ValueError) as error:
            raise VideoError(f'{path}: cannot be written as H.264 ({error})') from error
        self._stream.width, self._stream.height = width, height
        self._stream.pix_fmt = 'yuv420p'
        self._stream.codec_context.time_base = Fraction(1, TICKS_PER_SECOND)
        self._stream.options = {'crf': '21', 'preset': 'veryfast'}

    def add(self, rgb: np.ndarray, time_s: float) -> None:
        """Append a uint8 RGB frame that is shown from `time_s` on."""
        frame = self._av.VideoFrame.from_ndarray(rgb, format='rgb24')
        # Two frames of one millisecond would break the file's order.
        self._last_pts = max(self._last_pts + 1, round(time_s * TICKS_PER_SECOND))
        frame.pts = self._last_pts
        frame.time_base = Fraction(1, TICKS_PER_SECOND)
        self._container.mux(self._stream.encode(frame))

    def __enter__(self) -> 'VideoWriter':
        return self

    def __exit__(self, *_: object) -> None:
        self._container.mux(self._stream.encode(None))
        self._container.close()
