"""From plain autoregressive decoding to everything on, one step after another, side by side.

All rungs have the same weights and answer the same questions from a cold cache. Decoders that go
token by token are made to produce as many tokens as the plain block decoder does.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Protocol

import numpy as np
import torch

from ..decoding.block_diffusion import BlockSettings
from ..model.network import Network
from ..runtime.attention import AttentionBackend
from ..runtime.options import PLAIN, EngineOptions
from ..runtime.quantisation import Quantisation, options_for, quantise
from .contender import Contender
from .runs import Run, total
from .shapes import token_by_token, twin
from .side_by_side import median_s, take_turns
from .workload import Question

BLOCKS, TOKENS = 'blocks', 'token by token'
TRANSFORMERS = f'transformers, {TOKENS}'
EVERYTHING = ' = everything'  # the end of the name of the rung that a planner runs on


@dataclass(frozen=True)
class Rung:
    """Medians over the rounds; a ratio above 1 is faster. Times in seconds, over all questions."""

    name: str
    turned_on: str | None  # the option that the rung before has off
    vision_s: float
    prefill_s: float
    second_prefill_s: float | None
    decode_s: float
    tokens: int
    forwards: int
    tokens_per_s: float
    tokens_per_s_vs_previous: float | None
    tokens_per_s_vs_transformers: float | None
    prefill_vs_transformers: float | None  # with vision, on both sides
    same_answer: bool | None  # as the plain decoder of its kind


def option_steps(device: torch.device) -> list[tuple[str, EngineOptions]]:
    """Return the options that are turned on one after another, from plain to the defaults."""
    # On a CPU the default is what the plain path does: one operation after another.
    steps, options = [], PLAIN if device.type != 'cpu' else replace(PLAIN, runtime='auto')
    for field in fields(EngineOptions):
        default = getattr(EngineOptions(), field.name)
        if getattr(options, field.name) != default:
            options = replace(options, **{field.name: default})
            steps.append((field.name, options))
    return steps


@dataclass(frozen=True)
class Ladder:
    """What is climbed: one network, decoded in every way."""

    network: Network
    settings: BlockSettings  # of the block decoders
    questions: Sequence[Question]
    tokens: int  # budget of an answer
    token_network: Network  # what goes token by token, usually the same one
    baseline: 'Baseline | None' = None  # transformers with `token_network`
    quantisations: Sequence[Quantisation] = ()  # each a rung beyond everything
    compiled: bool = False  # so is this: on a CPU, forwards that torch.compile makes
    attention: AttentionBackend | None = None  # and this: attention of another library

    def climb(self, rounds: int) -> list[Rung]:
        """Measure every rung."""
        steps = option_steps(self.network.text.embed_tokens.weight.device)
        everything = steps[-1][1]
        single = token_by_token(self.token_network.config)
        network, config, settings = self.network, self.network.config, self.settings
        decoders: dict[str, tuple[str | None, Contender]] = {
            f'{TOKENS}, plain': (None, Contender(self.token_network, single, PLAIN, None)),
            f'{TOKENS}, everything': (
                None,
                Contender(self.token_network, single, everything, None),
            ),
            f'{BLOCKS}, plain': (None, Contender(network, config, PLAIN, settings)),
        }
        for option, options in steps:
            name = f'{BLOCKS}, + {option}{EVERYTHING if options == everything else ""}'
            decoders[name] = (option, Contender(network, config, options, settings))
        if self.compiled:
            options = replace(everything, runtime='graph')
            decoders[f'{BLOCKS}, + compiled'] = (
                'compiled',
                Contender(network, config, options, settings),
            )
        if self.attention is not None:
            decoders[f'{BLOCKS}, + {self.attention.name}'] = (
                'attention',
                Contender(network, config, everything, settings, self.attention),
            )
        for quantisation in self.quantisations:
            quantised = twin(network)
            quantise(quantised, quantisation)
            decoders[f'{BLOCKS}, + {quantisation}'] = (
                str(quantisation),
                Contender(quantised, config, options_for(quantisation, everything), settings),
            )
        plain = decoders[f'{BLOCKS}, plain'][1]
        produced = [plain.answer(question, self.tokens).tokens for question in self.questions]
        contenders: dict[str, Callable[[], Run]] = {}
        if self.baseline is not None:
            contenders[TRANSFORMERS] = self._all_questions(self.baseline, produced)
        for name, (_, decoder) in decoders.items():
            budgets = produced if decoder.settings is None else [self.tokens] * len(produced)
            contenders[name] = self._all_questions(decoder, budgets)
        results = take_turns(contenders, rounds, 'ladder')
        return rungs(results, {name: option for name, (option, _) in decoders.items()})

    def _all_questions(self, decoder: 'Baseline', budgets: Sequence[int]) -> Callable[[], Run]:
        asked = list(zip(self.questions, budgets, strict=True))
        return lambda: total([decoder.answer(*question) for question in asked])


class Baseline(Protocol):
    """Anything that answers: a Contender, or transformers."""

    def answer(self, question: Question, tokens: int) -> Run:
        """Answer one question from a cold cache."""
        ...


def rungs(results: dict[str, list[Run]], turned_on: dict[str, str | None]) -> list[Rung]:
    """Turn the runs of all contenders into rungs, in their order."""
    medians = {name: _median(runs) for name, runs in results.items()}
    theirs = medians.get(TRANSFORMERS)
    found: list[Rung] = []
    for name, run in medians.items():
        option = turned_on.get(name)
        previous = found[-1].tokens_per_s if option else None
        top = next((rung for rung in found if rung.name.endswith(EVERYTHING)), None)
        if top is not None:
            # What comes after everything is compared with that, each by itself.
            previous = top.tokens_per_s
        kind = f'{BLOCKS if name.startswith(BLOCKS) else TOKENS}, plain'
        vs_transformers = prefill_ratio = None
        if theirs is not None:
            vs_transformers = run.tokens_per_s / theirs.tokens_per_s
            prefill_ratio = theirs.prefill_s / (run.vision_s + run.prefill_s)
        found.append(
            Rung(
                name=name,
                turned_on=option,
                vision_s=run.vision_s,
                prefill_s=run.prefill_s,
                second_prefill_s=run.second_prefill_s,
                decode_s=run.decode_s,
                tokens=run.tokens,
                forwards=run.forwards,
                tokens_per_s=run.tokens_per_s,
                tokens_per_s_vs_previous=run.tokens_per_s / previous if previous else None,
                tokens_per_s_vs_transformers=vs_transformers,
                prefill_vs_transformers=prefill_ratio,
                same_answer=run.answer == medians[kind].answer if kind in medians else None,
            )
        )
    return found


def _median(runs: Sequence[Run]) -> Run:
    """Return the newest run with the medians of all its times."""
    times = {
        name: median_s([getattr(run, name) for run in runs])
        for name in ('vision_s', 'prefill_s', 'decode_s')
    }
    seconds = [run.second_prefill_s for run in runs]
    if None not in seconds:
        times['second_prefill_s'] = float(np.median(seconds))
    return replace(runs[-1], **times)
