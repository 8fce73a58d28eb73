import subprocess
import sys
from pathlib import Path

import pytest

import wamdiff_ros
from wamdiff_ros import cli
from wamdiff_ros.cli import COMMANDS

ROOT = Path(__file__).parents[1]


def wamdiff(*arguments):
    return subprocess.run(
        [sys.executable, '-m', 'wamdiff_ros.cli', *arguments],
        cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


def test_help_lists_the_commands_and_what_they_do():
    result = wamdiff('--help')
    assert result.returncode == 0
    for name, (_, words) in COMMANDS.items():
        assert name in result.stdout
        assert words.split()[0] in result.stdout
    assert 'live planner' in result.stdout


def test_the_version_is_the_packages():
    assert wamdiff('--version').stdout.strip() == f'wamdiff_ros {wamdiff_ros.__version__}'


def test_an_unknown_command_is_refused():
    result = wamdiff('fly')
    assert result.returncode == 2
    assert "'fly'" in result.stderr


def test_an_interrupted_command_says_so_and_ends_with_130(monkeypatch, capsys):
    def interrupted(arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr('wamdiff_ros.doctor.command.run', interrupted)
    assert cli.main(['doctor']) == 130
    assert capsys.readouterr().err == 'interrupted\n'


@pytest.mark.parametrize('command', COMMANDS)
def test_help_needs_neither_ros_nor_torch_nor_graphics(command):
    heavy = {'rclpy', 'torch', 'cv2', 'panda3d', 'av', 'accelerate'}
    code = (
        'import sys; from wamdiff_ros import cli\n'
        f'try: cli.main(["{command}", "--help"])\n'
        'except SystemExit as end: assert not end.code\n'
        f'found = {heavy} & set(sys.modules)\n'
        'assert not found, f"heavy imports: {found}"'
    )
    result = subprocess.run([sys.executable, '-c', code], cwd=ROOT, timeout=300, check=False,
                            capture_output=True, text=True)  # fmt: skip
    assert result.returncode == 0, result.stderr
