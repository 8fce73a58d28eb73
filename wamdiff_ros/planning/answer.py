"""From the model's text to waypoints and to a scene description.

The text is untrusted: every string gives a value or a reason, never an exception.
"""

import json
import re
import unicodedata
from dataclasses import dataclass
from enum import Enum

import numpy as np

MAX_ANSWER_LENGTH = 2000  # 16 numbers need about 100
MAX_DESCRIPTION_LENGTH = 4000
MAX_DISTANCE_M = 200.0  # 50 m/s over 4 s
DISPLACEMENT_M = 0.1  # the unit of WaypointForm.DISPLACEMENTS

_LABEL = re.compile(r'\s*(?:answer|trajectory|waypoints)\s*[:=]', re.IGNORECASE | re.ASCII)
_NUMBER = re.compile(r'[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?')
_DISPLACEMENT = re.compile(r'[+-]?[0-9]{3}')
_NOT_FINITE = re.compile(r'[+-]?(?:nan|inf|infinity)', re.IGNORECASE | re.ASCII)
_FULL_WIDTH = str.maketrans('，；：（）［］', ',;:()[]')
_BRACKETS = {')': '(', ']': '['}
_SECTION_LINE = re.compile(r'([A-Za-z][A-Za-z0-9_]{0,39})\s*:\s*(\S.*)', re.ASCII)


class WaypointForm(Enum):
    """How an answer writes waypoints; the text is "x1,y1,x2,y2,…" in both."""

    POSITIONS = 'positions'  # metres in the base frame, as the published models write
    # Decimetres in three digits from each waypoint to the next, the first from the vehicle. Who
    # keeps their speed repeats themselves: easy for decoders that write many tokens at once.
    DISPLACEMENTS = 'displacements'


@dataclass(frozen=True, eq=False)
class Waypoints:
    """A parsed answer: `xy_base_m` is float64 [count, 2]."""

    xy_base_m: np.ndarray


@dataclass(frozen=True)
class Refusal:
    """An answer that holds no usable waypoints, and why; `reason` is ASCII."""

    reason: str


def parse_waypoints(
    text: str, count: int = 8, form: WaypointForm = WaypointForm.POSITIONS
) -> Waypoints | Refusal:
    """Read "x1,y1,x2,y2,…" as waypoints in metres of the base frame; never raises.

    Tolerated: white space, brackets around the whole or around pairs, semicolons, full-width
    punctuation, a leading "Answer:", a full stop or comma at the end. Everything else is
    refused: a plan is not guessed from half an answer.
    """
    if len(text) > MAX_ANSWER_LENGTH:
        return Refusal(f'answer of {len(text)} characters, limit {MAX_ANSWER_LENGTH}')
    plain = text.translate(_FULL_WIDTH)
    label = _LABEL.match(plain)
    plain = plain[label.end() if label else 0 :].strip().rstrip('.')
    if not _balanced(plain):
        return Refusal('brackets do not match, the answer may be cut off')
    plain = re.sub(r'[()\[\]]', ' ', plain).rstrip().removesuffix(',')
    if not plain.strip():
        return Refusal('empty answer')
    fields = [field.split() for field in re.split(r'[,;]', plain)]
    if [] in fields:
        return Refusal(f'nothing between two commas, at number {fields.index([]) + 1}')
    numbers = []
    unit_m = DISPLACEMENT_M if form is WaypointForm.DISPLACEMENTS else 1.0
    for field in (word for words in fields for word in words):
        if _NOT_FINITE.fullmatch(field):
            return Refusal(f'{_quoted(field)} is not finite')
        if not _NUMBER.fullmatch(field):
            return Refusal(f'{_quoted(field)} is not a number')
        if form is WaypointForm.DISPLACEMENTS and not _DISPLACEMENT.fullmatch(field):
            return Refusal(f'{_quoted(field)} has not three digits, the answer may be cut off')
        value = float(field) * unit_m
        # An overflow to infinity is refused here too.
        if not abs(value) <= MAX_DISTANCE_M:
            return Refusal(f'{_quoted(field)} m is farther than {MAX_DISTANCE_M:g} m')
        numbers.append(value)
    if len(numbers) != 2 * count:
        return Refusal(f'{len(numbers)} numbers, wanted {2 * count}')
    xy_base_m = np.array(numbers).reshape(count, 2)
    if form is WaypointForm.DISPLACEMENTS:
        xy_base_m = xy_base_m.cumsum(axis=0).round(3)
        farthest_m = np.abs(xy_base_m).max()
        if farthest_m > MAX_DISTANCE_M:
            return Refusal(f'{farthest_m:.1f} m in all is farther than {MAX_DISTANCE_M:g} m')
    return Waypoints(xy_base_m)


def format_waypoints(xy_base_m: np.ndarray) -> str:
    """Write waypoints [N, 2] in metres as the model does, "x1,y1,…" with two decimals."""
    xy_base_m = np.asarray(xy_base_m, dtype=np.float64)
    if xy_base_m.ndim != 2 or xy_base_m.shape[1] != 2 or not np.isfinite(xy_base_m).all():
        raise ValueError(f'waypoints {xy_base_m!r} are not finite [N, 2] metres')
    # Adding zero turns -0.0 into 0.0.
    return ','.join(f'{value:.2f}' for value in np.round(xy_base_m, 2).ravel() + 0.0)


def parse_description(text: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Return (clean text, named sections); never raises.

    Control characters are dropped and the length is bounded. A JSON object gives one section
    per key; so do lines that are all "name: text". Free text has no sections.
    """
    clean = _clean(text[:MAX_DESCRIPTION_LENGTH]).strip()
    try:
        content = json.loads(clean)
    except (ValueError, RecursionError):
        content = None
    if isinstance(content, dict) and all(isinstance(value, str) for value in content.values()):
        return clean, tuple((_clean(name), _clean(value)) for name, value in content.items())
    lines = [line.strip() for line in clean.split('\n') if line.strip()]
    sections = tuple((m[1], m[2]) for line in lines if (m := _SECTION_LINE.fullmatch(line)))
    return clean, sections if len(sections) == len(lines) else ()


def _balanced(text: str) -> bool:
    is_open = []
    for letter in text:
        if letter in '([':
            is_open.append(letter)
        elif letter in ')]' and (not is_open or is_open.pop() != _BRACKETS[letter]):
            return False
    return not is_open


def _quoted(field: str) -> str:
    return ascii(field if len(field) <= 20 else field[:20] + '...')


def _clean(text: str) -> str:
    """Drop what is not for reading: control and format characters, lone surrogates."""
    text = re.sub(r'\r\n?', '\n', text).replace('\t', ' ')
    return ''.join(c for c in text if c == '\n' or not unicodedata.category(c).startswith('C'))
