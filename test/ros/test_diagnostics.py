"""The verdict on the planner's health."""

import pytest
from diagnostic_msgs.msg import DiagnosticStatus

from wamdiff_ros.ros.diagnostics import Health, Latencies, RateMeter, verdict
from wamdiff_ros.ros.tick_tally import TickTally
from wamdiff_ros.types import PlanStatus

pytestmark = pytest.mark.ros

OK, WARN, ERROR = DiagnosticStatus.OK, DiagnosticStatus.WARN, DiagnosticStatus.ERROR


def active(nominal=0, held=0, stop=0, waiting=0, late=0, slept=0, **more):
    """The health of an active node after so many ticks of each status."""
    tally = TickTally()
    statuses = [PlanStatus.NOMINAL] * nominal + [PlanStatus.HELD] * held
    statuses += [PlanStatus.FALLBACK_STOP] * stop + [PlanStatus.WAITING] * waiting
    for status in statuses:
        tally.add(status, 'no frame', is_late=tally.late < late)
    tally.slept = slept
    return Health('active', tally=tally, deadline_s=0.08, **more)


@pytest.mark.parametrize(
    ('health', 'level', 'message'),
    [
        (Health('unconfigured'), OK, 'unconfigured'),
        (Health('unconfigured', error='no such folder'), ERROR, 'no such folder'),
        (Health('configuring', progress='12 %'), WARN, 'loading the model: 12 %'),
        (Health('inactive'), OK, 'inactive'),
        (active(), WARN, 'WAITING: no tick yet'),
        (active(waiting=10), WARN, 'WAITING: no frame'),
        (active(waiting=2, nominal=8), WARN, 'WAITING in 2 of 10 ticks: no frame'),
        (active(waiting=10, lost=True), ERROR, 'LOST: no frame'),
        (active(nominal=10), OK, 'planning'),
        (active(held=1), WARN, 'HELD: no frame'),  # one tick a second
        (active(held=9, nominal=1), WARN, 'HELD in 9 of 10 ticks: no frame'),
        (active(held=2, nominal=8), WARN, 'HELD in 2 of 10 ticks: no frame'),
        (active(held=1, nominal=9), OK, 'planning'),
        (active(stop=10), ERROR, 'FALLBACK_STOP: no frame'),
        (active(stop=1, held=7, nominal=2), ERROR, 'FALLBACK_STOP in 1 of 10 ticks: no frame'),
        (active(nominal=10, stalled='time stands still'), WARN, 'time stands still'),
        (
            active(nominal=7, slept=3),
            WARN,
            '3 grid instants passed without a tick; is the machine busy?',
        ),
        (active(nominal=9, slept=1), OK, 'planning'),
    ],
)
def test_verdict_begins_with_the_reason(health, level, message):
    assert verdict(health) == (level, message)


def test_a_slow_model_is_a_warning_while_ticks_are_late():
    told = 'latency p95 90 ms is above deadline_s, 80 ms'
    assert verdict(active(9, held=1, late=1, latency_p95_s=0.09)) == (WARN, told)
    assert verdict(active(9, held=1, late=0, latency_p95_s=0.09)) == (OK, 'planning')
    assert verdict(active(9, held=1, late=1, latency_p95_s=0.07)) == (OK, 'planning')


def test_dropped_messages_are_a_warning_as_long_as_there_are_plans():
    dropped = ('/camera/front/image: JPEG is truncated or corrupt',)
    assert verdict(active(nominal=10, dropped=dropped)) == (WARN, dropped[0])
    assert verdict(active(stop=10, dropped=dropped)) == (
        ERROR,
        f'FALLBACK_STOP: no frame; {dropped[0]}',
    )


def test_what_keeps_an_input_away_is_an_error_and_comes_first():
    level, message = verdict(active(waiting=10, obstacles=('a', 'b'), dropped=('c',)))
    assert (level, message) == (ERROR, 'a; b; WAITING: no frame; c')
    assert verdict(active(nominal=10, obstacles=('a',))) == (ERROR, 'a')


def test_the_tally_of_ticks_in_words():
    assert active(nominal=8, held=2, late=1).tally.describe() == '8 NOMINAL, 2 HELD, 1 late'
    assert TickTally().describe() == '0 late'


def test_disabled_planner_is_a_warning_that_names_the_remedy():
    level, message = verdict(active(waiting=10, enabled=False))
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
    assert (latencies.describe(), latencies.p95_s()) == ('none yet', 0.0)
    latencies.add(10**12)
    for milliseconds in range(1, 101):
        latencies.add(milliseconds * 1_000_000)
    assert latencies.describe() == 'p50 50.5 ms, p95 95.0 ms'
    assert latencies.p95_s() == pytest.approx(0.095, abs=1e-4)
