"""Every check of the doctor, in made-up surroundings."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from wamdiff_ros.doctor import accelerator_checks, command, machine_checks, ros_checks
from wamdiff_ros.doctor.finding import Finding, Level
from wamdiff_ros.doctor.surroundings import Reply, Surroundings

ROOT = Path(__file__).parents[2]
PROFILE = (ROOT / 'config' / 'fastdds.xml').read_text()


class MadeUp(Surroundings):
    """A machine that is as a test says; what it does not say is a good machine."""

    def __init__(self, **changes):
        self.environ = {'ROS_DISTRO': 'jazzy', 'FASTRTPS_DEFAULT_PROFILES_FILE': '/dds.xml'}
        self.python, self.executable, self.prefix = (3, 12), '/venv/bin/python', '/venv'
        self.files = {'/dds.xml': PROFILE, ros_checks.RMEM_MAX: '4194304\n'}
        self.opt_ros = ['jazzy']
        self.versions = dict.fromkeys(machine_checks.PACKAGES, '9.9')
        self.modules = {'cv2', 'panda3d'}
        self.commands, self.free, self.reply = set(), 1 << 40, Reply()
        for name, value in changes.items():
            setattr(self, name, value)

    def read(self, path):
        return self.files.get(path)

    def exists(self, path):
        return path in self.files

    def folders(self, path):
        return self.opt_ros if path == '/opt/ros' else []

    def version(self, distribution):
        return self.versions.get(distribution)

    def has_module(self, name):
        return name in self.modules

    def which(self, command):
        return command if command in self.commands else None

    def free_bytes(self, path):
        return self.free

    def ask(self, code, timeout_s=120.0):
        return self.reply


def environ(**values):
    return {**MadeUp().environ, **values}


GPU = {
    'name': 'H',
    'capability': [9, 0],
    'architectures': ['sm_90'],
    'version': '13.0',
    'sum': 512,
}
NO_GPU = Reply(error='no CUDA device')
CASES = [
    (machine_checks.python, {}, 'OK', '3.12'),
    (machine_checks.python, {'python': (3, 9)}, 'FAIL', '3.9 at .* too old'),
    (machine_checks.python, {'python': (3, 15)}, 'WARN', '3.15 is newer'),
    (machine_checks.packages, {}, 'OK', 'torch 9.9'),
    (machine_checks.packages, {'versions': {}}, 'FAIL', 'does not find numpy, .*torch'),
    (machine_checks.packages, {'modules': set()}, 'FAIL', 'opencv-python-headless'),
    (machine_checks.started_python, {}, 'OK', 'source tree'),
    (
        machine_checks.started_python,
        {'files': {'/venv/lib/wamdiff_ros/planner_node': '#!/venv/bin/python\n'}},
        'OK', 'starts /venv/bin/python',
    ),
    (
        machine_checks.started_python,
        {
            'environ': {'AMENT_PREFIX_PATH': '/ws/install:/opt/ros/jazzy'},
            'files': {'/ws/install/lib/wamdiff_ros/planner_node': '#!/usr/bin/python3\n'},
        },
        'WARN', 'with /usr/bin/python3, this is /venv/bin/python',
    ),
    (machine_checks.disk, {}, 'OK', 'GiB free'),
    (machine_checks.disk, {'free': 1 << 30}, 'WARN', '1024 MiB left'),
    (machine_checks.disk, {'free': 5}, 'FAIL', 'no space'),
    (
        machine_checks.checkpoint, {'reply': Reply({'name': 'nano', 'backend': 'sdpa'})},
        'OK', 'nano answers on sdpa',
    ),
    (machine_checks.checkpoint, {'reply': Reply(error='model.x: damaged')}, 'FAIL', 'damaged'),
    (machine_checks.renderer, {'modules': set()}, 'WARN', 'panda3d'),
    (
        machine_checks.renderer, {'reply': Reply({'backend': 'egl', 'driver': 'llvmpipe'})},
        'OK', 'egl: llvmpipe',
    ),
    (
        machine_checks.renderer, {'reply': Reply({'backend': 'software', 'driver': 'tiny'})},
        'WARN', 'slow',
    ),
    (machine_checks.renderer, {'reply': Reply(error='cannot render')}, 'WARN', 'cannot render'),
    (ros_checks.distribution, {}, 'OK', 'jazzy, Python 3.12'),
    (ros_checks.distribution, {'environ': {}}, 'FAIL', 'installed, but not sourced'),
    (ros_checks.distribution, {'environ': {}, 'opt_ros': []}, 'FAIL', 'no ROS 2'),
    (
        ros_checks.distribution,
        {'environ': {}, 'opt_ros': [], 'versions': {'ros-jazzy-rclpy': '7.1.6'}},
        'OK', 'wheels',
    ),
    (ros_checks.distribution, {'python': (3, 11)}, 'FAIL', 'for Python 3.12, this is 3.11'),
    (ros_checks.distribution, {'environ': {'ROS_DISTRO': 'foxy'}}, 'WARN', 'foxy'),
    (ros_checks.rclpy, {'reply': Reply({'rmw': 'rmw_fastrtps_cpp'})}, 'OK', 'rmw_fastrtps_cpp'),
    (
        ros_checks.rclpy,
        {'reply': Reply(error="No module named 'rclpy._rclpy_pybind11'")},
        'FAIL', 'compiled for another Python than /venv/bin/python',
    ),
    (
        ros_checks.rclpy, {'reply': Reply(error="ModuleNotFoundError: No module named 'rclpy'")},
        'FAIL', 'does not find it',
    ),
    (ros_checks.rclpy, {'reply': Reply(error='crashed with SIGSEGV')}, 'FAIL', 'SIGSEGV'),
    (ros_checks.messages, {'reply': Reply({'numpy': '1.26.4'})}, 'OK', 'NumPy 1.26.4'),
    (
        ros_checks.messages, {'reply': Reply(error="No module named 'wamdiff_ros.msg'")},
        'FAIL', 'not built',
    ),
    (
        ros_checks.messages,
        {'reply': Reply(error='SystemError', stderr='compiled using NumPy 1.x … _ARRAY_API')},
        'FAIL', 'another NumPy',
    ),
    (ros_checks.cv_bridge, {}, 'OK', 'not needed'),
    (
        ros_checks.cv_bridge,
        {'modules': {'cv_bridge'}, 'reply': Reply(stderr='AttributeError: _ARRAY_API not found')},
        'WARN', 'NumPy 2 with a build for NumPy 1',
    ),
    (ros_checks.middleware, {}, 'OK', 'default'),
    (
        ros_checks.middleware, {'environ': environ(RMW_IMPLEMENTATION='rmw_zenoh_cpp')},
        'WARN', 'rmw_zenoh_cpp',
    ),
    (ros_checks.dds_profile, {}, 'OK', '32 MiB'),
    (ros_checks.dds_profile, {'environ': {}}, 'WARN', 'will get lost'),
    (ros_checks.dds_profile, {'environ': environ(ROS_DISTRO='kilted')}, 'WARN', 'get lost'),
    (ros_checks.dds_profile, {'files': {}}, 'WARN', '/dds.xml, which cannot be read'),
    (ros_checks.dds_profile, {'files': {'/dds.xml': 'no'}}, 'WARN', 'not XML'),
    (
        ros_checks.dds_profile,
        {'files': {'/dds.xml': PROFILE.replace('33554432', '524288')}},
        'WARN', '524288 bytes',
    ),
    (ros_checks.socket_buffers, {}, 'OK', '4194304'),
    (ros_checks.socket_buffers, {'files': {ros_checks.RMEM_MAX: '212992'}}, 'WARN', '212992'),
    (ros_checks.socket_buffers, {'files': {}}, 'OK', 'not there'),
    (ros_checks.shared_memory, {}, 'OK', 'MiB free'),
    (ros_checks.shared_memory, {'free': 64 << 20}, 'WARN', '64 MiB left'),
    (ros_checks.shared_memory, {'free': None}, 'WARN', 'UDP'),
    (
        accelerator_checks.torch,
        {'reply': Reply({'version': '2.13.0', 'threads': 2, 'simd': 'AVX512'})}, 'OK', 'AVX512',
    ),
    (accelerator_checks.torch, {'reply': Reply(error='libcudart.so')}, 'FAIL', 'libcudart'),
    (accelerator_checks.cuda, {'reply': NO_GPU}, 'OK', 'no GPU'),
    (
        accelerator_checks.cuda,
        {'reply': NO_GPU, 'files': {accelerator_checks.GPU_DRIVER: ''}},
        'WARN', 'torch uses no GPU',
    ),
    (accelerator_checks.cuda, {'reply': Reply(GPU)}, 'OK', 'H .sm_90., multiplies'),
    (
        accelerator_checks.cuda,
        {'reply': Reply({**GPU, 'capability': [11, 0], 'kernel_error': 'no kernel image'})},
        'FAIL', 'is sm_110, torch has kernels for sm_90: no kernel image',
    ),
    (accelerator_checks.flashinfer, {}, 'OK', 'not installed'),
    (accelerator_checks.flashinfer, {'modules': {'flashinfer'}, 'reply': NO_GPU}, 'OK', 'no GPU'),
    (
        accelerator_checks.flashinfer,
        {'modules': {'flashinfer'}, 'reply': Reply(error='ninja: not found')},
        'FAIL', 'without nvcc and ninja',
    ),
    (
        accelerator_checks.flashinfer,
        {'modules': {'flashinfer'}, 'reply': Reply({'ones': True})}, 'OK', 'a kernel ran',
    ),
    (accelerator_checks.tensorrt, {}, 'OK', 'not installed'),
    (
        accelerator_checks.tensorrt,
        {'modules': {'tensorrt'}, 'reply': Reply({'version': '11.4', 'built': False})},
        'FAIL', 'builds no engine',
    ),
    (
        accelerator_checks.tensorrt,
        {'modules': {'tensorrt'}, 'reply': Reply({'version': '11.4', 'built': True})},
        'OK', 'builds an engine',
    ),
    (accelerator_checks.torchao, {}, 'OK', 'no quantisation'),
    (accelerator_checks.torchao, {'modules': {'torchao'}}, 'OK', 'quantises'),
    (
        accelerator_checks.torchao, {'modules': {'torchao'}, 'reply': Reply(error='no config')},
        'FAIL', 'no config',
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ('check', 'changes', 'level', 'words'), CASES, ids=lambda value: getattr(value, '__name__', '')
)
def test_every_check_says_what_is_wrong_and_what_to_do(check, changes, level, words):
    finding = check(MadeUp(**changes))
    assert finding.level.value == level, finding
    assert re.search(words, finding.words), finding
    assert bool(finding.remedy) == (level != 'OK')


def test_every_check_has_a_case_that_is_fine_and_one_that_is_not():
    modules = (machine_checks, ros_checks, accelerator_checks)
    checks = {check for module in modules for check in module.CHECKS}
    checks |= {machine_checks.checkpoint, machine_checks.renderer}
    for check in checks:
        levels = {level for tried, _, level, _ in CASES if tried is check}
        assert 'OK' in levels and len(levels) > 1, check.__name__


def test_a_finding_without_a_remedy_is_refused():
    with pytest.raises(ValueError, match='has a remedy'):
        Finding('disk', Level.WARN, 'full')


def test_only_a_fail_ends_with_exit_code_1(monkeypatch, capsys):
    def exit_code(findings):
        monkeypatch.setattr(command, 'diagnose', lambda here, model: iter(findings))
        return command.run(type('Options', (), {'json': True, 'model': ''}))

    fine, doubtful = Finding('a', Level.OK, 'x'), Finding('b', Level.WARN, 'y', 'z')
    assert exit_code([fine, doubtful]) == 0
    assert json.loads(capsys.readouterr().out)['WARN'] == 1
    assert exit_code([fine, Finding('c', Level.FAIL, 'y', 'z')]) == 1
    assert json.loads(capsys.readouterr().out)['findings'][1]['remedy'] == 'z'


def test_a_child_that_crashes_is_an_answer():
    here = Surroundings()
    assert here.ask("reply['sum'] = 1 + 1").values == {'sum': 2}
    assert here.ask('import os; os.abort()').error == 'crashed with SIGABRT'
    assert here.ask("raise OSError('no such thing')").error == 'OSError: no such thing'
    assert 'no answer within' in here.ask('import time; time.sleep(9)', timeout_s=0.2).error


@pytest.mark.slow
def test_the_command_checks_this_machine_and_its_exit_code_says_whether_the_node_could_run():
    result = subprocess.run(
        [sys.executable, '-m', 'wamdiff_ros.cli', 'doctor', '--json'],
        cwd=ROOT, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    report = json.loads(result.stdout)
    assert result.returncode == (1 if report['FAIL'] else 0)
    findings = {finding['check']: finding for finding in report['findings']}
    assert findings['torch']['level'] == 'OK'
    assert findings['checkpoint']['level'] == 'OK', findings['checkpoint']['words']
