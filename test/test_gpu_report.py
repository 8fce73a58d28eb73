import os
import subprocess
from pathlib import Path

import gpu_report
import pytest

ROOT = Path(__file__).parents[1]
XML = """<testsuites><testsuite name="pytest">
<testcase classname="test.runtime.test_a" name="test_one" time="1.25"/>
<testcase classname="test.runtime.test_a" name="test_two" time="0.5">
  <failure message="assert 1 == 2&#10; more">trace</failure></testcase>
<testcase classname="test.runtime.test_a" name="test_three" time="0">
  <skipped message="no | FP8"/></testcase>
<testcase classname="" name="test.ros" time="0"><skipped message="collection skipped"/></testcase>
</testsuite></testsuites>"""
DOCTOR = {'findings': [{'check': 'cuda', 'level': 'OK', 'words': 'Orin', 'remedy': ''}]}


def report(tests, bench=None):
    return {'commit': 'abc', 'doctor': DOCTOR, 'tests': tests, 'bench': bench or {}}


def test_every_test_is_reported_with_its_outcome_and_reason():
    one, two, three = gpu_report.read_tests(XML)
    assert (one['outcome'], one['seconds']) == ('passed', 1.25)
    assert (two['outcome'], two['message']) == ('failed', 'assert 1 == 2')
    assert (three['outcome'], three['message']) == ('skipped', 'no | FP8')
    text = gpu_report.markdown(report([one, two, three], {'nano': {'ladder': 3}}))
    assert '| test.runtime.test_a::test_three | skipped | 0.0 | no \\| FP8 |' in text
    assert '| cuda | OK | Orin |' in text
    assert '"ladder": 3' in text


def test_only_tests_that_ran_and_passed_count_as_passed():
    one, two, three = gpu_report.read_tests(XML)
    assert gpu_report.passed(report([one, three], {'nano': {}}))
    assert not gpu_report.passed(report([one, two]))
    assert not gpu_report.passed(report([three])), 'all skipped is not passed'
    assert not gpu_report.passed(report([]))
    assert not gpu_report.passed(report([one], {'nano': {'error': 'exit code 1'}}))


def test_help_and_wrong_options_set_nothing_up():
    script = ROOT / 'scripts' / 'gpu_check'
    for options, code, words in ((['--help'], 0, 'Exit codes'), (['--fast'], 2, "'--fast'")):
        result = subprocess.run(
            [script, *options], capture_output=True, text=True, check=False, timeout=60
        )
        assert result.returncode == code
        assert words in result.stdout + result.stderr
        assert 'setup:' not in result.stderr


def test_a_machine_without_a_gpu_is_told_so(tmp_path):
    if Path('/dev/nvidiactl').exists():
        pytest.skip('this machine has a GPU')
    result = subprocess.run(
        [ROOT / 'scripts' / 'gpu_check', tmp_path / 'out'],
        capture_output=True, text=True, check=False, timeout=60,
        env={**os.environ, 'PATH': '/usr/bin:/bin'},
    )  # fmt: skip
    assert result.returncode == 1
    assert 'this machine has no NVIDIA GPU' in result.stderr
    assert not (tmp_path / 'out').exists()
