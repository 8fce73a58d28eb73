"""What is asked: real pictures of the driving world, or tokens and patches of a given number."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..model.chat import Prompt, prompt_from_ids
from ..model.config import ModelConfig

if TYPE_CHECKING:  # the world is needed only for its pictures
    from ..types import Observation


@dataclass(frozen=True, eq=False)
class Picture:
    """One image as the vision tower takes it."""

    patches: np.ndarray  # float32 [p, dim]
    grid: tuple[int, int, int]  # time, height, width in patches


@dataclass(frozen=True, eq=False)
class Question:
    """A prompt about images, and a second one about the same images."""

    prompt: Prompt
    second: Prompt | None
    images: tuple[Picture, ...]


def made_up_question(
    config: ModelConfig,
    *,
    text_tokens: int,
    images: int = 1,
    grid: tuple[int, int, int] = (1, 16, 32),
    seed: int = 0,
) -> Question:
    """Return a question of `text_tokens` arbitrary tokens behind `images` noisy images.

    For times that do not depend on what is said: fixed numbers of denoising steps.
    """
    random = np.random.default_rng(seed)
    vision = config.vision
    size = vision.in_channels * vision.temporal_patch_size * vision.patch_size**2
    pictures = tuple(
        Picture(random.standard_normal((grid[1] * grid[2], size), np.float32), grid)
        for _ in range(images)
    )
    placeholders = grid[1] * grid[2] // vision.spatial_merge_size**2
    image = [config.vision_start_token_id, *[config.image_token_id] * placeholders]
    image.append(config.vision_end_token_id)
    grids = [grid] * images

    def prompt(tokens: int) -> Prompt:
        words = _words(config, tokens, random)
        return prompt_from_ids([*image * images, *words], grids, config)

    return Question(prompt(text_tokens), prompt(max(1, text_tokens // 2)), pictures)


def _words(config: ModelConfig, count: int, random: np.random.Generator) -> list[int]:
    """Return token ids that are no control tokens."""
    highest = min(config.control_ids)
    return random.integers(0, highest, count).tolist()


def world_questions(model_dir, seeds: Sequence[int]) -> list[Question]:
    """Return the navigation question, and the description's, about pictures of the driving world.

    One per seed, ten seconds into the expert's drive. Needs requirements/simulation.txt.
    """
    from ..model.chat import user_prompt
    from ..model.config import load_config
    from ..model.image_processor import ImageProcessor
    from ..model.tokenizer import Tokenizer
    from ..planning.prompts import Image, PromptTemplates, description_turn, navigation_turn

    config = load_config(model_dir)
    tokenizer = Tokenizer.load(model_dir, config)
    processor = ImageProcessor.load(model_dir, config.vision)
    templates = PromptTemplates.load(model_dir)
    questions = []
    for seed in seeds:
        seen = observe(seed)
        pictures = tuple(Picture(*processor.patches(frame.rgb)) for frame in seen.frames)
        grids = [picture.grid for picture in pictures]
        prompts = [
            user_prompt(
                [part.index if isinstance(part, Image) else part.text for part in turn],
                grids, tokenizer, config,
            )
            for turn in (
                navigation_turn(templates, seen, len(grids)),
                description_turn(templates, seen, len(grids)),
            )
        ]  # fmt: skip
        questions.append(Question(*prompts, pictures))
    return questions


def observe(seed: int, seconds: float = 10.0) -> 'Observation':
    """Return what the front camera sees after the expert has driven for some seconds."""
    from ..simulation.cameras import CAMERAS
    from ..simulation.expert import Expert
    from ..simulation.renderer import Renderer
    from ..simulation.world import World
    from ..types import CameraFrame, Observation

    world, expert = World(seed), Expert()
    while world.time_s < seconds:
        world.step(expert.control(world))
    stamp_ns = round(world.time_s * 1e9)
    with Renderer(world.scene, {'front': CAMERAS['front']}) as renderer:
        frame = CameraFrame('front', stamp_ns, renderer.render(world.view(), 'front'))
    return Observation(stamp_ns, (frame,), world.ego_state(stamp_ns), world.command())
