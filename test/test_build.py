"""The two ways to build the package: colcon and pip."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytest.importorskip('rosidl_adapter', reason='needs ROS 2 to build against')

pytestmark = [pytest.mark.ros, pytest.mark.slow]

ROOT = Path(__file__).parents[1]
MESSAGES = sorted(path.stem for path in (ROOT / 'msg').glob('*.msg'))
NODES = [f'lib/wamdiff_ros/{name}' for name in ('planner_node', 'simulator_node', 'player')]
# All that is looked up at run time, sub-folders included.
DATA = [
    str(path.relative_to(ROOT))
    for folder in ('config', 'launch', 'models', 'msg')
    for path in (ROOT / folder).rglob('*')
    if path.is_file() and path.suffix != '.pyc'
]


@pytest.fixture
def sources(tmp_path):
    """Return a copy of what the package is made of, without the environment and build results."""
    copy = tmp_path / 'src' / 'wamdiff_ros'
    skip = shutil.ignore_patterns(
        '.*', 'build', 'install', 'log', 'runs', 'demo_output', '__pycache__'
    )
    shutil.copytree(ROOT, copy, ignore=skip)
    return copy


@pytest.fixture
def environment():
    """Return the environment to build in: a sourced ROS installation's, or that of the wheels."""
    variables = dict(os.environ)
    variables.pop('PYTHONPATH' if not variables.get('ROS_DISTRO') else '', None)
    variables['PATH'] = f'{sys.prefix}/bin:{variables["PATH"]}'
    if not variables.get('ROS_DISTRO'):
        variables['AMENT_PREFIX_PATH'] = variables['CMAKE_PREFIX_PATH'] = sys.prefix
    return variables


def run(command, **options) -> str:
    """Run a command and return its output, which is shown if it fails."""
    result = subprocess.run(
        [str(word) for word in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=550,
        **options,
    )
    assert result.returncode == 0, result.stdout
    return result.stdout


def test_colcon_builds_messages_modules_commands_and_data(sources, environment):
    workspace = sources.parents[1]
    run(['colcon', 'build'], cwd=workspace, env=environment)
    prefix = workspace / 'install' / 'wamdiff_ros'
    for command in (*NODES, 'bin/wamdiff'):
        assert os.access(prefix / command, os.X_OK), command
    for name in DATA:
        assert (prefix / 'share' / 'wamdiff_ros' / name).is_file(), name
    # In a shell that has sourced the workspace, away from the sources.
    script = 'import wamdiff_ros.msg as m, wamdiff_ros.types as t; print(t.__file__, *dir(m))'
    output = run(
        ['bash', '-c', f'. {prefix}/share/wamdiff_ros/local_setup.bash && python -c "{script}"'],
        cwd=workspace,
        env=environment,
    )
    assert str(prefix) in output
    assert set(MESSAGES) <= set(output.split())
    assert 'usage: wamdiff' in run([prefix / 'bin' / 'wamdiff', '--help'], env={
        **environment, 'PYTHONPATH': str(next(prefix.glob('lib/python*/site-packages'))),
    })  # fmt: skip


def test_the_wheel_holds_messages_modules_commands_and_data(sources, environment, tmp_path):
    options = ['--no-deps', '--no-build-isolation', '--disable-pip-version-check']
    command = [sys.executable, '-m', 'pip', 'wheel', *options, '-w', tmp_path, sources]
    run(command, env=environment)
    (wheel,) = tmp_path.glob('wamdiff_ros-*.whl')
    names = set(zipfile.ZipFile(wheel).namelist())
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / 'wamdiff_ros').rglob('*.py')}
    assert modules <= names
    for message in MESSAGES:
        assert any(name.endswith(f'/share/wamdiff_ros/msg/{message}.msg') for name in names)
    for ending in (
        *(f'/{node}' for node in NODES),
        *(f'/share/wamdiff_ros/{name}' for name in DATA),
        '/share/ament_index/resource_index/packages/wamdiff_ros',
        '/lib/libwamdiff_ros__rosidl_typesupport_c.so',
        'dist-info/entry_points.txt',
    ):
        assert any(name.endswith(ending) for name in names), ending
    assert any(name.startswith('wamdiff_ros/wamdiff_ros_s__rosidl') for name in names)
