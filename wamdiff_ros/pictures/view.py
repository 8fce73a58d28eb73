"""Draw a recording's plans as RViz shows them, without RViz: from behind and from above.

    wamdiff view demo_output/run_001/bag --out pictures
    wamdiff view BAG --out pictures --start 12.5 --duration 2 --every 0.1

One PNG per instant, named after the seconds since the first plan: the plan in force, the tick's
other candidates where they were recorded, the vehicle, and what the planner said. Without odometry
in the recording, as in the output of `wamdiff replay`, plans are drawn as of their t0.
Exit codes: 0 done, 1 it failed (the reason is printed), 2 wrong options, 130 interrupted.
"""

import argparse
import math
import sys
from bisect import bisect_right
from pathlib import Path
from typing import TYPE_CHECKING

from .. import option_values
from ..parameter_values import ParameterError

if TYPE_CHECKING:
    import numpy as np

    from ..planning.figure import Footprint, Shape
    from ..recordings.timeline import PublishedPlan, Timeline


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `wamdiff view`."""
    parser.add_argument('bag', type=Path, metavar='BAG', help='recording of the planner')
    parser.add_argument('--out', type=Path, required=True, metavar='DIR', help='for the pictures')
    parser.add_argument(
        '--every', type=option_values.positive, default=1.0, metavar='SECONDS',
        help='time between pictures (%(default)s)',
    )  # fmt: skip
    parser.add_argument(
        '--start', type=float, default=0.0, metavar='SECONDS',
        help='time of the first picture, since the first plan (%(default)s)',
    )  # fmt: skip
    parser.add_argument(
        '--duration', type=option_values.positive, default=math.inf, metavar='SECONDS',
        help='how much of the recording (default: all)',
    )  # fmt: skip
    parser.add_argument(
        '--odometry', default='/odometry', metavar='TOPIC', help='odometry topic (%(default)s)'
    )
    parser.add_argument(
        '--params', type=Path, metavar='FILE',
        help="parameter file of the planner, for the vehicle's size (a compact car's)",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Draw, and return the exit code."""
    from ..recordings.bag import BagError

    try:
        drawn = _draw(args)
    except (BagError, ParameterError, OSError) as error:
        print(f'error: {error}', file=sys.stderr)
        return 1
    print(f'{drawn} pictures in {args.out}')
    return 0


def _draw(args: argparse.Namespace) -> int:
    """Write the pictures and return how many."""
    from PIL import Image
    from tqdm import tqdm

    from ..parameter_file import read_parameters
    from ..parameters import Parameters
    from ..planning.figure import Footprint
    from ..recordings.bag import BagError
    from ..recordings.timeline import read_timeline
    from .figure_painter import paint_views

    footprint = Footprint.of(Parameters.from_mapping(read_parameters(args.params)))
    timeline = read_timeline(args.bag, odometry_topic=args.odometry, needs_images=False)
    if not timeline.plans:
        raise BagError(f'{args.bag}: holds no wamdiff_ros/PlannedTrajectory')
    first_ns, last_ns = timeline.plans[0].published_ns, timeline.plans[-1].published_ns
    until_s = min(args.start + args.duration, (last_ns - first_ns) / 1e9)
    count = math.floor((until_s - args.start) / args.every + 1e-9) + 1
    if count < 1:
        raise BagError(f'{args.bag}: its plans end {until_s:.2f} s after the first')
    args.out.mkdir(parents=True, exist_ok=True)
    for index in tqdm(range(count), 'drawing', unit='picture', disable=None):
        at_s = args.start + index * args.every
        shapes = figure_at(timeline, first_ns + round(at_s * 1e9), footprint)
        Image.fromarray(paint_views(shapes)).save(args.out / f'{at_s:08.2f}s.png')
    return count


def figure_at(timeline: 'Timeline', time_ns: int, footprint: 'Footprint') -> 'tuple[Shape, ...]':
    """Return the shapes of the plan in force at the time, in the vehicle's base frame then.

    Where odometry does not tell where the vehicle is, that is the frame at the plan's t0. Raises
    LookupError before the first plan.
    """
    from ..planning.figure import DrawnPlan, plan_figure

    plan = timeline.plan_at(time_ns)
    if plan is None:
        raise LookupError(f'no plan had been published at {time_ns} ns')
    positions_m, headings = _place(timeline, plan, plan, time_ns)
    age_s = (time_ns - plan.t0_ns) / 1e9
    others = [_place(timeline, other, plan, time_ns)[0] for other in _candidates(timeline, plan)]
    return plan_figure(
        DrawnPlan(plan.status, age_s, plan.time_s, plan.speed_mps, positions_m, headings),
        footprint,
        others,
        _reason(timeline, plan),
        timeline.description_at(time_ns),
    )


def _place(
    timeline: 'Timeline', drawn: 'PublishedPlan', start: 'PublishedPlan', time_ns: int
) -> 'tuple[np.ndarray, np.ndarray]':
    """Return positions and headings [N, 3] in base at the time, or where `start` begins."""
    import numpy as np
    from scipy.spatial.transform import Rotation

    ego = timeline.ego.at(time_ns)
    where = timeline.plan_in_base(drawn, ego) if ego is not None else None
    if where is not None or not len(start.time_s):
        return where or (drawn.positions_m, drawn.positions_m)  # the latter is empty
    to_base = Rotation.from_rotvec([0.0, 0.0, start.headings_rad[0]]).inv()
    angles = drawn.headings_rad
    headings = np.stack([np.cos(angles), np.sin(angles), 0 * angles], axis=-1)
    return to_base.apply(drawn.positions_m - start.positions_m[0]), to_base.apply(headings)


def _candidates(timeline: 'Timeline', plan: 'PublishedPlan') -> 'list[PublishedPlan]':
    """Return the other plans that were made along with this one."""
    from ..types import PlanStatus

    if plan.status is not PlanStatus.NOMINAL:
        return []
    return timeline.candidates.get(plan.t0_ns, [])[1:]


def _reason(timeline: 'Timeline', plan: 'PublishedPlan') -> str:
    """Return why the tick that published this plan had no plan of its own, '' when it had."""
    from ..message_time import header_ns

    # A tick's status is stamped with its grid instant, and its plan is published before the next.
    index = bisect_right(timeline.statuses, plan.published_ns, key=header_ns)
    return timeline.statuses[index - 1].reason if index else ''
