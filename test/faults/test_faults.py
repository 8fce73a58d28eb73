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


BY_SCENE = sorted(FAULTS.values(), key=lambda fault: fault.scene)


@pytest.mark.parametrize('fault', BY_SCENE, ids=lambda fault: fault.name)
def test_planning_survives(fault, stage):
    outcome = stage.undergo(fault)
    # How fast it recovers is for scripts/fault_check to judge, on a machine that is not busy.
    assert replace(outcome, recovery_s=0.0).failures == ()
