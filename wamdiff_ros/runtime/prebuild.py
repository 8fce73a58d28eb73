"""Build the vision engine ahead of time, so that the planner starts without building it.

    wamdiff prebuild
    wamdiff prebuild --model CHECKPOINT --cameras 3 --precision fp16 --engine
    wamdiff prebuild --precision fp8 --calibration FOLDER_OF_IMAGES

Exports the vision tower to ONNX, compares it with torch in onnxruntime, and builds the TensorRT
engine where there are a GPU and TensorRT; elsewhere it says what is missing. An engine serves one
GPU model and one TensorRT version: run this on the vehicle's computer, with the limits of the
image area that the planner has (min_pixels, max_pixels). What is there and fits is kept.
Exit codes: 0 done; 1 it failed, or --engine was given and none can be built here (the reason is
printed), 2 wrong options, 130 interrupted.
"""

import argparse
import sys
from pathlib import Path

from .. import option_values

IMAGE_SUFFIXES = ('.jpg', '.jpeg', '.png', '.bmp')
MOST_CALIBRATION_IMAGES = 256


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `wamdiff prebuild`."""
    parser.add_argument(
        '--model', type=Path, metavar='DIR', help='checkpoint (default: the bundled one)'
    )
    parser.add_argument(
        '--cache', type=Path, metavar='DIR',
        help='where to put it (default: ~/.cache/wamdiff_ros, as the parameter cache_dir)',
    )  # fmt: skip
    parser.add_argument(
        '--precision', choices=('fp16', 'fp8', 'fp32'), default='fp16',
        help='of the engine (%(default)s)',
    )  # fmt: skip
    parser.add_argument(
        '--calibration', type=Path, metavar='DIR',
        help='images of the cameras, from which fp8 learns the range of values',
    )  # fmt: skip
    parser.add_argument(
        '--cameras',
        type=option_values.count,
        default=1,
        metavar='N',
        help='of the planner (%(default)s)',
    )
    for name in ('min', 'max'):
        parser.add_argument(
            f'--{name}-pixels', type=option_values.count, default=0, metavar='N',
            help=f'as the parameter {name}_pixels (default: the checkpoint\'s own)',
        )  # fmt: skip
    parser.add_argument(
        '--engine', action='store_true', help='fail if no engine can be built on this machine'
    )


def run(args: argparse.Namespace) -> int:
    """Export, compare and build; returns the exit code."""
    if (args.precision == 'fp8') != (args.calibration is not None):
        print('error: --precision fp8 and --calibration go together', file=sys.stderr)
        return 2
    from ..model.config import CheckpointError
    from .onnx_vision import VisionExportError
    from .tensorrt_vision import TensorRtError

    try:
        return _build(args)
    except (CheckpointError, VisionExportError, TensorRtError, OSError, ValueError) as error:
        print(f'error: {error}', file=sys.stderr)
        return 1


def _build(args: argparse.Namespace) -> int:
    import torch

    from ..model.config import load_config
    from ..model.image_processor import ImageProcessor
    from ..model.weights import load_network
    from ..share import share_path
    from .engine_cache import default_cache_dir
    from .loaded_model import BUNDLED_MODEL
    from .tensorrt_vision import unavailable
    from .vision_engine import VisionFiles, provide_engine, provide_onnx, shapes_of

    missing = unavailable(args.precision)
    if missing and args.engine:
        print(f'error: no engine can be built here: {missing}', file=sys.stderr)
        return 1
    model_dir = args.model or share_path(*BUNDLED_MODEL)
    config = load_config(model_dir)
    processor = ImageProcessor.load(model_dir, config.vision)
    processor = processor.with_pixels(args.min_pixels, args.max_pixels)
    # bfloat16 is what the planner loads on a GPU.
    network = load_network(
        model_dir, config, dtype=torch.bfloat16, device=torch.device('cpu'), progress=_say
    )
    tower = network.vision
    cache = args.cache or default_cache_dir()
    files = VisionFiles.of(tower, model_dir.resolve().name, cache, args.precision)
    images = _read_images(args.calibration) if args.calibration else ()
    deviation = provide_onnx(files, tower, processor, calibration=images, progress=_say)
    print(
        f'{files.onnx}: '
        + ('is there' if deviation is None else f'deviates by {deviation:.2g} from torch')
    )
    if missing:
        print(f'no engine was built: {missing}')
        return 0
    provide_engine(files, tower, shapes_of(processor, args.cameras), progress=_say)
    print(f'{files.engine}: is ready')
    return 0


def _read_images(folder: Path) -> list:
    import cv2
    from tqdm import tqdm

    found = sorted(p for p in folder.iterdir() if p.suffix.lower() in IMAGE_SUFFIXES)
    if not found:
        raise ValueError(f'{folder}: holds no image ({", ".join(IMAGE_SUFFIXES)})')
    step = -(-len(found) // MOST_CALIBRATION_IMAGES)
    images = []
    for path in tqdm(found[::step], desc='images', unit='', disable=None, leave=False):
        bgr = cv2.imread(str(path), cv2.IMREAD_COLOR)
        if bgr is None:
            raise ValueError(f'{path}: cannot be read as an image')
        images.append(cv2.cvtColor(bgr, cv2.COLOR_BGR2RGB))
    return images


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
