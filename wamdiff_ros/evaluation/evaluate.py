"""Judge checkpoints on held-out records: errors, time and words, side by side.

    wamdiff data generate data/validation --split validation --routes 100
    wamdiff evaluate models/nano --data data/validation
    wamdiff evaluate BASELINE OTHER … --data data/validation --out report
    wamdiff evaluate models/nano --data data/validation --quantisation all

Every checkpoint gets the same records, through the planner that the node runs. The first one is
what the others are compared with. Refused answers are counted and named; errors are those of the
others. Intervals come from drawing whole routes, whose records are alike.
Exit codes: 0 done, whatever the score; 1 it failed (the reason is printed), 2 wrong options,
130 interrupted.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING

from .. import option_values

if TYPE_CHECKING:  # torch takes its time, and every command imports this file
    from ..runtime.quantisation import Quantisation
    from .comparison import Comparison


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `wamdiff evaluate`."""
    parser.add_argument('checkpoints', nargs='+', type=Path, metavar='DIR', help='checkpoints')
    parser.add_argument(
        '--data', nargs='+', type=Path, required=True, metavar='SHARDS',
        help='held-out shards, or folders of them',
    )  # fmt: skip
    parser.add_argument(
        '--count', type=option_values.count, default=500, metavar='N',
        help='records, spread evenly over the data (%(default)s)',
    )  # fmt: skip
    parser.add_argument(
        '--quantisation', nargs='+', default=[], metavar='METHOD',
        help='the first checkpoint again, quantised: a method for all parts, '
        'language=METHOD,head=METHOD, or all: every method on every part and on all of them',
    )  # fmt: skip
    parser.add_argument(
        '--threads', type=option_values.count, metavar='N', help="of torch (default: torch's own)"
    )
    parser.add_argument('--json', action='store_true', help='print one JSON object, no tables')
    parser.add_argument(
        '--out', type=Path, metavar='DIR',
        help='folder for evaluation.json, evaluation.txt and errors.png',
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Ask, print and write the comparison; returns the exit code."""
    from ..model.config import CheckpointError
    from ..planning.prompts import PromptError
    from ..runtime.quantisation import QuantisationError
    from ..training.records import RecordError
    from ..training.shards import ShardError
    from .held_out import HeldOutError

    try:
        if args.out is not None:
            import matplotlib  # noqa: F401
        comparison = _compare(args)
        text = _json(comparison) if args.json else _text(comparison)
        if args.out is not None:
            _write(comparison, args.out)
    except ImportError as error:
        print(f'error: {error}; pip install -r requirements/train.txt', file=sys.stderr)
        return 1
    except (
        CheckpointError, HeldOutError, PromptError, QuantisationError, RecordError, ShardError,
        OSError,
    ) as error:  # fmt: skip
        print(f'error: {error}', file=sys.stderr)
        return 1
    print(text)
    return 0


def _compare(args: argparse.Namespace) -> 'Comparison':
    from ..parameters import Parameters
    from ..runtime.session import PlanningSession
    from ..training.shards import Shards
    from .comparison import compare
    from .held_out import ask, choose

    records = choose(Shards(args.data), args.count)
    names = [str(folder) for folder in args.checkpoints]
    values = [{'model_dir': name} for name in names]
    for quantisation in _quantisations(args.quantisation):
        names.append(f'{names[0]} {quantisation}')
        methods = asdict(quantisation).items()
        methods = {f'{part}_quantisation': method for part, method in methods}
        values.append({**values[0], **methods})
    sessions = [
        PlanningSession.load(Parameters.from_mapping({**one, 'threads': args.threads or 0}))
        for one in values
    ]
    return compare(names, ask(sessions, records), records, [*map(str, args.data)])


def _quantisations(words: Sequence[str]) -> 'list[Quantisation]':
    from ..parameters import QUANTISATIONS
    from ..runtime.quantisation import Quantisation

    if words == ['all']:
        parts = [field.name for field in fields(Quantisation)]
        methods = QUANTISATIONS[1:]
        words = [*methods, *(f'{part}={method}' for part in parts for method in methods)]
    return [Quantisation.parse(word) for word in words]


def _write(comparison: 'Comparison', out: Path) -> None:
    from .comparison_text import draw_errors

    out.mkdir(parents=True, exist_ok=True)
    (out / 'evaluation.txt').write_text(_text(comparison) + '\n', 'utf8')
    draw_errors(comparison, out / 'errors.png')
    (out / 'evaluation.json').write_text(_json(comparison) + '\n', 'utf8')


def _json(comparison: 'Comparison') -> str:
    return json.dumps(asdict(comparison), indent=1, ensure_ascii=False, allow_nan=False)


def _text(comparison: 'Comparison') -> str:
    from .comparison_text import to_text

    return to_text(comparison)
