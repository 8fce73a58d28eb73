"""One fault: what happens, and within which time planning must be back after it."""

from collections.abc import Callable
from dataclasses import dataclass

FAULTS = {}  # by name, in the order in which they are declared


@dataclass(frozen=True)
class Fault:
    """`happen(scene)` begins the fault, waits until it has shown, and ends it."""

    name: str
    description: str
    happen: Callable
    limit_s: float
    scene: tuple[tuple[str, object], ...]  # keyword arguments of the Scene that it needs


def fault(limit_s, **scene):
    """Declare a function as a fault; its name and its docstring become the fault's."""

    def declare(happen):
        name = happen.__name__
        FAULTS[name] = Fault(
            name, happen.__doc__.strip(), happen, limit_s, tuple(sorted(scene.items()))
        )
        return happen

    return declare
