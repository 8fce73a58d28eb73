import sys
from types import SimpleNamespace

import pytest

from wamdiff_ros.runtime.device_memory import device_memory_mib


def torch_with(initialised, reserved_bytes=0):
    cuda = SimpleNamespace(
        is_initialized=lambda: initialised, memory_reserved=lambda: reserved_bytes
    )
    return SimpleNamespace(cuda=cuda)


@pytest.mark.parametrize(
    ('torch', 'mib'),
    [
        (None, None),  # not imported, and must not be for this
        (SimpleNamespace(), None),  # half imported, by another thread
        (SimpleNamespace(cuda=SimpleNamespace()), None),
        (torch_with(False), None),
        (torch_with(True, 3 * 2**20), 3.0),
    ],
)
def test_memory_is_told_once_cuda_runs_and_nothing_is_started_for_it(monkeypatch, torch, mib):
    monkeypatch.setitem(sys.modules, 'torch', torch)
    assert device_memory_mib() == mib
