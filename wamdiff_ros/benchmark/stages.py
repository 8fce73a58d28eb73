"""What each kind of forward takes, beside the least that this machine could take for it."""

from dataclasses import dataclass

import torch

from ..model.network import Network
from ..runtime.options import EngineOptions
from .contender import Contender, fixed_settings
from .limits import Limits
from .runs import Clock
from .shapes import token_by_token
from .side_by_side import median_s, take_turns
from .work import Work, language_forward, vision_forward
from .workload import Question

TOKENS = 8  # of the token-by-token forwards, of which the mean counts


@dataclass(frozen=True)
class Stage:
    """One kind of forward. `floor_s` is the larger of the two floors."""

    name: str
    seconds: float
    flops: float
    read_bytes: float
    compute_floor_s: float
    memory_floor_s: float
    floor_s: float
    fraction_of_limit: float  # floor_s / seconds: 1 is the best that is possible
    bound: str  # 'compute' or 'memory': which floor is higher


def measure_stages(
    network: Network, options: EngineOptions, question: Question, limits: Limits, rounds: int
) -> list[Stage]:
    """Measure vision, prefill, a block's denoising forward and a single token's, in turns."""
    config, single = network.config, token_by_token(network.config)
    blocks = Contender(network, config, options, fixed_settings(config))
    tokens = Contender(network, single, options, None)
    engine, size, prompt = blocks.engine, config.block_size, len(question.prompt)
    features = blocks.encode(question)
    block = torch.full((1, size), config.mask_token_id, device=engine.device)
    masked = torch.ones_like(block, dtype=torch.bool)
    item = engine.dtype.itemsize

    def timed(run, repeats: int = 1):
        def seconds() -> float:
            clock = Clock(engine.device)
            for _ in range(repeats):
                run()
            return clock.lap() / repeats

        return seconds

    def prefill() -> float:
        engine.reset()  # which also empties the buffers
        clock = Clock(engine.device)
        engine.prefill([question.prompt], [features], 2 * size)
        return clock.lap()

    def append() -> float:
        tokens.engine.prefill([question.prompt], [features], TOKENS + 1)
        clock = Clock(engine.device)
        for _ in range(TOKENS):
            tokens.engine.append(block[:, 0])
        return clock.lap() / TOKENS

    prefill()
    contenders = {
        'prefill': prefill,
        'block forward': timed(lambda: engine.denoise(block, masked), 4),
        'token forward': append,
    }
    work = {
        'prefill': language_forward(
            config, item, rows=prompt, context=(prompt + size) // 2, head_rows=0
        ),
        'block forward': language_forward(
            config, item, rows=size, context=prompt + size, head_rows=size
        ),
        'token forward': language_forward(config, item, rows=1, context=prompt, head_rows=1),
    }
    if question.images:
        contenders = {'vision': timed(lambda: blocks.encode(question)), **contenders}
        works = [
            vision_forward(config, item, patches=image.grid[1] * image.grid[2])
            for image in question.images
        ]
        work['vision'] = Work(sum(w.flops for w in works), sum(w.read_bytes for w in works))
    results = take_turns(contenders, rounds, 'stages')
    return [
        stage(name, median_s(seconds), work[name], limits) for name, seconds in results.items()
    ]


def stage(name: str, seconds: float, work: Work, limits: Limits) -> Stage:
    """Compare a time with the limits."""
    compute_s = work.flops / limits.gemm_flops_per_s
    memory_s = work.read_bytes / limits.weights_bytes_per_s
    floor_s = max(compute_s, memory_s)
    return Stage(
        name=name,
        seconds=seconds,
        flops=work.flops,
        read_bytes=work.read_bytes,
        compute_floor_s=compute_s,
        memory_floor_s=memory_s,
        floor_s=floor_s,
        fraction_of_limit=floor_s / seconds,
        bound='compute' if compute_s >= memory_s else 'memory',
    )
