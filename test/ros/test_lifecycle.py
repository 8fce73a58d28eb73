"""Configure, activate and back: the node answers meanwhile, and every failure has its reason."""

import signal

import pytest
from planner_bench import PlannerProcess
from wamdiff_ros.msg import PlannerStatus

pytestmark = pytest.mark.ros


@pytest.fixture(scope='module')
def manual(bench, tmp_path_factory):
    """A node that waits for its transitions, with one value refused from the start."""
    planner = PlannerProcess(tmp_path_factory.mktemp('planner'), '-p', 'rate_hz:=500.0')
    yield planner
    assert planner.end() == 0, planner.output()
    assert 'Traceback' not in planner.output()


# The tests of this file follow the node's life, in this order.


def test_refused_value_fails_configure_with_its_reason_and_the_node_stays_up(bench, manual):
    assert not bench.transition('configure')
    assert bench.state() == 'unconfigured'
    bench.next_diagnosis(
        lambda d: d.level == d.ERROR and 'rate_hz: 500.0 is outside 0.1 … 50.0' in d.message,
        'the reason',
    )


def test_setting_a_good_value_mends_it(bench, manual):
    result = bench.set_parameters(rate_hz=10)  # a whole number will do
    assert result.successful, result.reason
    assert bench.get_parameter('rate_hz') == 10


@pytest.mark.parametrize(
    ('name', 'value', 'reason'),
    [
        (
            'unmasking',
            'wild',
            "unmasking: 'wild' is not one of checkpoint, dynamic",
        ),
        ('cameras', ['front', 'front'], "cameras: ['front', 'front'] names a camera twice"),
        ('deadline_s', 0.5, 'deadline_s: 0.5 s is longer than one period'),
        ('rate_hz', 'fast', "rate_hz: 'fast' is a str, wanted a float"),
        ('camera__front__transport', 'usb', "camera.front.transport: 'usb' is not one of"),
        ('rate_hz', 99.0, '99.0'),
    ],
)
def test_bad_value_is_refused_with_the_reason(bench, manual, name, value, reason):
    result = bench.set_parameters(**{name: value})
    assert not result.successful
    assert reason in result.reason


def test_camera_list_brings_the_cameras_parameters(bench, manual):
    assert bench.set_parameters(cameras=['front', 'left']).successful
    bench.wait(lambda: bench.get_parameter('camera.left.topic'), 'the new parameters')
    assert bench.get_parameter('camera.left.topic') == 'camera/left/image'
    assert bench.set_parameters(camera__left__topic='/elsewhere').successful
    assert bench.set_parameters(cameras=['front']).successful
    bench.wait(lambda: not bench.get_parameter('camera.left.topic'), 'their end')


def test_transition_that_the_state_does_not_know_is_refused(bench, manual):
    assert not bench.transition('activate')
    assert "transition 'activate' refused in 'unconfigured'" in manual.output()
    assert bench.state() == 'unconfigured'


def test_topic_that_is_no_topic_name_fails_configure(bench, manual):
    assert bench.set_parameters(camera__front__topic='front camera').successful
    assert not bench.transition('configure')
    assert "camera.front.topic: 'front camera' is not a topic name" in manual.output()
    assert bench.set_parameters(camera__front__topic='camera/front/image').successful


def test_load_that_fails_says_why_until_it_succeeds(bench, manual):
    manual.steer(load_error='model.safetensors: no tensor lm_head.weight')
    assert not bench.transition('configure')
    assert bench.state() == 'unconfigured'
    for _ in range(2):
        bench.next_diagnosis(
            lambda d: d.level == d.ERROR and 'no tensor lm_head.weight' in d.message, 'the reason'
        )
    manual.steer()


