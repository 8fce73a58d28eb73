"""What answering took, and the clock that it is taken with."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Run:
    """One answer from a cold cache, or the sum of several. Times in seconds."""

    vision_s: float  # pictures to image tokens
    prefill_s: float  # the prompt; `transformers` has its vision in here
    decode_s: float
    tokens: int  # of the answer, with the end-of-sequence token
    forwards: int  # of the decoder
    answer: tuple[int, ...]  # token ids
    second_prefill_s: float | None = None  # of another question about the same images

    @property
    def tokens_per_s(self) -> float:
        """Tokens per second of the decoder."""
        return self.tokens / self.decode_s


def total(runs: Sequence[Run]) -> Run:
    """Return the sum of several answers."""
    seconds = [run.second_prefill_s for run in runs]
    return Run(
        vision_s=sum(run.vision_s for run in runs),
        prefill_s=sum(run.prefill_s for run in runs),
        decode_s=sum(run.decode_s for run in runs),
        tokens=sum(run.tokens for run in runs),
        forwards=sum(run.forwards for run in runs),
        answer=tuple(token for run in runs for token in run.answer),
        second_prefill_s=None if None in seconds else sum(seconds),
    )


class Clock:
    """Seconds between laps, when the device has done what it was asked to do."""

    def __init__(self, device: torch.device):
        self._device = device
        self._last = self._now()

    def lap(self) -> float:
        """Return the seconds since the last lap."""
        last, self._last = self._last, self._now()
        return self._last - last

    def _now(self) -> float:
        synchronise(self._device)
        return time.perf_counter()


def synchronise(device: torch.device) -> None:
    """Wait for the device before a clock is read."""
    if device.type == 'cuda':
        torch.cuda.synchronize(device)
