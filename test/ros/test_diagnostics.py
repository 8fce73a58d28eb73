"""The verdict on the planner's health."""

import pytest
from diagnostic_msgs.msg import DiagnosticStatus

from wamdiff_ros.ros.diagnostics import Health, Latencies, RateMeter, verdict
from wamdiff_ros.types import PlanStatus

pytestmark = pytest.mark.ros

OK, WARN, ERROR = DiagnosticStatus.OK, DiagnosticStatus.WARN, DiagnosticStatus.ERROR


@pytest.mark.parametrize(
    ('health', 'level', 'message'),
    [
        (Health('unconfigured'), OK, 'unconfigured'),
        (Health('unconfigured', error='no such folder'), ERROR, 'no such folder'),
        (Health('configuring', progress='12 %'), WARN, 'loading the model: 12 %'),
        (Health('inactive'), OK, 'inactive'),
        (Health('active', reason='no frame'), WARN, 'WAITING: no frame'),
        (
            Health('active', status=PlanStatus.WAITING, reason='no frame'),
            WARN,
            'WAITING: no frame',
        ),
        (
            Health('active', status=PlanStatus.WAITING, reason='no frame', lost=True),
            ERROR,
            'LOST: no frame',
        ),
        (Health('active', status=PlanStatus.NOMINAL), OK, 'planning'),
        (Health('active', status=PlanStatus.HELD, reason='late'), WARN, 'HELD: late'),
        (
            Health('active', status=PlanStatus.FALLBACK_STOP, reason='too old'),
            ERROR,
            'FALLBACK_STOP: too old',
        ),
        (
            Health('active', status=PlanStatus.NOMINAL, input_errors=('a', 'b')),
            ERROR,
            'a; b',
        ),
        (
            Health('active', status=PlanStatus.NOMINAL, stalled='time stands still'),
            WARN,
            'time stands still',
        ),
    ],
)
def test_verdict_begins_with_the_reason(health, level, message):
    assert verdict(health) == (level, message)


def test_disabled_planner_is_a_warning_that_names_the_remedy():
    level, message = verdict(Health('active', enabled=False, status=PlanStatus.WAITING))
    assert (level, '~/enable' in message) == (WARN, True)


def test_rate_is_that_of_the_window_and_falls_to_zero():
    meter = RateMeter(window_s=3.0)
    for i in range(100):
        meter.add(i * 50_000_000)
    assert meter.rate_hz(99 * 50_000_000) == pytest.approx(20.0)
    assert meter.rate_hz(99 * 50_000_000 + 10**10) == 0.0
    assert meter.count == 100


def test_latencies_are_told_as_percentiles_of_the_newest():
    latencies = Latencies(length=100)
    assert latencies.describe() == 'none yet'
    latencies.add(10**12)
    for milliseconds in range(1, 101):
        latencies.add(milliseconds * 1_000_000)
    assert latencies.describe() == 'p50 50.5 ms, p95 95.0 ms'