def test_node_answers_while_it_loads_and_refuses_a_second_transition(bench, manual):
    manual.steer(load_s=1e9)
    configured = bench.transition_async('configure')
    diagnosis = bench.next_diagnosis(
        lambda d: d.level == d.WARN and 'loading the model: pretending' in d.message, 'progress'
    )
    assert float(bench.diagnostic_values(diagnosis)['memory_mib']) > 10
    assert bench.state() == 'configuring'
    assert bench.get_parameter('rate_hz') == 10
    assert not bench.transition('configure')
    assert not configured.done()
    manual.steer()
    assert bench.wait_for(configured, 'configured').success
    assert bench.state() == 'inactive'


def test_parameters_cannot_be_set_once_configured(bench, manual):
    result = bench.set_parameters(rate_hz=20.0)
    assert not result.successful
    assert result.reason == (
        'rate_hz: takes effect at configure, so it cannot be set while inactive; clean up first'
    )


def test_inactive_node_publishes_nothing_and_has_nothing_to_reset(bench, manual):
    response = bench.reset()
    assert not response.success
    assert response.message == 'nothing to reset while inactive'
    assert bench.heard['status'] == []


def test_five_lives_leave_no_thread_behind(bench, manual):
    counts = []
    for _ in range(5):
        assert bench.transition('activate')
        bench.next_status(lambda m: m.state == PlannerStatus.NOMINAL, 'planning')
        assert bench.transition('deactivate')
        assert bench.state() == 'inactive'
        assert bench.transition('cleanup')
        counts.append(_threads(manual))
        # What the first two lives leave is DDS's; the thread of a transition ends a little later.
        bench.wait(lambda: _threads(manual) <= max(counts[:2]), f'the end of threads, {counts}')
        assert bench.transition('configure')


def test_ticks_are_counted_from_activation(bench, manual):
    start = len(bench.heard['status'])
    assert bench.transition('activate')
    assert bench.wait(lambda: bench.heard['status'][start:], 'a tick')[0].tick == 1


def test_shutdown_from_active_ends_planning(bench, manual):
    assert bench.transition('shutdown')
    assert bench.state() == 'finalized'


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM])
def test_signal_while_loading_ends_with_exit_code_0(bench, tmp_path, number):
    planner = PlannerProcess(tmp_path, '-p', 'autostart:=true', load_s=60.0)
    bench.next_diagnosis(lambda d: 'pretending' in d.message, 'loading')
    assert planner.end(number) == 0, planner.output()
    assert 'Traceback' not in planner.output()


def test_load_stuck_where_it_cannot_be_cancelled_does_not_keep_the_process(bench, tmp_path):
    planner = PlannerProcess(tmp_path, '-p', 'autostart:=true', load_s=60.0, ignore_cancel=True)
    bench.next_diagnosis(lambda d: 'pretending' in d.message, 'loading')
    assert planner.end() == 0, planner.output()
    assert 'Traceback' not in planner.output()


def test_sigterm_while_planning_slowly_ends_with_exit_code_0(bench, tmp_path):
    planner = PlannerProcess(tmp_path, '-p', 'autostart:=true', plan_s=0.3)
    bench.next_status(lambda m: m.state == PlannerStatus.HELD, 'planning')
    assert planner.end(signal.SIGTERM) == 0, planner.output()
    assert 'Traceback' not in planner.output()


def test_a_tick_that_a_signal_comes_amid_is_published_to_its_end(bench, tmp_path):
    for messages in bench.heard.values():
        messages.clear()
    planner = PlannerProcess(tmp_path, '-p', 'autostart:=true', interrupt=True)
    bench.wait(lambda: planner.process.poll() is not None, 'the end')
    assert planner.end() == 0, planner.output()
    assert 'Traceback' not in planner.output()
    bench.wait(lambda: bench.heard['trajectory'] and bench.heard['path'], 'both')
    (trajectory,), (_,) = bench.heard['trajectory'], bench.heard['path']
    bench.wait(lambda: bench.heard['status'][-1].tick == trajectory.sequence, 'their status')


def _threads(planner):
    with open(f'/proc/{planner.process.pid}/status') as status:
        return next(int(line.split()[1]) for line in status if line.startswith('Threads:'))
