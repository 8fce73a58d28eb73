"""Numbers that begin wrongly, and how to end them best.

Decoding writes the digits of a number in turn. Once it has written the 4 of what should have been
38.2, an 8 makes it worse: the nearest number that begins so is 40.0. A model that has only seen
right first digits does not know. So some numbers are shown with the first digits of another one
near by, and what is learnt then is the end of the nearest number that begins like that: a dynamic
oracle, as Goldberg and Nivre (COLING 2012) have it for parsers.
"""

import re
from collections.abc import Sequence

import numpy as np

from ..planning.answer import DISPLACEMENT_M

# The waypoints of `records.write_waypoints`: x and y in turn, every half second, as positions in
# metres or as displacements in decimetres.
NUMBER = re.compile(r'[+-]?[0-9.]+')
ANSWER = re.compile(
    r'\d\d\.\d\d,[+-]\d\d\.\d\d(,\d\d\.\d\d,[+-]\d\d\.\d\d)*'
    r'|\d{3}(,[+-]\d{3})+'
)
INTERVAL_S = 0.5
ACROSS = 1 / 3  # of the error along


class Slips:
    """Lets some of the numbers in noisy blocks begin wrongly."""

    def __init__(self, token_texts: Sequence[str], error_mps: float):
        """token_texts: of the vocabulary; error_mps: standard deviation, grows with the time."""
        self._texts, self._error_mps = token_texts, error_mps
        self._ids = {text: token for token, text in enumerate(token_texts)}

    def add(
        self, answer: np.ndarray, masked: np.ndarray, random: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return which tokens of a filled answer to show and which to learn; all [blocks, size].

        `masked` says which will be hidden. Nothing changes in answers without waypoints, in
        numbers across two blocks, and in those whose last digits are shown before the first.
        """
        shown, labels = answer.copy(), answer.copy()
        texts = [self._texts[token] for token in answer.reshape(-1)]
        text = ''.join(texts)
        if not ANSWER.fullmatch(text):
            return shown, labels
        token_of = np.arange(len(texts)).repeat([len(t) for t in texts])
        block_of, hidden = token_of // answer.shape[1], masked.reshape(-1)[token_of]
        after, best = list(text), list(text)
        for index, match in enumerate(NUMBER.finditer(text)):
            first, end = match.span()
            digits = [place for place in range(first, end) if text[place] != '.']
            begun = [place for place in digits if not hidden[place]]
            one_block = block_of[first] == block_of[end - 1]
            if not one_block or not 0 < len(begun) < len(digits) or begun != digits[: len(begun)]:
                continue
            sigma_m = self._error_mps * INTERVAL_S * (ACROSS if index % 2 else 1)
            if '.' in match[0]:  # a position's error grows with the time
                sigma_m *= index // 2 + 1
            begins = _near(match[0], random.normal(0.0, sigma_m))[: begun[-1] + 1 - first]
            if not match[0].startswith(begins):
                after[first : first + len(begins)] = begins
                best[first:end] = nearest(begins, match[0])
        for tokens, characters in ((shown, after), (labels, best)):
            flat, start = tokens.reshape(-1), 0
            for place, old in enumerate(texts):
                new = ''.join(characters[start : start + len(old)])
                start += len(old)
                if new != old:
                    flat[place] = self._ids[new]
        return shown, labels


def nearest(begins: str, truth: str) -> str:
    """Return the number nearest to `truth` that begins so, written like it."""
    open_places = truth[len(begins) :]
    ends = (''.join('.' if c == '.' else digit for c in open_places) for digit in '09')
    numbers = [begins + end for end in ends]
    if '.' in truth:  # the last digit of a position is always 0
        numbers = [number[:-1] + '0' for number in numbers]
    return min(numbers, key=lambda number: abs(float(number) - float(truth)))


def _near(number: str, error_m: float) -> str:
    """Write the number that is so far away, in the same form."""
    whole, _, fraction = number.partition('.')
    unit_m = 1.0 if fraction else DISPLACEMENT_M
    signed, tenths = number[0] in '+-', 1 if fraction else 0
    value = round(float(number) + error_m / unit_m, tenths) + 0.0  # no -0.0
    most = 10.0 ** len(whole.lstrip('+-')) - 0.1**tenths
    value = min(max(value, -most if signed else 0.0), most)
    return f'{value:{"+" if signed else ""}0{len(number)}.{len(fraction)}f}'
