"""The bundled checkpoint does what its card says, on images of the sizes that cameras have."""

import numpy as np
import pytest

from wamdiff_ros.parameters import Parameters
from wamdiff_ros.runtime.session import PlanningSession
from wamdiff_ros.training.motion import sample_motion
from wamdiff_ros.types import CameraFrame, Command, Observation


@pytest.fixture(scope='module')
def session():
    return PlanningSession.load(Parameters.from_mapping({}))


def observation(motion, size, seed):
    height, width = size
    rows = np.linspace(200, 60, height, dtype=np.uint8)[:, None, None]
    rgb = np.broadcast_to(rows, (height, width, 3)) + np.uint8(seed % 40)
    return Observation(0, (CameraFrame('front', seed, rgb),), motion.ego(), Command.STRAIGHT)


@pytest.mark.parametrize('size', [(360, 640), (540, 960), (370, 1226), (480, 640)])
def test_it_continues_the_present_motion(session, size):
    random = np.random.default_rng(7)
    errors = []
    for seed in range(20):
        motion = sample_motion(random)
        plan = session.plan(observation(motion, size, seed)).plan
        if plan is not None:
            off = plan.waypoints_base_m - motion.waypoints_base_m
            errors.append(np.linalg.norm(off, axis=1).mean())
    assert len(errors) >= 19
    assert np.median(errors) < 1.5
    assert np.mean(errors) < 3.0


def test_it_says_that_it_does_not_see(session):
    motion = sample_motion(np.random.default_rng(3))
    description, _ = session.describe(observation(motion, (360, 640), 1))
    assert 'does not look at the image' in description.text
