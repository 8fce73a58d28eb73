"""Make one HTML page of a replay run, or of two runs over the same recordings.

    wamdiff report RUN --out report.html
    wamdiff report BEFORE AFTER --out report.html

The page is one file that needs no network: totals with intervals, a table of the bags that can be
sorted and searched, the worst moments with their pictures, latency, machine and versions. It links
to the videos of `wamdiff replay --video` where they lie.
Exit codes: 0 done; 1 it failed (the reason is printed), 2 wrong options, 130 interrupted.
"""

import argparse
import sys
from dataclasses import asdict
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `wamdiff report`."""
    parser.add_argument('first', type=Path, metavar='RUN', help='folder of a replay run')
    parser.add_argument(
        'second', type=Path, nargs='?', metavar='RUN2', help='another one, compared with the first'
    )
    parser.add_argument(
        '--out', type=Path, metavar='FILE', help='the page (report.html in the last run)'
    )
    parser.add_argument(
        '--json', action='store_true', help='print the totals as one JSON object, no path'
    )
    parser.add_argument(
        '--ratings', type=Path, metavar='FILE', help='rated moments for the rater feedback score'
    )


def run(arguments: argparse.Namespace) -> int:
    """Judge and write the page; returns the exit code."""
    from ..replay.replay_run import ReplayError, read_run
    from .metrics import to_json
    from .ratings import RatingsError, read_ratings
    from .replay_comparison import ComparisonError, check_same_data
    from .report_page import to_html
    from .run_metrics import judge_run

    paths = [path for path in (arguments.first, arguments.second) if path is not None]
    out = arguments.out or paths[-1] / 'report.html'
    try:
        ratings = read_ratings(arguments.ratings) if arguments.ratings else {}
        runs = [read_run(path) for path in paths]
        if len(runs) == 2:
            check_same_data(*runs)
        judged = [judge_run(one, ratings) for one in runs]
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(to_html(*judged, folder=out.parent), 'utf8')
        if arguments.json:
            totals = [asdict(one.metrics()) for one in judged]
            print(to_json({'runs': totals}).rstrip())
        else:
            print(f'wrote {out} ({out.stat().st_size / 1e6:.1f} MB)')
    except (ComparisonError, RatingsError, ReplayError, OSError) as error:
        print(f'error: {error}', file=sys.stderr)
        return 1
    return 0
