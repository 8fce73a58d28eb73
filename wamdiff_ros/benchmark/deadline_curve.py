"""What a deadline costs: the error of the bundled checkpoint's plans against the time they had.

    python -m wamdiff_ros.benchmark.deadline_curve --block-ms 5

Forwards take a time in proportion to their tokens on a clock of its own, which stands still
otherwise; so the curve says what deadlines do to answers, whatever the machine does meanwhile.
Each picture of the driving world is planned from without a deadline and with each of them.
Needs requirements/simulation.txt.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ..runtime.engine import Engine
    from ..runtime.session import PlanningSession
    from ..types import Observation

DEADLINES_MS = (20, 30, 40, 50, 60, 80, 100, 150, 200, 300, 500)
SEED = 900  # of a world that no training set may hold
STEPS_APART = 20  # of the world, 0.1 s each


class ForwardClock:
    """Runs by `block_ns` for every B tokens that a network takes, or part of that."""

    def __init__(self, engine: 'Engine', block_ns: int):
        self.now_ns = 0
        self._block_ns, self._block_size = block_ns, engine.config.block_size
        engine.after_forward = self._after_forward

    def __call__(self) -> int:
        """Return its time."""
        return self.now_ns

    def _after_forward(self, stage: str, rows: int) -> None:
        self.now_ns += self._block_ns * -(-rows // self._block_size)


@dataclass(frozen=True)
class Point:
    """The plans under one deadline."""

    deadline_ms: float
    in_time: float  # share of plans that were there at the deadline
    late_ms: float  # the latest of the others
    readable: float  # share of answers that hold a plan
    cut_short: float  # share
    forwards: float  # of the decoder, mean
    from_ease_m: float  # mean distance of waypoints from those planned without a deadline
    from_expert_m: float  # mean distance of waypoints from the expert's


def deadline_curve(
    session: 'PlanningSession',
    clock: ForwardClock,
    seen: Sequence['Observation'],
    expert_xy_m: Sequence[np.ndarray],
    deadlines_ms: Sequence[float] = DEADLINES_MS,
) -> list[Point]:
    """Plan from every observation under every deadline; `clock` is the session's."""
    at_ease = []
    for observation in seen:
        session.reset()
        at_ease.append(session.plan(observation).plan)
    points = []
    for deadline_ms in (*deadlines_ms, float('inf')):
        late_ms, results = [], []
        for observation in seen:
            session.reset()  # every frame is encoded, every prompt prefilled
            deadline_ns = clock.now_ns + min(deadline_ms, 1e6) * 1e6
            results.append(session.plan(observation, deadline_ns / 1e9))
            late_ms.append((clock.now_ns - deadline_ns) / 1e6)
        plans = [result.plan for result in results]
        points.append(
            Point(
                deadline_ms,
                float(np.mean(np.array(late_ms) <= 0)),
                max(0.0, *late_ms),
                float(np.mean([plan is not None for plan in plans])),
                float(np.mean([result.cut_short for result in results])),
                float(np.mean([result.counts.denoising_forwards for result in results])),
                _distance_m(plans, [plan and plan.waypoints_base_m for plan in at_ease]),
                _distance_m(plans, expert_xy_m),
            )
        )
    return points


def _distance_m(plans, others) -> float:
    pairs = [
        (plan.waypoints_base_m, other)
        for plan, other in zip(plans, others, strict=True)
        if plan is not None and other is not None
    ]
    if not pairs:
        return float('nan')
    return float(np.mean([np.linalg.norm(a - b, axis=1).mean() for a, b in pairs]))


def pictures(count: int) -> tuple[list['Observation'], list[np.ndarray]]:
    """Return observations of a drive by the expert, and its waypoints [8, 2] at each."""
    from ..simulation.cameras import CAMERAS
    from ..simulation.expert import Expert
    from ..simulation.renderer import Renderer
    from ..simulation.world import World
    from ..types import CameraFrame, Observation

    world, expert = World(SEED), Expert()
    seen, waypoints = [], []
    with Renderer(world.scene, {'front': CAMERAS['front']}) as renderer:
        while len(seen) < count:
            stamp_ns = round(world.time_s * 1e9)
            frame = CameraFrame('front', stamp_ns, renderer.render(world.view(), 'front'))
            ego = world.ego_state(stamp_ns)
            seen.append(Observation(stamp_ns, (frame,), ego, world.command()))
            waypoints.append(expert.plan(world).waypoints_base_m)
            for _ in range(STEPS_APART):
                world.step(expert.control(world))
    return seen, waypoints


def table(points: Sequence[Point]) -> str:
    """Return the curve as text."""
    rows = ['deadline   in time  latest by  readable  cut short  forwards  from ease  from expert']
    for p in points:
        deadline = 'none' if p.deadline_ms == float('inf') else f'{p.deadline_ms:g} ms'
        rows.append(
            f'{deadline:<10} {p.in_time:7.0%} {p.late_ms:7.1f} ms {p.readable:9.0%} '
            f'{p.cut_short:10.0%} {p.forwards:9.1f} '
            f'{p.from_ease_m:8.2f} m {p.from_expert_m:10.2f} m'
        )
    return '\n'.join(rows)


def main() -> None:
    """Print the curve of a checkpoint."""
    from ..parameters import Parameters
    from ..runtime.session import PlanningSession

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--model', default='', metavar='DIR', help='checkpoint (the bundled one)')
    parser.add_argument(
        '--block-ms',
        type=float,
        default=5.0,
        metavar='MS',
        help='what a forward takes for each block of its tokens (%(default)s)',
    )
    parser.add_argument('--pictures', type=int, default=12, metavar='N', help='(%(default)s)')
    options = parser.parse_args()
    loaded = PlanningSession.load(Parameters.from_mapping({'model_dir': options.model}))
    clock = ForwardClock(loaded.engine, round(options.block_ms * 1e6))
    session = loaded.on_clock(clock)
    print(table(deadline_curve(session, clock, *pictures(options.pictures))))


if __name__ == '__main__':
    main()
