"""Coverage-guided bytes into what reads the outside world; run by scripts/fuzz.

Atheris (libFuzzer for Python) goes on from inputs that reach new lines of the package. A target
has failed when anything but the parser's own error comes out, or a result that breaks its promise.
What OpenCV and the JPEG library do inside is not seen by the instrumentation.
"""

import argparse
import contextlib
import math
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import atheris

with atheris.instrument_imports(include=['wamdiff_ros', 'rosbags']):
    import numpy as np

    from wamdiff_ros.observation.ego_buffer import EgoBuffer
    from wamdiff_ros.observation.image_decoding import (
        ENCODINGS,
        MAX_PIXELS,
        ImageError,
        decode_compressed,
        decode_raw,
    )
    from wamdiff_ros.observation.not_ready import NotReady
    from wamdiff_ros.planning.answer import Refusal, parse_description, parse_waypoints
    from wamdiff_ros.recordings.bag import BagError, BagWriter, read_messages
    from wamdiff_ros.types import EgoState


def answer(data: bytes) -> None:
    """Text of the model: a plan of finite numbers or a reason, words without control codes."""
    text = data.decode('utf8', 'replace')
    parsed = parse_waypoints(text)
    if isinstance(parsed, Refusal):
        assert parsed.reason
    else:
        assert parsed.xy_base_m.shape == (8, 2)
        assert np.isfinite(parsed.xy_base_m).all()
    clean, sections = parse_description(text)
    for words in (clean, *(word for pair in sections for word in pair)):
        assert not any(ord(c) < 32 and c not in '\n\t' for c in words)


def image(data: bytes) -> None:
    """Image and CompressedImage: pixels of the size that was said, or an ImageError."""
    with contextlib.suppress(ImageError):
        rgb = decode_compressed(data)
        assert rgb.shape[0] * rgb.shape[1] <= MAX_PIXELS
    fields = atheris.FuzzedDataProvider(data)
    encoding = ENCODINGS[fields.ConsumeIntInRange(0, len(ENCODINGS) - 1)]
    height, width, step = (fields.ConsumeIntInRange(0, 2**11) for _ in range(3))
    bigendian = fields.ConsumeBool()
    with contextlib.suppress(ImageError):
        pixels = fields.ConsumeBytes(fields.remaining_bytes())
        rgb = decode_raw(encoding, height, width, step, pixels, bigendian)
        assert rgb.shape == (height, width, 3)


def odometry(data: bytes) -> None:
    """Odometry: states of finite numbers and unit quaternions, or a reason."""
    fields = atheris.FuzzedDataProvider(data)
    buffer = EgoBuffer(300_000_000, 200_000_000)
    stamp_ns = 0
    while fields.remaining_bytes() > 40:
        stamp_ns += fields.ConsumeIntInRange(-50_000_000, 200_000_000)
        numbers = [_number(fields) for _ in range(6)]
        turn = [_number(fields) for _ in range(4)] if fields.ConsumeBool() else [0, 0, 0, 1]
        state = EgoState(
            stamp_ns, 'odom', 'base_link', tuple(numbers[:3]), tuple(turn), tuple(numbers[3:5]),
            numbers[5], (0.0, 0.0),
        )  # fmt: skip
        assert isinstance(buffer.break_before(state, 1.0), str)
        with contextlib.suppress(ValueError):  # EgoError is one
            buffer.add(state)
    assert isinstance(buffer.disagreement(), str)
    with contextlib.suppress(NotReady):
        found = buffer.at(stamp_ns)
        assert math.isclose(math.hypot(*found.orientation_xyzw), 1.0, abs_tol=1e-6)
        numbers = (*found.position_fixed_m, *found.velocity_base_mps, found.yaw_rate_radps)
        assert all(map(math.isfinite, (*numbers, *found.acceleration_base_mps2)))


def _number(fields) -> float:
    return fields.ConsumeFloat() if fields.ConsumeBool() else fields.ConsumeFloatInRange(-50, 50)


def bag(data: bytes) -> None:
    """A recording in MCAP: what is whole, or a BagError."""
    with tempfile.TemporaryDirectory(dir='/dev/shm') as folder:
        (Path(folder) / 'bag.mcap').write_bytes(data)
        with contextlib.suppress(BagError):
            for _ in read_messages(Path(folder) / 'bag.mcap'):
                pass


TARGETS: dict[str, Callable[[bytes], None]] = {
    target.__name__: target for target in (answer, image, odometry, bag)
}


def seeds(target: str) -> list[bytes]:
    """Return good inputs to go on from."""
    if target == 'answer':
        return [b'05.20,+00.10,' * 8, b'{"longitudinal": "keep_speed"}', b'(1,2),(3,4),(5,6)']
    if target == 'image':
        import cv2

        picture = np.random.default_rng(1).integers(0, 256, (24, 32, 3), np.uint8)
        return [cv2.imencode(kind, picture)[1].tobytes() for kind in ('.jpg', '.png')]
    if target == 'bag':
        from recording import image as picture
        from recording import odometry as motion

        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / 'bag'
            with BagWriter(path) as writer:
                writer.write_message('/odometry', 10**9, motion(10**9, 1.0, 2.0, 0.1, 5.0))
                writer.write_message('/image', 10**9, picture(10**9))
            (file,) = path.glob('*.mcap')
            return [file.read_bytes()]
    return [bytes(range(200))]


def main() -> int:
    """Run the targets, each in a process of its own; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog='scripts/fuzz', description=__doc__.partition('\n')[0],
        epilog='Exit codes: 0 nothing was found; 1 something was, the input lies in build/fuzz.',
    )  # fmt: skip
    parser.add_argument(
        'targets', nargs='*', metavar='TARGET', help=f'of {", ".join(TARGETS)} (all)'
    )
    parser.add_argument('--seconds', type=int, default=60, help='for each target (%(default)s)')
    parser.add_argument('--out', type=Path, default=Path('build/fuzz'), help='(%(default)s)')
    arguments = parser.parse_args()
    if unknown := sorted(set(arguments.targets) - set(TARGETS)):
        parser.error(f'unknown target {unknown[0]!r}, known: {", ".join(TARGETS)}')
    found = 0
    for target in arguments.targets or TARGETS:
        corpus = arguments.out / target
        corpus.mkdir(parents=True, exist_ok=True)
        for number, seed in enumerate(seeds(target)):
            (corpus / f'seed_{number}').write_bytes(seed)
        print(f'fuzz: {target}, {arguments.seconds} s', file=sys.stderr)
        limits = (f'-max_total_time={arguments.seconds}', '-rss_limit_mb=2048', '-timeout=10')
        prefix = f'-artifact_prefix={arguments.out / target}_'
        command = [sys.executable, __file__, '--fuzz', target, str(corpus), prefix, *limits]
        found += subprocess.run(command, check=False).returncode != 0
    return 1 if found else 0


if __name__ == '__main__':
    if sys.argv[1:2] == ['--fuzz']:
        atheris.Setup([sys.argv[0], *sys.argv[3:]], TARGETS[sys.argv[2]])
        atheris.Fuzz()
    sys.exit(main())
