"""This package's engine as one of several contenders: a network, options, a way to decode."""

import copy

from ..decoding.autoregressive import decode_tokens
from ..decoding.block_diffusion import BlockSettings, Trace, decode_blocks
from ..decoding.sampling import Sampling
from ..decoding.unmasking import Unmasking
from ..model.config import ModelConfig
from ..model.network import Network
from ..runtime.attention import AttentionBackend
from ..runtime.engine import Engine, ImageFeatures
from ..runtime.options import EngineOptions
from .runs import Clock, Run
from .workload import Question


class Contender:
    """Answers questions from a cold cache; `settings` None decodes token by token.

    With `window_frames` in its configuration it runs in window mode.
    """

    def __init__(
        self,
        network: Network,
        config: ModelConfig,
        options: EngineOptions,
        settings: BlockSettings | None,
        attention: AttentionBackend | None = None,
    ):
        network = with_config(network, config)
        self.engine = Engine(network, options, attention=attention)
        self.settings = settings

    def answer(self, question: Question, tokens: int) -> Run:
        """Return what an answer of at most `tokens` tokens took; token by token: exactly so many.

        The second question is prefilled last, with what the cache has of the first one.
        """
        engine = self.engine
        engine.reset()
        clock = Clock(engine.device)
        features = self.encode(question)
        vision_s = clock.lap()
        engine.prefill([question.prompt], [features], tokens)
        prefill_s = clock.lap()
        answer, forwards = self.decode(tokens)
        decode_s = clock.lap()
        second_s = None
        if question.second is not None:
            engine.prefill([question.second], [features], tokens)
            second_s = clock.lap()
        return Run(vision_s, prefill_s, decode_s, len(answer), forwards, answer, second_s)

    def encode(self, question: Question) -> list[ImageFeatures]:
        """Run the vision tower over all images."""
        return [
            self.engine.encode_image(place, image.patches, image.grid)
            for place, image in enumerate(question.images)
        ]

    def decode(self, tokens: int) -> tuple[tuple[int, ...], int]:
        """Decode behind the prefilled prompt → the first answer's tokens, and all forwards."""
        trace = Trace()
        if self.settings is None:
            answers = decode_tokens(self.engine, (), Sampling(), tokens, trace=trace)
            return answers[0].token_ids, len(trace.steps_per_block)
        answers = decode_blocks(self.engine, self.settings, tokens, trace=trace)
        forwards = sum(trace.steps_per_block)
        if not self.engine.options.folded_commit:
            forwards += trace.commits
        ended = self.settings.eos_token_ids[:1] if answers[0].finished else ()
        return (*answers[0].token_ids, *ended), forwards


def fixed_settings(config: ModelConfig, steps: int | None = None) -> BlockSettings:
    """Return decoding whose cost does not depend on what is said.

    As many denoising steps in every block, and no end before the budget is used up.
    """
    steps = min(config.denoising_steps if steps is None else steps, config.block_size)
    return BlockSettings.of(
        config, denoising_steps=steps, eos_token_ids=(), unmasking=Unmasking.STATIC
    )


def with_config(network: Network, config: ModelConfig) -> Network:
    """Return the same network, the same memory, that counts as another configuration."""
    other = copy.copy(network)
    other.config = config
    return other
