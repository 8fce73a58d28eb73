"""What a record teaches: a question, asked as the node asks it, and the answer in its form."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ..planning.answer import DISPLACEMENT_M, WaypointForm, parse_description
from ..planning.prompts import Image, PromptTemplates, description_turn, navigation_turn
from .records import OBJECTS, PLACEHOLDER, ConversationRecord, DrivingRecord, Record

SECTIONS = ('critical_objects', 'longitudinal', 'lateral', 'explanation')


@dataclass(frozen=True)
class Conversation:
    """What a model is asked and should answer.

    `parts` are those of model/chat.py: a string is text, an integer the index of an image.
    `images` are encoded, see `decode_image`.
    """

    images: tuple[bytes, ...]
    parts: tuple[str | int, ...]
    answer: str


def conversations_of(
    record: Record,
    templates: PromptTemplates,
    which: Literal['planning', 'description'],
    frames: int = 1,
) -> Conversation:
    """Return the conversation that `record` teaches, asked as the planner node asks.

    It shows the newest so many `frames` of each camera. A ConversationRecord has only its own
    question and images, so there neither makes a difference.
    """
    images = tuple(record.images.values())
    if isinstance(record, ConversationRecord):
        return Conversation(images, _split_question(record.question), record.answer)
    images = tuple(images[place] for place in record.shown(frames))
    observation = record.observation(decode=False)
    if which == 'planning':
        turn = navigation_turn(templates, observation, len(images))
        answer = write_waypoints(record.waypoints_base_m, templates.waypoint_form)
    elif which == 'description':
        turn = description_turn(templates, observation, len(images))
        answer = format_description(record)
    else:
        raise ValueError(f'which is {which!r}, wanted "planning" or "description"')
    parts = tuple(part.index if isinstance(part, Image) else part.text for part in turn)
    return Conversation(images, parts, answer)


def write_waypoints(waypoints_base_m: np.ndarray, form: WaypointForm) -> str:
    """Write waypoints [8, 2] as the nano models answer. Raises ValueError as those below do."""
    if form is WaypointForm.DISPLACEMENTS:
        return write_displacements(waypoints_base_m)
    return write_fixed_width(waypoints_base_m)


def write_displacements(waypoints_base_m: np.ndarray) -> str:
    """Write waypoints [8, 2] as "052,+001,+053,…": decimetres from each to the next.

    Each is rounded from where the ones before it end, so that errors do not add up. These are 63
    tokens, with the end two blocks of 32, and each waypoint has the same slots. Raises ValueError
    where a number has no place: nobody starts backwards, or goes farther than 99.9 m in 0.5 s.
    """
    numbers, there = [], np.zeros(2)
    for waypoint in np.asarray(waypoints_base_m, np.float64):
        step = np.round((waypoint - there) / DISPLACEMENT_M) + 0.0
        # A vehicle at rest that rounds to a little behind itself stands still.
        if step[0] < 0 and np.abs(waypoint).max() < 0.5:
            step[0] = 0.0
        if not (np.abs(step) < 1000).all() or (not numbers and step[0] < 0):
            raise ValueError(f'a step of {step.tolist()} dm does not fit "ddd,+ddd,…"')
        there = there + step * DISPLACEMENT_M
        numbers += [f'{number:+04.0f}' for number in step]
    return ','.join(numbers)[1:]


def write_fixed_width(waypoints_base_m: np.ndarray) -> str:
    """Write waypoints [8, 2] as "05.20,+00.10,…": 103 characters, so that each has its own slot.

    Rounded to 0.1 m: nano models cannot do better, and noise in the last digit only slows them.
    Raises ValueError where a number has no place: the nano models neither reverse nor look
    farther than 99.9 m.
    """
    pairs = _rounded(waypoints_base_m)
    if not _fits(pairs):
        raise ValueError(f'waypoints {pairs.tolist()} do not fit "dd.dd,+dd.dd"')
    return ','.join(f'{x:05.2f},{y:+06.2f}' for x, y in pairs)


def fits_fixed_width(waypoints_base_m: np.ndarray) -> bool:
    """Return whether `write_fixed_width` can write these waypoints."""
    return _fits(_rounded(waypoints_base_m))


def _rounded(waypoints_base_m: np.ndarray) -> np.ndarray:
    pairs = np.round(np.asarray(waypoints_base_m, dtype=np.float64), 1) + 0.0
    # A vehicle at rest that rounds to a little behind itself stands still.
    pairs[:, 0] = np.where((pairs[:, 0] < 0.0) & (pairs[:, 0] > -0.5), 0.0, pairs[:, 0])
    return pairs


def _fits(pairs: np.ndarray) -> bool:
    ahead, aside = pairs[:, 0], np.abs(pairs[:, 1])
    return bool(((ahead >= 0.0) & (ahead < 100.0) & (aside < 100.0)).all())


def format_description(record: DrivingRecord) -> str:
    """Write the description as lines "section: text" (planning/answer.py reads them back).

    Fields of a fixed length and order come first, so that a block decoder always finds them in
    the same places; the free words of the explanation come last.
    """
    return '\n'.join(
        (
            f'critical_objects: {_format_objects(record.objects)}',
            f'longitudinal: {record.longitudinal}',
            f'lateral: {record.lateral}',
            f'explanation: {record.explanation}',
        )
    )


@dataclass(frozen=True)
class Description:
    """What `format_description` wrote."""

    objects: dict[str, bool]
    longitudinal: str
    lateral: str
    explanation: str


def read_description(text: str) -> Description | None:
    """Read what `format_description` wrote; None when anything is missing or out of order."""
    sections = parse_description(text)[1]
    if tuple(name for name, _ in sections) != SECTIONS:
        return None
    objects = {}
    words = dict(sections)
    for field in words['critical_objects'].split(', '):
        name, _, said = field.partition(' ')
        if said not in ('yes', 'no'):
            return None
        objects[name] = said == 'yes'
    if tuple(objects) != OBJECTS:
        return None
    return Description(objects, words['longitudinal'], words['lateral'], words['explanation'])


def corpus(templates: PromptTemplates, wordings: Iterable[str]) -> Iterator[str]:
    """Yield all fixed words of questions and answers, for training a tokenizer.

    `wordings` are the texts of explanations and manoeuvres: WORDINGS of simulation/truth.py.
    """
    yield templates.lead_in
    yield from templates.commands.values()
    yield from (templates.navigation, templates.description)
    for said in (False, True):
        yield f'critical_objects: {_format_objects(dict.fromkeys(OBJECTS, said))}\n'
    # As they stand in an answer: a tokenizer takes a word with the space before it.
    yield from (f'{name}: {words}\n' for words in wordings for name in SECTIONS[1:])


def _split_question(question: str) -> tuple[str | int, ...]:
    parts: list[str | int] = []
    for index, text in enumerate(question.split(PLACEHOLDER)):
        parts += [index - 1, text] if index else [text]
    return tuple(part for part in parts if part != '')


def _format_objects(objects: Mapping[str, bool]) -> str:
    return ', '.join(f'{name} {"yes" if objects[name] else "no"}' for name in OBJECTS)
