"""Measure how fast answers are made, each step against the one before and against transformers.

    wamdiff bench                                the bundled checkpoint
    wamdiff bench --size 2b --only ladder        the shape of Qwen3-VL-2B, random weights, bfloat16
    wamdiff bench --model DIR --json --out report

Everything that is compared runs in turns in one process, so ratios hold on a machine that is not
quiet; single times do not. Sections: ladder (decoders, from transformers' own to everything on),
stages (each forward beside the limits of this machine), cost (against prompt length, cameras,
frames, rollouts, block size), tick (a plan from a frame, ten a second, beside a simulator that
renders as often), profile (operators of an answer, before and after).
Needs requirements/bench.txt and simulation.txt. Exit codes: 0 done, however slow it was; 1 it
failed (the reason is printed), 2 wrong options, 130 interrupted.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .. import option_values

if TYPE_CHECKING:  # torch takes its time, and every command imports this file
    from .report import Report

SECTIONS = ('ladder', 'stages', 'cost', 'tick', 'profile')
SIZES = ('nano', '2b')


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `wamdiff bench`."""
    what = parser.add_argument_group('what is measured')
    one = what.add_mutually_exclusive_group()
    one.add_argument('--model', type=Path, metavar='DIR', help='checkpoint (the bundled one)')
    one.add_argument(
        '--size', choices=SIZES, default='nano',
        help='nano: the bundled checkpoint; 2b: the published shape with random weights',
    )  # fmt: skip
    what.add_argument(
        '--ar-model', type=Path, metavar='DIR',
        help='checkpoint that goes token by token, here and in transformers (the same weights)',
    )  # fmt: skip
    what.add_argument(
        '--only', nargs='+', choices=SECTIONS, metavar='SECTION',
        help=f'some of {", ".join(SECTIONS)}; tick needs a checkpoint, so it is not at 2b',
    )  # fmt: skip
    what.add_argument(
        '--quantisation', nargs='+', default=[], metavar='METHOD',
        help='further rungs: int8_weight_only, int8_dynamic, int4_weight_only, w4a8, or '
        'language=METHOD,head=METHOD',
    )  # fmt: skip
    what.add_argument(
        '--compile', action='store_true',
        help='a further rung with compiled forwards, on a CPU; takes a C++ compiler and minutes',
    )  # fmt: skip
    how = parser.add_argument_group('how')
    how.add_argument(
        '--rounds', type=option_values.count, metavar='N', help='turns of everybody (7; 2b: 1)'
    )
    how.add_argument(
        '--questions',
        type=option_values.count,
        default=3,
        metavar='N',
        help='pictures of the world (%(default)s)',
    )
    how.add_argument(
        '--tokens', type=option_values.count, metavar='N', help='budget of an answer (96; 2b: 64)'
    )
    how.add_argument(
        '--threads', type=option_values.count, metavar='N', help="of torch (torch's own)"
    )
    how.add_argument('--device', choices=('auto', 'cpu', 'cuda'), default='auto')
    how.add_argument(
        '--dtype', choices=('auto', 'float32', 'bfloat16', 'float16'), default='auto',
        help="auto: the planner's; 2b: bfloat16",
    )  # fmt: skip
    out = parser.add_argument_group('what is left')
    out.add_argument('--json', action='store_true', help='print one JSON object, no tables')
    out.add_argument('--out', type=Path, metavar='DIR', help='folder for bench.json and bench.txt')


def shape_only(args: argparse.Namespace) -> bool:
    """Return whether random weights of the 2b shape are measured, and no checkpoint."""
    return args.model is None and args.size == '2b'


def sections(args: argparse.Namespace) -> Sequence[str]:
    """Return what to measure; raises ValueError where that cannot be."""
    if args.only is None:
        return tuple(name for name in SECTIONS if name != 'tick' or not shape_only(args))
    if shape_only(args) and 'tick' in args.only:
        raise ValueError(
            '--only tick with --size 2b: a tick plans from pictures, and the 2b shape has neither '
            'tokenizer nor preprocessor; give a checkpoint as --model'
        )
    return args.only


def run(args: argparse.Namespace) -> int:
    """Measure, print and write; returns the exit code."""
    try:
        from ..model.config import CheckpointError
        from ..planning.prompts import PromptError
        from ..runtime.quantisation import QuantisationError
        from .measure import measure, set_up
        from .report_text import to_json, to_text
    except ImportError as error:
        print(f'error: {error}', file=sys.stderr)
        return 1
    try:
        report: Report = measure(set_up(args), sections(args))
        as_json = json.dumps(to_json(report), indent=1, ensure_ascii=False, allow_nan=False)
        text = to_text(report)
        if args.out is not None:
            args.out.mkdir(parents=True, exist_ok=True)
            (args.out / 'bench.json').write_text(as_json + '\n', 'utf8')
            (args.out / 'bench.txt').write_text(text + '\n', 'utf8')
    except (
        CheckpointError, PromptError, QuantisationError, ImportError, OSError, RuntimeError,
        ValueError,
    ) as error:  # fmt: skip
        print(f'error: {error}', file=sys.stderr)
        return 1
    print(as_json if args.json else text)
    return 0
