"""Several contenders take turns, so that whatever else the machine does slows all of them alike.

Only quotients of times that were taken like this are worth quoting from a machine that is not
quiet; the times themselves are not.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import numpy as np
from tqdm import tqdm

Result = TypeVar('Result')


def take_turns(
    contenders: Mapping[str, Callable[[], Result]], rounds: int, what: str = ''
) -> dict[str, list[Result]]:
    """Call every contender once per round, another one first each time; the first call is free.

    Returns the results of each, `rounds` of them.
    """
    names = list(contenders)
    results: dict[str, list[Result]] = {name: [] for name in names}
    with tqdm(
        total=len(names) * (rounds + 1), desc=what or 'measuring', unit='run', disable=None,
        leave=False,
    ) as bar:  # fmt: skip
        for name in names:
            contenders[name]()  # pays for first use
            bar.update()
        for turn in range(rounds):
            for place in range(len(names)):
                name = names[(place + turn) % len(names)]
                results[name].append(contenders[name]())
                bar.update()
    return results


def median_s(seconds: Sequence[float]) -> float:
    """Return the median, as every time that is reported."""
    return float(np.median(seconds))
