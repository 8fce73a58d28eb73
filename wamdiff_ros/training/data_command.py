"""Make training data, take it over from elsewhere, and look at it.

  wamdiff data generate OUT --routes 500   drive the expert through rendered worlds
  wamdiff data convert FILE OUT            WAM-Diff2's JSON of images and conversations
  wamdiff data show DIR                    a contact sheet: pictures with their labels
The format of the shards is described in docs/data.md.
Exit codes: 0 done, 1 some records were left out, 2 wrong options or unreadable input.
"""

import argparse
import sys
from pathlib import Path

from .. import option_values

LISTED = 20  # problems on the screen; the file has all


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `wamdiff data`."""
    kinds = parser.add_subparsers(title='what to do', metavar='WHAT', required=True)
    _add_generate(kinds.add_parser('generate', help='drive the expert through rendered worlds'))
    _add_convert(kinds.add_parser('convert', help="take over WAM-Diff2's JSON format"))
    _add_show(kinds.add_parser('show', help='make a contact sheet of pictures and labels'))


def run(args: argparse.Namespace) -> int:
    """Run the chosen subcommand and return its exit code."""
    try:
        return args.work(args)
    except (ValueError, OSError) as error:  # those of shards, generation and conversion
        print(f'wamdiff data: {error}', file=sys.stderr)
        return 2


def _add_generate(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        'Drive the expert through worlds, push it off its path now and then, and write what the '
        'camera sees with what the expert would do. Interrupted runs go on where they stopped; '
        'more --routes may be asked for later.'
    )
    parser.add_argument('out', type=Path, metavar='OUT', help='folder of the shards')
    parser.add_argument(
        '--routes', type=option_values.count, default=200, metavar='N', help='(%(default)s)'
    )
    parser.add_argument(
        '--split', choices=('train', 'validation'), default='train',
        help='which routes; neither shares any with the evaluation (%(default)s)',
    )  # fmt: skip
    parser.add_argument(
        '--seed', type=int, default=0, metavar='S', help='first route of the split (%(default)s)'
    )
    parser.add_argument(
        '--every', type=float, default=0.3, metavar='S',
        help='seconds between two records, in steps of 0.1 (%(default)s)',
    )  # fmt: skip
    parser.add_argument(
        '--image-size', type=_size, default=(256, 128), metavar='WxH',
        help='of the pictures in the shards (256x128)',
    )  # fmt: skip
    parser.add_argument(
        '--cameras',
        nargs='+',
        default=['front'],
        metavar='NAME',
        help='front, left, right (front)',
    )
    parser.add_argument(
        '--frames', type=option_values.count, default=1, metavar='N',
        help='of each camera in a record, 0.1 s apart, for window mode (%(default)s)',
    )  # fmt: skip
    parser.add_argument(
        '--keep-standing', type=_share, default=1.0, metavar='P',
        help='share of the records kept where the vehicle stands and will stand (%(default)s)',
    )  # fmt: skip
    parser.add_argument(
        '--keep-cruising', type=_share, default=0.5, metavar='P',
        help='share kept of straight driving at constant speed with nothing near (%(default)s)',
    )  # fmt: skip
    parser.add_argument(
        '--no-disturbances', action='store_true', help='the expert drives undisturbed'
    )
    parser.add_argument(
        '--model', type=Path, metavar='DIR',
        help='DAgger: this checkpoint drives, the expert says what it would do',
    )  # fmt: skip
    parser.add_argument(
        '--beta', type=_share, default=0.8, metavar='P',
        help='share of the time that --model drives (%(default)s)',
    )  # fmt: skip
    parser.add_argument(
        '--workers', type=option_values.count, default=2, metavar='N', help='(%(default)s)'
    )
    parser.add_argument(
        '--renderer', default='auto', metavar='BACKEND', help='auto, egl or software (%(default)s)'
    )
    parser.set_defaults(work=_generate)


def _add_convert(parser: argparse.ArgumentParser) -> None:
    parser.description = 'Convert a list of {image, conversations} into shards.'
    parser.add_argument('file', type=Path, metavar='FILE', help='the JSON file')
    parser.add_argument('out', type=Path, metavar='OUT', help='folder of the shards; must be new')
    parser.add_argument(
        '--image-root', type=Path, metavar='DIR', help="where paths start (the file's folder)"
    )
    parser.add_argument(
        '--shard-size',
        type=option_values.count,
        default=1000,
        metavar='N',
        help='entries (%(default)s)',
    )
    parser.set_defaults(work=_convert)


def _add_show(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        'Draw records with their waypoints and words into one picture. The camera is taken to be '
        'where it is by default, so routes with another pose of it show the waypoints shifted.'
    )
    parser.add_argument('data', nargs='+', type=Path, metavar='DIR', help='shards or folders')
    parser.add_argument(
        '--out', type=Path, default=Path('contact_sheet.png'), metavar='FILE', help='(%(default)s)'
    )
    parser.add_argument(
        '--count', type=option_values.count, default=24, metavar='N', help='(%(default)s)'
    )
    parser.add_argument(
        '--columns', type=option_values.count, default=3, metavar='N', help='(%(default)s)'
    )
    parser.add_argument('--seed', type=int, default=0, metavar='S', help='of the choice')
    parser.add_argument(
        '--saying', default='', metavar='WORDS',
        help='only records that say this: "pedestrian yes", "lateral: turn_left", "dagger"',
    )  # fmt: skip
    parser.set_defaults(work=_show)


def _generate(args: argparse.Namespace) -> int:
    from ..simulation.generation import Settings, generate

    settings = Settings(
        split=args.split,
        first_route=args.seed,
        every_s=args.every,
        image_size=args.image_size,
        cameras=tuple(args.cameras),
        frames=args.frames,
        keep_standing=args.keep_standing,
        keep_cruising=args.keep_cruising,
        disturbances=not args.no_disturbances,
        model=str(args.model.resolve()) if args.model else '',
        beta=args.beta if args.model else 0.0,
    )
    made = generate(args.out, settings, args.routes, args.workers, args.renderer)
    print(
        f'{args.out}: {made.records} records of {made.routes} routes in {made.shards} shards, '
        f'{made.new_records} of them new, {made.records_per_s:.0f} records/s'
    )
    for fault in made.faults:
        print(fault, file=sys.stderr)
    return 1 if made.faults and not args.model else 0


def _convert(args: argparse.Namespace) -> int:
    from .conversion import convert

    done = convert(args.file, args.out, args.image_root, args.shard_size)
    print(f'{args.out}: {done.records} records in {done.shards} shards')
    if not done.left_out:
        return 0
    listing = args.out / 'left_out.txt'
    listing.write_text('\n'.join(done.left_out) + '\n', encoding='utf-8')
    print(f'{len(done.left_out)} entries were left out, listed in {listing}:', file=sys.stderr)
    for line in done.left_out[:LISTED]:
        print(f'  {line}', file=sys.stderr)
    return 1


def _show(args: argparse.Namespace) -> int:
    from ..simulation.cameras import CAMERAS
    from .contact_sheet import contact_sheet
    from .shards import Shards

    sheet = contact_sheet(
        Shards(args.data), dict(CAMERAS), args.count, args.columns, args.seed, args.saying
    )
    sheet.save(args.out)
    print(args.out)
    return 0


def _share(text: str) -> float:
    value = float(text)
    if not 0.0 <= value <= 1.0:
        raise argparse.ArgumentTypeError(f'{text} is not between 0 and 1')
    return value


def _size(text: str) -> tuple[int, int]:
    width, _, height = text.partition('x')
    if not (width.isdecimal() and height.isdecimal() and int(width) and int(height)):
        raise argparse.ArgumentTypeError(f'{text!r} is not like 256x128')
    return int(width), int(height)
