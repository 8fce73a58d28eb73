"""What the model is asked: one user turn of text and images.

The words belong to a checkpoint, which must be asked as it was trained: `prompts.json` in its
folder replaces any of them. Turning parts into token ids is the tokenizer's business.
"""

import json
import math
import re
from dataclasses import dataclass, field, fields
from pathlib import Path
from string import Formatter

from ..types import Command, Observation
from .answer import WaypointForm

PLACEHOLDERS = ('command', 'position', 'velocity', 'acceleration')
_NUMBER_FORMAT = re.compile(r'\+?(?:0[1-9])?\.[0-2]f', re.ASCII)
LIMIT = 999.99  # of a number in a prompt, so that its length is bounded


class PromptError(ValueError):
    """A prompts.json was refused; the message names the file, the field and the remedy."""


@dataclass(frozen=True)
class Text:
    """A piece of plain text; it is data and never holds special tokens."""

    text: str


@dataclass(frozen=True)
class Image:
    """Image number `index` of those that are shown, from 0."""

    index: int


Part = Text | Image


@dataclass(frozen=True)
class PromptTemplates:
    """The words around images and numbers.

    Both turns begin with `lead_in` and all images, so that they share one prefix; `lead_in` is
    therefore fixed text. `navigation` and `description` may hold {command}, {position},
    {velocity} and {acceleration}: a word, and pairs such as "(8.31,-0.02)" (forward, left) in
    m, m/s and m/s^2. `commands` are the words for the navigation commands. `number_format` is how
    numbers are written, "+05.1f" for a fixed width, with which small models learn faster.
    `waypoints` is how the answer writes them: a value of `WaypointForm`.
    """

    lead_in: str = 'This is what the vehicle sees now:\n'
    navigation: str = (
        '\nNavigation command: {command}.\n'
        'Current position: {position}. Velocity: {velocity}. Acceleration: {acceleration}.\n'
        'Give the path of the vehicle over the next 4 seconds as 8 waypoints, one every '
        '0.5 seconds, written x1,y1,x2,y2,...,x8,y8 in metres, x forward and y left.'
    )
    description: str = (
        '\nDescribe in one or two sentences what matters for driving here: the road, other road '
        'users, signs and signals, and hazards.'
    )
    commands: dict[str, str] = field(
        default_factory=lambda: {command.value: command.value for command in Command}
    )
    number_format: str = '.2f'
    waypoints: str = WaypointForm.POSITIONS.value

    @classmethod
    def load(cls, model_dir: str | Path) -> 'PromptTemplates':
        """Return the checkpoint's own templates, or the defaults without a prompts.json.

        Fields that are not in the file keep their default. Raises PromptError.
        """
        path = Path(model_dir) / 'prompts.json'
        if not path.is_file():
            return cls()
        try:
            values = json.loads(path.read_text(encoding='utf-8'))
        except (ValueError, RecursionError) as error:
            raise PromptError(f'{path}: not JSON in UTF-8: {error}') from error
        if not isinstance(values, dict):
            raise PromptError(f'{path}: holds a {type(values).__name__}, wanted an object')
        known = [f.name for f in fields(cls)]
        for name, value in values.items():
            if name not in known:
                raise PromptError(f'{path}: unknown field {name!r}, known: {", ".join(known)}')
            if name == 'commands':
                _check_commands(path, value)
            elif name == 'number_format':
                _check_number_format(path, value)
            elif name == 'waypoints':
                _check_waypoints(path, value)
            else:
                _check_template(path, name, value)
        return cls(**values)

    @property
    def waypoint_form(self) -> WaypointForm:
        """How the answer writes waypoints."""
        return WaypointForm(self.waypoints)


def navigation_turn(
    templates: PromptTemplates, observation: Observation, images: int
) -> tuple[Part, ...]:
    """Ask for the trajectory of `observation`, showing so many images."""
    return _turn(templates, templates.navigation, observation, images)


def description_turn(
    templates: PromptTemplates, observation: Observation, images: int
) -> tuple[Part, ...]:
    """Ask for a description of the scene of `observation`, showing so many images."""
    return _turn(templates, templates.description, observation, images)


def _turn(
    templates: PromptTemplates, question: str, observation: Observation, images: int
) -> tuple[Part, ...]:
    ego, form = observation.ego, templates.number_format
    question = question.format(
        command=templates.commands[observation.command.value],
        position=_pair((0.0, 0.0), form),  # the base frame at t0
        velocity=_pair(ego.velocity_base_mps, form),
        acceleration=_pair(ego.acceleration_base_mps2, form),
    )
    return (Text(templates.lead_in), *map(Image, range(images)), Text(question))


def _pair(values: tuple[float, float], form: str) -> str:
    """Write "(1.00,-0.50)"; raises ValueError for values that are not finite."""
    if not all(math.isfinite(value) for value in values):
        raise ValueError(f'{values} is not finite and cannot be part of a prompt')
    # Adding zero turns -0.0 into 0.0.
    decimals = int(form[-2])
    x, y = (round(min(max(value, -LIMIT), LIMIT), decimals) + 0.0 for value in values)
    return f'({x:{form}},{y:{form}})'


def _check_commands(path: Path, words) -> None:
    wanted = {command.value for command in Command}
    if not isinstance(words, dict) or set(words) != wanted:
        raise PromptError(f'{path}: commands {words!r} must name exactly {sorted(wanted)}')
    for command, word in words.items():
        if not isinstance(word, str) or not word:
            raise PromptError(f'{path}: commands.{command} {word!r} is not a word')


def _check_number_format(path: Path, form) -> None:
    if not isinstance(form, str) or not _NUMBER_FORMAT.fullmatch(form):
        raise PromptError(f'{path}: number_format {form!r} is not like ".2f" or "+05.1f"')


def _check_waypoints(path: Path, form) -> None:
    forms = [known.value for known in WaypointForm]
    if form not in forms:
        raise PromptError(f'{path}: waypoints {form!r} is none of {", ".join(forms)}')


def _check_template(path: Path, name: str, template) -> None:
    if not isinstance(template, str):
        raise PromptError(f'{path}: {name} is a {type(template).__name__}, wanted a string')
    if name == 'lead_in':  # shared by all turns, hence not formatted
        return
    try:
        pieces = list(Formatter().parse(template))
    except ValueError as error:
        raise PromptError(f'{path}: {name}: {error}; write a plain brace twice') from error
    for _, placeholder, spec, conversion in pieces:
        if placeholder is not None and (placeholder not in PLACEHOLDERS or spec or conversion):
            raise PromptError(
                f'{path}: {name}: unknown placeholder {{{placeholder}}}, known: '
                f'{", ".join(PLACEHOLDERS)}, without format; write a plain brace twice'
            )
