"""A planning tick as the node has it: from frames to a trajectory, ten times a second, beside a
simulator in another process that renders at the same rate."""

import multiprocessing
import time
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle, islice
from multiprocessing.synchronize import Event
from pathlib import Path

import numpy as np
import torch

from ..parameters import Parameters
from ..runtime.session import PlanningSession
from .machine import cores
from .workload import observe

PERIOD_S = 0.1
WARM_UP_TICKS = 10
START_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Tick:
    """How long `PlanningSession.plan` took [ms], over `ticks` calls on a grid of 0.1 s."""

    ticks: int
    threads: int  # of torch; one core is left to the simulator
    p50_ms: float
    p95_ms: float
    p99_ms: float
    max_ms: float


def measure_tick(folder: Path, seeds: Sequence[int], ticks: int, device: torch.device) -> Tick:
    """Plan `ticks` times from pictures of the worlds of `seeds`, beside a running simulator.

    Raises RuntimeError if the simulator does not start or does not last.
    """
    threads = max(1, cores() - 1)
    observations = [observe(seed) for seed in seeds]
    before = torch.get_num_threads()
    try:
        session = PlanningSession.load(
            Parameters.from_mapping(
                {'model_dir': str(folder), 'threads': threads, 'device': device.type}
            )
        )
        with _simulator(seeds[0]):
            asked = islice(cycle(observations), WARM_UP_TICKS + ticks)
            took_s = list(_on_a_grid(session, asked))[WARM_UP_TICKS:]
    finally:
        torch.set_num_threads(before)
    p50, p95, p99 = np.percentile(np.array(took_s) * 1e3, (50, 95, 99))
    return Tick(ticks, threads, float(p50), float(p95), float(p99), 1e3 * max(took_s))


def _on_a_grid(session: PlanningSession, observations):
    """Yield the seconds that each plan took."""
    start_s = time.perf_counter()
    for index, observation in enumerate(observations):
        time.sleep(max(0.0, start_s + index * PERIOD_S - time.perf_counter()))
        begun_s = time.perf_counter()
        session.plan(observation)
        yield time.perf_counter() - begun_s


@contextmanager
def _simulator(seed: int):
    """Run `_simulate` in another process as long as the body runs."""
    context = multiprocessing.get_context('spawn')
    renders, ended = context.Event(), context.Event()
    process = context.Process(target=_simulate, args=(seed, renders, ended), daemon=True)
    process.start()
    try:
        if not renders.wait(START_TIMEOUT_S):
            raise RuntimeError(f'the simulator did not render within {START_TIMEOUT_S:g} s')
        yield
        if not process.is_alive():
            raise RuntimeError(f'the simulator ended early, with exit code {process.exitcode}')
    finally:
        ended.set()
        process.join()


def _simulate(seed: int, renders: Event, ended: Event) -> None:
    """Drive the expert through the world of `seed`, again and again, and render each step."""
    from ..simulation.cameras import CAMERAS
    from ..simulation.expert import Expert
    from ..simulation.renderer import Renderer
    from ..simulation.world import World

    while not ended.is_set():
        world, expert = World(seed), Expert()
        with Renderer(world.scene, {'front': CAMERAS['front']}) as renderer:
            while not world.finished and not ended.is_set():
                next_s = time.perf_counter() + PERIOD_S
                world.step(expert.control(world))
                renderer.render(world.view(), 'front')
                renders.set()
                ended.wait(max(0.0, next_s - time.perf_counter()))
