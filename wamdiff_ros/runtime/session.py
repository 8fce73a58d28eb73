"""PlanningSession: observations in, plans and descriptions out. The node and replay both use it.

Lives in one thread, which loads it and makes every call. Plan and description are two answers to
two questions about the same images, so the second reuses the cached prefix of the first.
"""

import itertools
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch

from ..decoding.autoregressive import decode_tokens
from ..decoding.block_diffusion import Answer, BlockSettings, Trace, Unmasking, decode_blocks
from ..decoding.sampling import Sampling
from ..model.chat import user_prompt
from ..model.config import CheckpointError, load_config
from ..model.image_processor import ImageProcessor
from ..model.tokenizer import Tokenizer
from ..model.weights import load_network
from ..parameters import Parameters
from ..planning.answer import Refusal, parse_description, parse_waypoints
from ..planning.prompts import Image, Part, PromptTemplates, description_turn, navigation_turn
from ..planning.trajectory import trajectory_from_waypoints
from ..share import share_path
from ..types import (
    CameraFrame,
    InferenceCounts,
    Observation,
    Plan,
    PlanningResult,
    SceneDescription,
    StageTimings,
)
from .engine import Engine, ImageFeatures

BUNDLED_MODEL = ('models', 'nano')


class PlanningSession:
    """A loaded checkpoint with its KV cache; see `load`."""

    def __init__(
        self,
        engine: Engine,
        tokenizer: Tokenizer,
        processor: ImageProcessor,
        templates: PromptTemplates,
        parameters: Parameters,
        model_name: str,
    ):
        self.model_name = model_name
        self._engine = engine
        self._tokenizer = tokenizer
        self._processor = processor
        self._templates = templates
        self._parameters = parameters
        # Of the newest observation only: its description needs them again.
        self._encoded: dict[str, tuple[np.ndarray, ImageFeatures]] = {}  # by camera
        self._image_numbers = itertools.count()
        config = engine.config
        self._sampling = Sampling(
            parameters.temperature, parameters.top_k, parameters.top_p, parameters.seed
        )
        self._settings = None
        if config.block_size > 1:
            self._settings = BlockSettings(
                block_size=config.block_size,
                mask_token_id=config.mask_token_id,
                eos_token_ids=config.eos_token_ids,
                denoising_steps=parameters.denoising_steps or config.denoising_steps,
                unmasking=Unmasking(parameters.unmasking),
                confidence_threshold=parameters.confidence_threshold,
                sampling=self._sampling,
            )

    @classmethod
    def load(
        cls,
        parameters: Parameters,
        *,
        progress: Callable[[str], None] = lambda text: None,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> 'PlanningSession':
        """Load the checkpoint that `parameters` name; raises CheckpointError or LoadCancelled."""
        if parameters.threads:
            torch.set_num_threads(parameters.threads)
        model_dir = Path(parameters.model_dir or share_path(*BUNDLED_MODEL)).expanduser()
        if not model_dir.is_dir():
            raise CheckpointError(f'{model_dir}: no such folder; set model_dir to a checkpoint')
        device = _device(parameters.device)
        dtype = _dtype(parameters.dtype, device)
        config = load_config(model_dir)
        tokenizer = Tokenizer.load(model_dir, config)
        processor = ImageProcessor.load(model_dir, config.vision)
        processor = processor.with_pixels(parameters.min_pixels, parameters.max_pixels)
        templates = PromptTemplates.load(model_dir)
        network = load_network(
            model_dir, config, dtype=dtype, device=device, progress=progress, cancelled=cancelled
        )
        session = cls(
            Engine(network), tokenizer, processor, templates, parameters, model_dir.resolve().name
        )
        progress('warming up')
        session._warm_up()
        return session

    @property
    def backend(self) -> str:
        """What runs: attention, device and precision."""
        return self._engine.backend

    def reset(self) -> None:
        """Forget the cached prefix and the encoded frames."""
        self._encoded = {}
        self._engine.reset()

    def plan(self, observation: Observation) -> PlanningResult:
        """Answer the navigation prompt; a bad answer gives a reason instead of a plan."""
        clock = _StageClock()
        parts = navigation_turn(self._templates, observation)
        answer, counts = self._answer(
            parts, observation.frames, self._parameters.max_new_tokens, clock, 'decode'
        )
        text = self._tokenizer.decode(answer.token_ids)
        with clock('trajectory'):
            parsed = parse_waypoints(text)
            plan, reason = None, ''
            if isinstance(parsed, Refusal):
                reason = f'answer refused: {parsed.reason}'
            else:
                trajectory = trajectory_from_waypoints(
                    parsed.xy_base_m,
                    observation.ego.velocity_base_mps,
                    self._parameters.point_interval_s,
                )
                plan = Plan(observation.t0_ns, observation.ego, parsed.xy_base_m, trajectory)
        return PlanningResult(observation.t0_ns, plan, reason, text, clock.timings(), counts)

    def describe(
        self, observation: Observation, stop: Callable[[], bool] = lambda: False
    ) -> tuple[SceneDescription | None, StageTimings]:
        """Answer the description prompt on the same images; None when nothing was said in time.

        `stop` is asked between forwards: once it is true, what there is so far is handed over.
        """
        clock = _StageClock()
        parts = description_turn(self._templates, observation)
        answer, _ = self._answer(
            parts,
            observation.frames,
            self._parameters.description_max_tokens,
            clock,
            'describe',
            stop,
        )
        text, sections = parse_description(self._tokenizer.decode(answer.token_ids))
        if not text:
            return None, clock.timings()
        description = SceneDescription(
            observation.t0_ns,
            observation.ego.base_frame,
            text,
            sections,
            truncated=not answer.finished,
        )
        return description, clock.timings()

    def _answer(
        self,
        parts: Sequence[Part],
        frames: Sequence[CameraFrame],
        max_new_tokens: int,
        clock: '_StageClock',
        stage: str,
        stop: Callable[[], bool] = lambda: False,
    ) -> tuple[Answer, InferenceCounts]:
        """Encode what is new, prefill what is not cached, decode."""
        engine = self._engine
        features, encoded = self._encode(frames, clock)
        with clock('prefill' if stage == 'decode' else f'{stage}_prefill'):
            turn = [part.index if isinstance(part, Image) else part.text for part in parts]
            grids = [image.grid for image in features]
            prompt = user_prompt(turn, grids, self._tokenizer, engine.config)
            used = [features[part.index] for part in parts if isinstance(part, Image)]
            reused, _ = engine.prefill([prompt], [used], max_new_tokens)
        trace = Trace()
        with clock(stage):
            if self._settings is None:
                (answer,) = decode_tokens(
                    engine,
                    engine.config.eos_token_ids,
                    self._sampling,
                    max_new_tokens,
                    stop=stop,
                    trace=trace,
                )
            else:
                (answer,) = decode_blocks(
                    engine, self._settings, max_new_tokens, stop=stop, trace=trace
                )
        counts = InferenceCounts(
            vision_forwards=encoded,
            prefill_forwards=1,
            denoising_forwards=sum(trace.steps_per_block),
            commit_forwards=trace.commits,
            prompt_tokens=len(prompt),
            reused_prefix_tokens=reused,
            answer_tokens=len(answer.token_ids),
        )
        return answer, counts

    def _encode(self, frames: Sequence[CameraFrame], clock: '_StageClock'):
        """Return the features of the frames, and how many had to be encoded."""
        kept: dict[str, tuple[np.ndarray, ImageFeatures]] = {}
        encoded = 0
        for frame in frames:
            # A frame is decoded once and never written to, so the same array is the same image.
            rgb, known = self._encoded.get(frame.camera, (None, None))
            if rgb is not frame.rgb:
                with clock('preprocess'):
                    patches, grid = self._processor.patches(frame.rgb)
                with clock('vision'):
                    known = self._engine.encode_image(next(self._image_numbers), patches, grid)
                encoded += 1
            kept[frame.camera] = (frame.rgb, known)
        self._encoded = kept
        return [known for _, known in kept.values()], encoded

    def _warm_up(self) -> None:
        """Run every kind of forward once, so that the first tick does not pay for first use."""
        blank = CameraFrame('warm_up', 0, np.zeros((256, 448, 3), np.uint8))
        block = self._engine.config.block_size
        self._answer([Image(0)], [blank], 2 * block, _StageClock(), 'decode')
        self.reset()


class _StageClock:
    """Adds up wall time per stage, in the order in which stages first ran."""

    def __init__(self):
        self._stages: dict[str, int] = {}

    @contextmanager
    def __call__(self, stage: str):
        start = time.perf_counter_ns()
        try:
            yield
        finally:
            spent = time.perf_counter_ns() - start
            self._stages[stage] = self._stages.get(stage, 0) + spent

    def timings(self) -> StageTimings:
        return StageTimings(tuple(self._stages.items()))


def _device(name: str) -> torch.device:
    if name == 'auto':
        name = 'cuda' if torch.cuda.is_available() else 'cpu'
    if name == 'cuda' and not torch.cuda.is_available():
        raise ValueError('device: cuda is wanted, but torch finds no CUDA device')
    return torch.device(name)


def _dtype(name: str, device: torch.device) -> torch.dtype:
    if name == 'auto':
        name = 'float32' if device.type == 'cpu' else 'bfloat16'
    return getattr(torch, name)
