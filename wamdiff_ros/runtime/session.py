"""PlanningSession: observations in, plans and descriptions out. The node and replay both use it.

Lives in one thread, which loads it and makes every call. Plan and description are two answers to
two questions about the same images, so the second reuses the cached prefix of the first.
"""

import itertools
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from ..decoding.autoregressive import decode_tokens
from ..decoding.block_diffusion import Answer, BlockSettings, Trace, decode_blocks
from ..decoding.sampling import Sampling
from ..decoding.unmasking import Unmasking
from ..model.chat import user_prompt
from ..parameters import Parameters
from ..planning.answer import Refusal, parse_description, parse_waypoints
from ..planning.checks import broken_check
from ..planning.prompts import Image, Part, PromptTemplates, description_turn, navigation_turn
from ..planning.trajectory import trajectory_from_waypoints
from ..types import (
    CameraFrame,
    Command,
    EgoState,
    InferenceCounts,
    Observation,
    Plan,
    PlanningResult,
    SceneDescription,
    StageTimings,
)
from .engine import Engine, ImageFeatures
from .frame_window import FrameWindow
from .loaded_model import LoadedModel, load_model
from .options import EngineOptions
from .pace import Costs, DeadlinePace
from .stage_clock import StageClock

# One of the questions of planning/prompts.py, which is told how many images are shown.
Ask = Callable[[PromptTemplates, Observation, int], Sequence[Part]]
UNREAD_FILLS = 3  # in a row: this checkpoint's answers cannot be filled in at once
REMEMBERED_ANSWERS = 16  # the longest of them is how long the next one is expected to be


