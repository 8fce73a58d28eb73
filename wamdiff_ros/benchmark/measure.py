"""The sections of a bench, over one network."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from ..decoding.block_diffusion import BlockSettings
from ..model.config import CheckpointError, load_config
from ..model.network import Network
from ..model.weights import load_network
from ..runtime.device import choose_device, choose_dtype
from ..runtime.flashinfer_attention import flashinfer_kernels, refusal
from ..runtime.options import PLAIN, EngineOptions
from ..runtime.paged_forward import PagedBackend
from ..runtime.quantisation import Quantisation
from ..share import share_path
from .bench import shape_only
from .contender import Contender, fixed_settings
from .cost import SHORT_SWEEP, Sweep, measure_cost
from .ladder import Ladder
from .limits import measure_limits
from .machine import this_machine
from .profile import profile
from .report import Report, Workload
from .shapes import QWEN3_VL_2B, random_network
from .stages import measure_stages
from .tick import measure_tick
from .work import language_forward
from .workload import Question, made_up_question, world_questions

FIRST_SEED = 900  # of the evaluation's worlds, which no training set may hold
TEXT_TOKENS = 150  # of a made-up question: the default prompt in Qwen's tokens
STEPS_2B = 8


@dataclass(frozen=True, eq=False)
class Bench:
    """What is measured, and how long."""

    model: str
    size: str
    network: Network
    settings: BlockSettings
    questions: Sequence[Question]
    tokens: int
    rounds: int
    token_network: Network
    sweep: Sweep = field(default_factory=Sweep)
    quantisations: Sequence[Quantisation] = ()
    compiled: bool = False
    transformers: bool = True
    folder: Path | None = None  # of the checkpoint, if there is one
    ticks: int = 200


def set_up(args: argparse.Namespace) -> Bench:
    """Load or make what the options of `wamdiff bench` name."""
    if args.threads:
        torch.set_num_threads(args.threads)
    device = choose_device(args.device)
    dtype = choose_dtype(args.dtype, device)
    quantisations = [Quantisation.parse(text) for text in args.quantisation]
    if shape_only(args):
        dtype = torch.bfloat16 if args.dtype == 'auto' else dtype
        network = random_network(QWEN3_VL_2B, dtype, device)
        return Bench(
            model='Qwen3-VL-2B, random weights', size='2b', network=network,
            settings=fixed_settings(QWEN3_VL_2B, STEPS_2B),
            questions=[made_up_question(QWEN3_VL_2B, text_tokens=TEXT_TOKENS)],
            tokens=args.tokens or 64, rounds=args.rounds or 1, token_network=network,
            sweep=SHORT_SWEEP, quantisations=quantisations, compiled=args.compile,
        )  # fmt: skip
    folder = args.model or share_path('models', 'nano')
    network = _load(folder, dtype, device)
    if network.config.block_size == 1:
        raise CheckpointError(
            f'{folder}: goes token by token; give a block-diffusion checkpoint as --model, and '
            'this one as --ar-model'
        )
    seeds = range(FIRST_SEED, FIRST_SEED + args.questions)
    return Bench(
        model=folder.resolve().name, size='nano' if args.model is None else 'other',
        network=network, settings=BlockSettings.of(network.config),
        questions=world_questions(folder, seeds), tokens=args.tokens or 96,
        rounds=args.rounds or 7,
        token_network=_load(args.ar_model, dtype, device) if args.ar_model else network,
        quantisations=quantisations, compiled=args.compile, folder=folder,
    )  # fmt: skip


def _flashinfer(network: Network) -> PagedBackend | None:
    """Return FlashInfer's attention where it can run."""
    weight = network.text.embed_tokens.weight
    where = network.config.text, weight.dtype, weight.device
    return None if refusal(*where) else PagedBackend(flashinfer_kernels(*where))


def measure(bench: Bench, sections: Sequence[str]) -> Report:
    """Run the sections one after another."""
    network, config, options = bench.network, bench.network.config, EngineOptions()
    weight = network.text.embed_tokens.weight
    machine = this_machine(weight.device)
    ladder = limits = stages = cost = tick = profiles = None
    first = bench.questions[0]
    if 'ladder' in sections:
        everything = Contender(network, config, options, bench.settings)  # fuses, once and for all
        baseline = None
        if bench.transformers:
            from .transformers_model import TransformersBaseline

            baseline = TransformersBaseline(bench.token_network)
        ladder = Ladder(
            network, bench.settings, bench.questions, bench.tokens, bench.token_network,
            baseline, bench.quantisations, bench.compiled, _flashinfer(network),
        ).climb(bench.rounds)  # fmt: skip
        del everything, baseline
    if 'stages' in sections:
        work = language_forward(config, weight.itemsize, rows=1, context=0, head_rows=1)
        limits = measure_limits(weight.dtype, weight.device, int(work.read_bytes))
        stages = measure_stages(network, options, first, limits, bench.rounds)
    if 'cost' in sections:
        grid = first.images[0].grid
        text = len(first.prompt) - sum(length for _, length in first.prompt.images)
        cost = measure_cost(
            network, options, bench.sweep, grid, text, 2 * config.block_size, bench.rounds
        )
    if 'tick' in sections:
        assert bench.folder is not None  # bench.sections asks for one
        seeds = range(FIRST_SEED, FIRST_SEED + len(bench.questions))
        tick = measure_tick(bench.folder, seeds, bench.ticks, weight.device)
    if 'profile' in sections:
        contenders = {
            'blocks, plain': Contender(network, config, PLAIN, bench.settings),
            'blocks, everything': Contender(network, config, options, bench.settings),
        }
        profiles = {
            name: profile(lambda c=contender: c.answer(first, bench.tokens), weight.device)
            for name, contender in contenders.items()
        }
    return Report(machine, _workload(bench), ladder, limits, stages, cost, tick, profiles)


def _workload(bench: Bench) -> Workload:
    settings, network = bench.settings, bench.network
    prompts = [question.prompt for question in bench.questions]
    images = [sum(length for _, length in prompt.images) for prompt in prompts]
    return Workload(
        model=bench.model,
        size=bench.size,
        parameters=sum(parameter.numel() for parameter in network.parameters()),
        dtype=str(network.text.embed_tokens.weight.dtype).removeprefix('torch.'),
        block_size=settings.block_size,
        denoising_steps=settings.denoising_steps,
        unmasking=settings.unmasking.value,
        questions=len(prompts),
        prompt_tokens=sum(map(len, prompts)) / len(prompts),
        image_tokens=sum(images) / len(images),
        answer_tokens=bench.tokens,
        rounds=bench.rounds,
    )


def _load(folder: Path, dtype: torch.dtype, device: torch.device) -> Network:
    if not folder.is_dir():
        raise CheckpointError(f'{folder}: no such folder')
    return load_network(folder, load_config(folder), dtype=dtype, device=device)
