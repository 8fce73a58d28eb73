import os
import time

import pytest

pytest.importorskip('rclpy', reason='needs ROS 2')
pytest.importorskip('launch_ros', reason='launch_ros is part of a ROS installation, not a wheel')

from lifecycle_msgs.srv import GetState
from rcl_interfaces.srv import GetParameters

pytestmark = pytest.mark.ros

PLANNER = 'planner.launch.py'
TIMEOUT_S = 60


def test_arguments_reach_the_node(launch, ask, tmp_path):
    params_file = tmp_path / 'planner.param.yaml'
    params_file.write_text(
        '/**:\n  ros__parameters:\n    cameras: [left, right]\n    rate_hz: 5.0\n'
        '    camera: {left: {topic: stereo/left}}\n    model_dir: /from/the/file\n'
    )
    launch(
        PLANNER,
        f'params_file:={params_file}',
        'namespace:=car',
        'autostart:=False',
        'use_sim_time:=True',
        'log_level:=debug',
        'model_dir:=/somewhere/123',
    )
    names = ['cameras', 'camera.left.topic', 'rate_hz', 'use_sim_time', 'model_dir']
    answer = ask(GetParameters, '/car/planner/get_parameters', GetParameters.Request(names=names))
    cameras, topic, rate, sim_time, model_dir = answer.values
    assert cameras.string_array_value == ['left', 'right']
    assert topic.string_value == 'stereo/left'
    assert rate.double_value == 5.0
    assert sim_time.bool_value is True
    assert model_dir.string_value == '/somewhere/123'
    state = ask(GetState, '/car/planner/get_state', GetState.Request())
    assert state.current_state.label == 'unconfigured'


def test_an_argument_left_out_keeps_the_parameter_file(launch, ask, tmp_path):
    params_file = tmp_path / 'planner.param.yaml'
    params_file.write_text('/**:\n  ros__parameters:\n    model_dir: /from/the/file\n')
    launch(PLANNER, f'params_file:={params_file}', 'autostart:=false')
    request = GetParameters.Request(names=['model_dir'])
    answer = ask(GetParameters, '/planner/get_parameters', request)
    assert answer.values[0].string_value == '/from/the/file'


@pytest.fixture
def rviz2(tmp_path, monkeypatch):
    """Put a package rviz2 before all others whose program only waits."""
    prefix = tmp_path / 'rviz'
    program = prefix / 'lib' / 'rviz2' / 'rviz2'
    for folder in (program.parent, prefix / 'share/ament_index/resource_index/packages'):
        folder.mkdir(parents=True)
    (prefix / 'share/ament_index/resource_index/packages/rviz2').touch()
    program.write_text('#!/bin/sh\nexec sleep 1000\n')
    program.chmod(0o755)
    others = os.environ.get('AMENT_PREFIX_PATH', '')
    monkeypatch.setenv('AMENT_PREFIX_PATH', f'{prefix}:{others}')


@pytest.mark.parametrize(
    ('rviz', 'in_the_file', 'rate_hz'),
    [('true', '0.0', 2.0), ('true', '5.0', 5.0), ('false', '0.0', 0.0)],
)
def test_rviz_turns_the_overlay_on_unless_the_file_gives_it_a_rate(
    rviz, in_the_file, rate_hz, rviz2, launch, ask, tmp_path
):
    params_file = tmp_path / 'planner.param.yaml'
    params_file.write_text(f'/**:\n  ros__parameters:\n    overlay_rate_hz: {in_the_file}\n')
    launch(PLANNER, f'params_file:={params_file}', 'autostart:=false', f'rviz:={rviz}')
    request = GetParameters.Request(names=['overlay_rate_hz'])
    answer = ask(GetParameters, '/planner/get_parameters', request)
    assert answer.values[0].double_value == rate_hz


def test_autostart_configures_without_being_asked(launch, tmp_path):
    said = launch(PLANNER, f'model_dir:={tmp_path}/nothing_here')
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline and 'nothing_here' not in said():
        time.sleep(0.1)
    assert 'nothing_here' in said(), 'configure did not run into the missing checkpoint'
