"""Numbers on a command line: types for argparse that refuse what an option cannot be."""

import argparse


def positive(text: str) -> float:
    """Return a finite number above 0."""
    value = float(text)
    if not 0 < value < float('inf'):
        raise argparse.ArgumentTypeError(f'{text} is not above 0')
    return value


def not_negative(text: str) -> float:
    """Return a finite number, 0 or more."""
    value = float(text)
    if not 0 <= value < float('inf'):
        raise argparse.ArgumentTypeError(f'{text} is below 0')
    return value


def whole(text: str) -> int:
    """Return a whole number, 0 or more."""
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f'{text} is negative')
    return value


def count(text: str) -> int:
    """Return a whole number above 0."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f'{text} is not above 0')
    return value
