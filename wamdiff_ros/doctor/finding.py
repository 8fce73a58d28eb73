"""What one check found: a level, a sentence, and what to do about it."""

from dataclasses import dataclass
from enum import Enum


class Level(Enum):
    """How bad it is."""

    OK = 'OK'
    WARN = 'WARN'  # the planner runs, but something will be slow, lost or missing
    FAIL = 'FAIL'  # the planner does not run


@dataclass(frozen=True)
class Finding:
    """One line of the doctor's report."""

    check: str
    level: Level
    words: str
    remedy: str = ''  # empty when there is nothing to do

    def __post_init__(self):
        if (self.level is Level.OK) != (not self.remedy):
            raise ValueError(f'{self.check}: a finding has a remedy exactly if it is not OK')


def ok(check: str, words: str) -> Finding:
    """Return a finding that asks for nothing."""
    return Finding(check, Level.OK, words)


def warn(check: str, words: str, remedy: str) -> Finding:
    """Return a finding that the planner runs in spite of."""
    return Finding(check, Level.WARN, words, remedy)


def fail(check: str, words: str, remedy: str) -> Finding:
    """Return a finding that keeps the planner from running."""
    return Finding(check, Level.FAIL, words, remedy)
