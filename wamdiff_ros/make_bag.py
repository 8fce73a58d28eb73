"""Make recordings without ROS, for `wamdiff replay`: of images or a video, or of the world.

    wamdiff bag --images DIR --out BAGS         # numbered images with KITTI poses.txt, or --ego
    wamdiff bag --video FILE --ego FILE --out BAGS
    wamdiff bag --seed 3 --routes 5 --out BAGS  # routes of the driving world, driven by the expert

Leaves one mcap bag per recording in the folder BAGS, on the topics that the planner listens to.
Routes also hold the simulator's ground truth.
Exit codes: 0 done, 1 it failed (the reason is printed), 2 wrong options, 130 interrupted.
"""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from . import option_values

if TYPE_CHECKING:  # scipy takes its time, and every command imports this file
    from .recordings.sensor_bag import SensorBag

START_NS = 1_000_000_000  # a clock at zero counts as not set


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `wamdiff bag`."""
    what = parser.add_argument_group('what is recorded (one of them)')
    one = what.add_mutually_exclusive_group(required=True)
    one.add_argument('--images', type=Path, metavar='DIR', help='numbered images')
    one.add_argument('--video', type=Path, metavar='FILE', help='a video from a front camera')
    one.add_argument(
        '--seed', type=option_values.whole, metavar='S', help='of the first route of the world'
    )
    what.add_argument(
        '--ego', type=Path, metavar='FILE',
        help='ego motion: .csv with t_s,x_m,y_m,yaw_rad, .txt with KITTI poses, .npz with ECEF '
        'poses (poses.txt beside the images)',
    )  # fmt: skip
    what.add_argument(
        '--image-rate', type=option_values.positive, default=10.0, metavar='HZ',
        help='rate of --images (%(default)s)',
    )  # fmt: skip
    what.add_argument(
        '--routes', type=option_values.count, default=1, metavar='N', help='how many (%(default)s)'
    )
    parser.add_argument(
        '--seconds', type=option_values.positive, metavar='S', help='only the first S seconds'
    )
    parser.add_argument('--out', type=Path, required=True, metavar='BAGS', help='where they go')


def run(arguments: argparse.Namespace) -> int:
    """Write the bags; returns the exit code."""
    from .recordings.bag_files import BagError
    from .recordings.sources import SourceError

    try:
        if arguments.seed is not None:
            _record_routes(arguments)
        else:
            _record_pictures(arguments)
    except (BagError, SourceError, OSError) as error:
        print(f'error: {error}', file=sys.stderr)
        return 1
    except ImportError as error:
        print(f'error: {error}; pip install -r requirements/simulation.txt', file=sys.stderr)
        return 1
    return 0


def _record_pictures(arguments: argparse.Namespace) -> None:
    from itertools import takewhile

    from tqdm import tqdm

    from .recordings.sensor_bag import SensorBag
    from .recordings.sources import SourceError, read_ego, video_frames

    source = arguments.images or arguments.video
    ego = arguments.ego or (arguments.images and arguments.images / 'poses.txt')
    if ego is None:
        raise SourceError(f'{source}: name its ego motion with --ego; plans are judged by it')
    states = read_ego(ego, arguments.image_rate)
    limit_ns = (arguments.seconds or 1e9) * 1e9
    bag = arguments.out / (source.stem if arguments.video else source.resolve().name)
    with SensorBag(bag) as writer:
        for state in takewhile(lambda state: state.stamp_ns <= limit_ns, states):
            writer.motion(_later(state))
        if arguments.images:
            pictures = _images(arguments, writer)
        else:
            pictures = (
                (time_ns, lambda ns, bgr=bgr: writer.picture(ns, bgr[..., ::-1]))
                for time_ns, bgr in video_frames(source)
            )
        shown = tqdm(pictures, 'recording', unit='frame', disable=None)
        for time_ns, write in takewhile(lambda entry: entry[0] <= limit_ns, shown):
            write(START_NS + time_ns)
    print(bag)


def _images(arguments: argparse.Namespace, writer: 'SensorBag'):
    """Yield (time [ns], what writes the picture at a stamp)."""
    from functools import partial

    from .observation.image_decoding import decode_compressed
    from .pinhole import Pinhole
    from .recordings.sources import image_files, kitti_intrinsics

    files = image_files(arguments.images)
    calib = arguments.images / 'calib.txt'
    if calib.exists():
        height, width, _ = decode_compressed(files[0].read_bytes()).shape
        level = Pinhole.level(width, height)
        place = level.rotation_base, level.position_base_m
        writer.camera(START_NS, Pinhole(width, height, *kitti_intrinsics(calib), *place))
    for number, path in enumerate(files):
        kind = 'png' if path.suffix.lower() == '.png' else 'jpeg'
        data = path.read_bytes()
        yield (
            round(number * 1e9 / arguments.image_rate),
            partial(writer.encoded_picture, data=data, kind=kind),
        )


def _record_routes(arguments: argparse.Namespace) -> None:
    for seed in range(arguments.seed, arguments.seed + arguments.routes):
        bag = arguments.out / f'route_{seed:06d}'
        _record_route(seed, bag, arguments.seconds)
        print(bag)


def _record_route(seed: int, bag: Path, seconds: float | None) -> None:
    """Let the expert drive the route, and record what its sensors would say."""
    from tqdm import tqdm

    from .parameters import Parameters
    from .recordings.sensor_bag import SensorBag
    from .simulation.cameras import CAMERAS
    from .simulation.closed_loop import CAMERA, ExpertPlanner, drive_route
    from .simulation.expert import Expert
    from .simulation.ground_truth import ground_truth
    from .simulation.world import World

    world, expert, parameters = World(seed), Expert(), Parameters.from_mapping({})
    with (
        SensorBag(bag) as writer,
        tqdm(desc=f'driving route {seed}', unit='tick', disable=None) as bar,
    ):

        def look_on(step) -> None:
            now_ns = step.frame.stamp_ns
            if not bar.n:
                writer.camera(now_ns, CAMERAS[CAMERA])
            writer.picture(now_ns, step.frame.rgb)
            writer.motion(step.ego, with_acceleration=True)
            writer.command(now_ns, step.world.command())
            writer.truth(now_ns, ground_truth(step.world, expert.plan(step.world)))
            bar.update()

        def stop() -> bool:
            return seconds is not None and world.time_s > seconds

        drive_route(world, ExpertPlanner(world, parameters), parameters, look_on, stop)


def _later(state):
    from dataclasses import replace

    return replace(state, stamp_ns=START_NS + state.stamp_ns)
