"""Compare two replay runs over the same recordings: a checkpoint with another, or with before.

    wamdiff replay BAG… --out before --model OLD
    wamdiff replay BAG… --out after --model NEW
    wamdiff compare before after --out difference

Every difference is that of ticks at which both runs have a value, with its 95 % interval; the
segments in which the second run is worse and better are listed. Runs over different recordings,
instants or topics are refused.
Exit codes: 0 done, whatever the difference; 1 it failed (the reason is printed), 2 wrong options,
130 interrupted.
"""

import argparse
import sys
from dataclasses import asdict
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `wamdiff compare`."""
    parser.add_argument('first', type=Path, metavar='A', help='folder of a replay run')
    parser.add_argument('second', type=Path, metavar='B', help='the one that is compared with it')
    parser.add_argument(
        '--out', type=Path, metavar='DIR',
        help='folder for comparison.json, comparison.txt and report.html',
    )  # fmt: skip
    parser.add_argument('--json', action='store_true', help='print one JSON object, no table')
    parser.add_argument(
        '--ratings', type=Path, metavar='FILE', help='rated moments for the rater feedback score'
    )


def run(arguments: argparse.Namespace) -> int:
    """Compare, print and write; returns the exit code."""
    from ..replay.replay_run import ReplayError, read_run
    from .metrics import to_json
    from .ratings import RatingsError, read_ratings
    from .replay_comparison import ComparisonError, check_same_data, compare_runs, to_text
    from .report_page import to_html
    from .run_metrics import judge_run

    try:
        ratings = read_ratings(arguments.ratings) if arguments.ratings else {}
        runs = [read_run(path) for path in (arguments.first, arguments.second)]
        check_same_data(*runs)
        judged = [judge_run(one, ratings) for one in runs]
        comparison = compare_runs(*judged)
        text, content = to_text(comparison), to_json(asdict(comparison))
        if arguments.out is not None:
            arguments.out.mkdir(parents=True, exist_ok=True)
            (arguments.out / 'comparison.txt').write_text(text + '\n', 'utf8')
            (arguments.out / 'comparison.json').write_text(content, 'utf8')
            (arguments.out / 'report.html').write_text(to_html(*judged), 'utf8')
    except (ComparisonError, RatingsError, ReplayError, OSError) as error:
        print(f'error: {error}', file=sys.stderr)
        return 1
    print(content.rstrip() if arguments.json else text)
    return 0
