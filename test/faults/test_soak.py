"""When a long run counts as growing."""

import numpy as np
import pytest
from faults.soak import COUNTED, complaints_about, growth


def run(seconds, memory_mib, **counts):
    """Rows with noise, as of a process that allocates and frees."""
    noise = np.random.default_rng(3).normal(0.0, 1.0, seconds)
    return [
        {
            'time_s': float(i),
            'memory_mib': memory_mib(i) + noise[i],
            'plans': 10,
            **{name: counts.get(name, lambda i: 20)(i) for name in COUNTED},
        }
        for i in range(seconds)
    ]


@pytest.mark.parametrize(
    'memory_mib',
    [
        lambda i: 300.0,
        lambda i: 300.0 if i > 60 else 200.0 + 100 * i / 60,  # loads at first
        lambda i: 300.0 + i % 50,  # garbage that is collected
        lambda i: 340.0 - i / 20,
    ],
)
def test_flat_memory_is_none_however_noisy(memory_mib):
    assert complaints_about(run(600, memory_mib)) == []


@pytest.mark.parametrize('seconds', [600, 3600])
def test_a_leak_of_two_kilobytes_a_tick_is_found(seconds):
    (complaint,) = complaints_about(run(seconds, lambda i: 300.0 + 0.02 * i))
    assert complaint.startswith('memory grows by 7')  # 72 MiB an hour
    found = growth(range(seconds), [300.0 + 0.02 * i for i in range(seconds)])
    assert found.mib_per_hour == pytest.approx(72.0)


@pytest.mark.parametrize('name', COUNTED)
def test_whatever_is_counted_must_not_grow(name):
    rows = run(600, lambda i: 300.0, **{name: lambda i: 20 + i // 200})
    assert complaints_about(rows) == [f'{name} went from 21 to 22']


def test_a_node_that_no_longer_plans_has_not_passed():
    rows = run(600, lambda i: 300.0)
    for row in rows[400:]:
        row['plans'] = 0
    assert complaints_about(rows) == ['nothing was planned in the last quarter']