class PlanningSession:
    """A loaded checkpoint with its KV cache; see `load`."""

    def __init__(
        self,
        model: LoadedModel,
        parameters: Parameters,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ):
        self._model = model
        self._engine = model.engine
        self._tokenizer = model.tokenizer
        self._templates = model.templates
        self._parameters = parameters
        self._clock_ns = clock_ns
        self._costs = Costs()
        self._answer_blocks: deque[int] = deque(maxlen=REMEMBERED_ANSWERS)
        # Newest answers in a row, filled in at once, that gave no plan: now, and after warming up.
        self._unread_fills = self._unread_at_first = 0
        config = model.engine.config
        self._image_numbers = itertools.count()
        self._window = FrameWindow(config.window_frames, config.window_interval_s, self._encode)
        self._sampling = Sampling(
            parameters.temperature, parameters.top_k, parameters.top_p, parameters.seed
        )
        self._rollouts = [self._sampling] + [
            replace(
                self._sampling,
                temperature=parameters.rollout_temperature,
                seed=parameters.seed + index,
            )
            for index in range(1, parameters.rollouts)
        ]
        self._settings = None
        if config.block_size > 1:
            own, rule = BlockSettings.of(config, sampling=self._sampling), parameters.unmasking
            self._settings = replace(
                own,
                denoising_steps=parameters.denoising_steps or own.denoising_steps,
                confidence_threshold=parameters.confidence_threshold or own.confidence_threshold,
                unmasking=own.unmasking if rule == 'checkpoint' else Unmasking(rule),
            )

    @classmethod
    def load(
        cls,
        parameters: Parameters,
        *,
        progress: Callable[[str], None] = lambda text: None,
        cancelled: Callable[[], bool] = lambda: False,
        options: EngineOptions | None = None,
    ) -> 'PlanningSession':
        """Load the checkpoint that `parameters` name.

        Raises CheckpointError or LoadCancelled, and for what cannot run here QuantisationError,
        FlashInferUnavailable, TensorRtUnavailable, TensorRtError or VisionExportError.
        `options` are for measuring and tests; by default the engine's faster paths are on.
        """
        model = load_model(parameters, options, progress=progress, cancelled=cancelled)
        session = cls(model, parameters)
        progress('warming up')
        session._warm_up()
        return session

    def on_clock(self, clock_ns: Callable[[], int]) -> 'PlanningSession':
        """Return a session over the same engine with deadlines on another clock, warmed up."""
        session = PlanningSession(self._model, self._parameters, clock_ns)
        session._warm_up()
        return session

    @property
    def model_name(self) -> str:
        """The checkpoint's."""
        return self._model.name

    @property
    def engine(self) -> Engine:
        """The network and its caches, for measuring."""
        return self._engine

    @property
    def window_frames(self) -> int:
        """How many frames of each camera a prompt shows."""
        return self._engine.config.window_frames

    @property
    def backend(self) -> str:
        """What runs: attention, device and precision."""
        return self._engine.backend

    def reset(self) -> None:
        """Forget the cached prefix and the encoded frames."""
        self._window.reset()
        self._engine.reset()
        self._unread_fills = self._unread_at_first

    def show(self, observation: Observation) -> None:
        """Take the frames of a moment from which nothing is planned, for those that follow."""
        new_tokens = self._parameters.max_new_tokens
        self._prefill(navigation_turn, observation, new_tokens, StageClock(), 'prefill')

    def plan(self, observation: Observation, deadline_s: float | None = None) -> PlanningResult:
        """Answer the navigation prompt; a bad answer gives a reason instead of a plan.

        `deadline_s` is a time of time.monotonic(). What there is no time to denoise until then is
        filled in at once, which `cut_short` and the counts of the result say.
        """
        deadline_ns = None if deadline_s is None else round(deadline_s * 1e9)
        return self._plan(observation, deadline_ns)

    def _plan(self, observation: Observation, deadline_ns: int | None) -> PlanningResult:
        clock = StageClock()
        pace = None
        if deadline_ns is not None:
            pace = self._pace(deadline_ns - self._costs.estimate_ns('trajectory'))
        try:
            answers, trace, counts = self._answer(
                navigation_turn,
                observation,
                self._parameters.max_new_tokens,
                clock,
                'decode',
                pace=pace,
                samplings=self._rollouts,
            )
        except FloatingPointError as error:
            self.reset()  # or what is not finite would stay in the cache
            reason, counts = f'answer refused: {error}', InferenceCounts()
            return PlanningResult(observation.t0_ns, None, reason, '', clock.timings(), counts)
        if answers[0].finished and self._settings is not None:
            self._answer_blocks.append(len(trace.steps_per_block))
        texts = [self._tokenizer.decode(answer.token_ids) for answer in answers]
        start_ns = self._clock_ns()
        with clock('trajectory'):
            read = [
                self._read(text, answer.ended, observation)
                for text, answer in zip(texts, answers, strict=True)
            ]
            plan, reason = read[0]
            candidates = [
                other
                for other, _ in read[1:]
                if other and not broken_check(other.trajectory, other.ego, self._parameters)
            ]
        self._costs.note('trajectory', self._clock_ns() - start_ns)
        if pace is not None and pace.filled_at_once:
            self._unread_fills = 0 if plan is not None else self._unread_fills + 1
        return PlanningResult(
            observation.t0_ns,
            plan,
            reason,
            texts[0],
            clock.timings(),
            counts,
            tuple(candidates),
            trace.cut_short,
        )

    def describe(
        self, observation: Observation, stop: Callable[[], bool] = lambda: False
    ) -> tuple[SceneDescription | None, StageTimings]:
        """Answer the description prompt on the same images; None when nothing was said in time.

        `stop` is asked between forwards: once it is true, what there is so far is handed over.
        Raises FloatingPointError when the network computes NaN; then reset before going on.
        """
        clock = StageClock()
        (answer,), _, _ = self._answer(
            description_turn,
            observation,
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
        ask: Ask,
        observation: Observation,
        max_new_tokens: int,
        clock: StageClock,
        stage: str,
        stop: Callable[[], bool] = lambda: False,
        pace: DeadlinePace | None = None,
        samplings: Sequence[Sampling] = (),
    ) -> tuple[list[Answer], Trace, InferenceCounts]:
        """Encode what is new, prefill what is not cached, decode an answer per sampling."""
        engine = self._engine
        samplings = samplings or [self._sampling]
        prefill_stage = 'prefill' if stage == 'decode' else f'{stage}_prefill'
        prompt_tokens, reused, encoded = self._prefill(
            ask, observation, max_new_tokens, clock, prefill_stage, len(samplings)
        )
        trace = Trace()
        with clock(stage):
            if self._settings is None:
                answers = decode_tokens(
                    engine,
                    engine.config.eos_token_ids,
                    self._sampling,
                    max_new_tokens,
                    samplings=samplings,
                    stop=stop if pace is None else pace.is_over,
                    trace=trace,
                )
            else:
                answers = decode_blocks(
                    engine,
                    self._settings,
                    max_new_tokens,
                    samplings=samplings,
                    stop=stop,
                    pace=pace,
                    trace=trace,
                )
            if pace is not None:
                pace.end()
        counts = InferenceCounts(
            vision_forwards=encoded,
            prefill_forwards=engine.prefill_forwards,
            denoising_forwards=sum(trace.steps_per_block),
            commit_forwards=0 if engine.options.folded_commit else trace.commits,
            prompt_tokens=prompt_tokens,
            reused_prefix_tokens=reused,
            answer_tokens=len(answers[0].token_ids),
            bulk_filled_tokens=trace.bulk_filled_slots,
        )
        return answers, trace, counts

    def _prefill(
        self,
        ask: Ask,
        observation: Observation,
        max_new_tokens: int,
        clock: StageClock,
        stage: str,
        rollouts: int = 1,
    ) -> tuple[int, int, int]:
        """Put a question into the cache; return its tokens, those reused, and encoded images."""
        features, encoded = self._window.show(observation.frames, clock)
        parts = ask(self._templates, observation, len(features))
        with clock(stage):
            turn = [part.index if isinstance(part, Image) else part.text for part in parts]
            grids = [image.grid for image in features]
            prompt = user_prompt(turn, grids, self._tokenizer, self._engine.config)
            reused, _ = self._engine.prefill(
                [prompt], [features], max_new_tokens, rollouts=rollouts
            )
        return len(prompt), reused, encoded

    def _pace(self, deadline_ns: int) -> DeadlinePace:
        """Return the pace of an answer that has to be there at `deadline_ns`."""
        size = self._engine.config.block_size
        budget = -(-self._parameters.max_new_tokens // size)
        expected = max(self._answer_blocks, default=budget)
        at_once = self._unread_fills < UNREAD_FILLS
        return DeadlinePace(self._costs, self._clock_ns, deadline_ns, expected, at_once)

    def _read(self, text: str, ended: bool, observation: Observation) -> tuple[Plan | None, str]:
        """Return the plan that an answer's text holds, or None and the reason."""
        if not ended:
            # Its last number may lack digits, and would still be one.
            return None, 'answer refused: cut off, no end within max_new_tokens and the deadline'
        parsed = parse_waypoints(text, form=self._templates.waypoint_form)
        if isinstance(parsed, Refusal):
            return None, f'answer refused: {parsed.reason}'
        trajectory = trajectory_from_waypoints(
            parsed.xy_base_m,
            observation.ego.velocity_base_mps,
            self._parameters.point_interval_s,
            waypoint_noise_m=self._parameters.waypoint_noise_m,
        )
        return Plan(observation.t0_ns, observation.ego, parsed.xy_base_m, trajectory), ''

    def _encode(self, rgb: np.ndarray, clock: StageClock) -> ImageFeatures:
        with clock('preprocess'):
            patches, grid = self._model.processor.patches(rgb)
        with clock('vision'):
            return self._engine.encode_image(next(self._image_numbers), patches, grid)

    def _warm_up(self) -> None:
        """Run every kind of forward, so that no tick pays for first use and costs are known."""
        origin, ahead, still = (0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 1.0), (0.0, 0.0)
        ego = EgoState(0, '', '', origin, ahead, still, 0.0, still)
        now_ns = self._clock_ns()
        interval_ns = round(self._engine.config.window_interval_s * 1e9)
        # At ease until the window is full, in good time, and so late that the whole answer is
        # filled in at once, which also shows whether this checkpoint's answers can be read then.
        deadlines_ns = [None] * self._engine.config.window_frames
        for tick, deadline_ns in enumerate(
            (*deadlines_ns, now_ns + 10**12, now_ns + 10**12, *[now_ns] * UNREAD_FILLS)
        ):
            rgb = np.full((256, 448, 3), tick, np.uint8)
            frame = CameraFrame('warm_up', tick * interval_ns, rgb)
            self._plan(Observation(0, (frame,), ego, Command.STRAIGHT), deadline_ns)
        self._answer_blocks.clear()
        if self._unread_fills >= UNREAD_FILLS:
            self._unread_at_first = UNREAD_FILLS
        self.reset()
