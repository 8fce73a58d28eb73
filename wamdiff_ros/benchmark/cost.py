"""What an answer costs as its prompt, its cameras, its frames, its rollouts or its blocks grow."""

import itertools
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ..model.network import Network
from ..runtime.engine import ImageFeatures
from ..runtime.options import EngineOptions
from .contender import Contender, fixed_settings
from .runs import Clock
from .side_by_side import median_s, take_turns
from .workload import Question, made_up_question


@dataclass(frozen=True)
class Sweep:
    """Values that one thing takes while all others stay as they are."""

    text_tokens: tuple[int, ...] = (64, 128, 256, 512, 1024)
    cameras: tuple[int, ...] = (1, 2, 3, 6)
    frames: tuple[int, ...] = (1, 2, 4, 8)
    rollouts: tuple[int, ...] = (1, 2, 4, 8)
    block_size: tuple[int, ...] = (1, 4, 8, 16, 32, 64)


# For networks that take seconds to answer.
SHORT_SWEEP = Sweep((128, 512), (1, 3), (1, 4), (1, 4), (8, 32))


@dataclass(frozen=True)
class Point:
    """One value; times in seconds, medians over the rounds.

    More cameras are more images to encode and to prefill. More frames are more images to prefill,
    of which only the newest is encoded; in window mode only the newest is prefilled, too. Rollouts
    go on from one prompt together.
    """

    value: int
    prompt_tokens: int
    answer_tokens: int  # of each rollout
    vision_s: float
    prefill_s: float
    decode_s: float
    answer_s: float  # the sum


def measure_cost(
    network: Network,
    options: EngineOptions,
    sweep: Sweep,
    grid: tuple[int, int, int],
    text_tokens: int,
    answer_tokens: int,
    rounds: int,
) -> dict[str, list[Point]]:
    """Measure all sweeps; within one of them the points take turns."""
    config = network.config

    def question(**changes) -> Question:
        return made_up_question(config, **{'text_tokens': text_tokens, 'grid': grid, **changes})

    def ask(asked: Question, rollouts: int = 1, new_images: int | None = None, size: int = 0):
        changed = replace(config, block_size=size) if size else config
        settings = fixed_settings(changed) if changed.block_size > 1 else None
        contender = Contender(network, changed, options, settings)
        return _answer(contender, asked, answer_tokens, rollouts, new_images)

    def slide(frames: int) -> Callable[[], Point]:
        changed = replace(config, window_frames=frames)
        contender = Contender(network, changed, options, fixed_settings(changed))
        return _sliding(contender, question(images=frames), answer_tokens)

    def sweeps() -> dict[str, dict[int, Callable[[], Point]]]:
        return {
            'text_tokens': {n: ask(question(text_tokens=n)) for n in sweep.text_tokens},
            'cameras': {n: ask(question(images=n)) for n in sweep.cameras},
            'frames': {n: ask(question(images=n), new_images=1) for n in sweep.frames},
            'frames_in_window': {n: slide(n) for n in sweep.frames if n > 1},
            'rollouts': {n: ask(question(), rollouts=n) for n in sweep.rollouts},
            'block_size': {n: ask(question(), size=n) for n in sweep.block_size},
        }

    return {
        name: [
            _median(value, points)
            for value, points in take_turns(contenders, rounds, f'cost of {name}').items()
        ]
        for name, contenders in sweeps().items()
    }


def _answer(
    contender: Contender, question: Question, tokens: int, rollouts: int, new_images: int | None
) -> Callable[[], Point]:
    engine = contender.engine
    newest = len(question.images) - (new_images or len(question.images))
    kept = contender.encode(question)[:newest]

    def run() -> Point:
        engine.reset()
        clock = Clock(engine.device)
        features = kept + [
            engine.encode_image(place, image.patches, image.grid)
            for place, image in enumerate(question.images[newest:], start=newest)
        ]
        vision_s = clock.lap()
        engine.prefill([question.prompt], [features], tokens, rollouts=rollouts)
        prefill_s = clock.lap()
        answer, _ = contender.decode(tokens)
        return _point(question, answer, vision_s, prefill_s, clock.lap())

    return run


def _sliding(contender: Contender, question: Question, tokens: int) -> Callable[[], Point]:
    """Return a tick of window mode: one frame leaves, one comes."""
    engine, numbers = contender.engine, itertools.count()

    def newest() -> ImageFeatures:
        image = question.images[-1]
        return engine.encode_image(next(numbers), image.patches, image.grid)

    frames = deque((newest() for _ in question.images), len(question.images))
    engine.prefill([question.prompt], [list(frames)], tokens)

    def run() -> Point:
        clock = Clock(engine.device)
        frames.append(newest())
        vision_s = clock.lap()
        engine.prefill([question.prompt], [list(frames)], tokens)
        prefill_s = clock.lap()
        answer, _ = contender.decode(tokens)
        return _point(question, answer, vision_s, prefill_s, clock.lap())

    return run


def _point(
    question: Question, answer: Sequence[int], vision_s: float, prefill_s: float, decode_s: float
) -> Point:
    return Point(
        0, len(question.prompt), len(answer), vision_s, prefill_s, decode_s,
        vision_s + prefill_s + decode_s,
    )  # fmt: skip


def _median(value: int, points: Sequence[Point]) -> Point:
    times = {
        name: median_s([getattr(point, name) for point in points])
        for name in ('vision_s', 'prefill_s', 'decode_s')
    }
    return replace(points[-1], value=value, **times, answer_s=sum(times.values()))
