"""Whatever happens to it, the node goes on, publishes no bad plan, and plans again."""

from dataclasses import replace

import pytest
from faults import process_faults, sensor_faults  # noqa: F401 - they declare FAULTS
from faults.fault import FAULTS
from faults.scene import Stage

pytestmark = [pytest.mark.ros, pytest.mark.slow]


@pytest.fixture(scope='module')
def stage(tmp_path_factory):
    stage = Stage(tmp_path_factory.mktemp('faults'))
    yield stage
    stage.close()
    for code, output in stage.ended:
        assert code == 0, output


# Most others are held by quicker tests in test/ros; scripts/fault_check lets all of them happen.
HERE_TOO = (
    *('camera_freezes', 'camera_duplicates', 'camera_reorders', 'odometry_teleports'),
    *('odometry_is_nan', 'one_percent_of_many_frames_is_corrupt', 'random_bytes_come_as_messages'),
    *('system_clock_is_set_an_hour_ahead', 'system_clock_is_set_an_hour_back'),
    *('system_clock_is_set_a_second_back', 'system_clock_is_set_a_fifth_of_a_second_back'),
    'clock_ticks_a_thousand_times_a_second',
    *('node_is_killed_and_restarted', 'inference_writes_garbage'),
    'inference_plans_what_no_vehicle_can_drive',
)
BY_SCENE = sorted((FAULTS[name] for name in HERE_TOO), key=lambda fault: fault.scene)


@pytest.mark.parametrize('fault', BY_SCENE, ids=lambda fault: fault.name)
def test_planning_survives(fault, stage):
    outcome = stage.undergo(fault)
    # How fast it recovers is for scripts/fault_check to judge, on a machine that is not busy.
    assert replace(outcome, recovery_s=0.0).failures == ()
