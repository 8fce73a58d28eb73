"""Where the time of an answer goes, operator by operator."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.profiler import ProfilerActivity

SHOWN = 12


@dataclass(frozen=True)
class Operator:
    """One operator of an answer, without what it calls."""

    name: str
    calls: int
    share: float  # of the time of all operators


def profile(run: Callable[[], object], device: torch.device) -> list[Operator]:
    """Return the operators that took most, the first one most; `run` runs twice."""
    activities = [ProfilerActivity.CPU]
    if device.type == 'cuda':
        activities.append(ProfilerActivity.CUDA)
    run()
    with torch.profiler.profile(activities=activities) as recorded:
        run()
    events = recorded.key_averages()
    attribute = 'self_device_time_total' if device.type == 'cuda' else 'self_cpu_time_total'
    everything = sum(getattr(event, attribute) for event in events)
    events = sorted(events, key=lambda event: -getattr(event, attribute))
    return [
        Operator(event.key, event.count, getattr(event, attribute) / everything)
        for event in events[:SHOWN]
    ]
