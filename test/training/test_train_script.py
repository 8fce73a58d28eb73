"""scripts/train: what it would run, in a clone of its own with nothing in runs/ yet."""

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from wamdiff_ros.training.recipe import Recipe

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / 'config' / 'training'
TEACHER, NANO = (sorted(FOLDER.glob(f'{name}_[0-9]*.yaml')) for name in ('teacher', 'nano'))


@pytest.fixture
def clone(tmp_path):
    (tmp_path / 'scripts').mkdir()
    shutil.copy(ROOT / 'scripts' / 'train', tmp_path / 'scripts')
    shutil.copytree(ROOT / 'config' / 'training', tmp_path / 'config' / 'training')
    return tmp_path


def commands(clone, *options):
    result = subprocess.run(
        [clone / 'scripts' / 'train', '--dry-run', *options],
        capture_output=True, text=True, check=True, cwd='/',
    )  # fmt: skip
    return [shlex.split(line) for line in result.stdout.splitlines()]


@pytest.mark.parametrize('recipes', [TEACHER, NANO], ids=['teacher', 'nano'])
def test_every_recipe_starts_from_the_result_of_the_one_before_it(recipes):
    size = recipes[0].stem.partition('_')[0]
    before = ROOT / 'runs' / size / 'start'
    for path in recipes:
        recipe = Recipe.load(path)
        assert _real(recipe.init) == before, path.name
        assert _real(recipe.output) == _output(path)
        assert [_real(data) for data in recipe.data] == [ROOT / 'runs' / 'nano' / 'data']
        before = _output(path) / 'latest'


def test_every_teacher_is_trained_before_its_student():
    trained = set()
    for path in (*TEACHER, *NANO):
        teacher = Recipe.load(path).teacher
        assert teacher is None or _real(teacher) in trained, path.name
        trained.add(_output(path) / 'latest')


def test_the_commands_go_from_nothing_to_the_bundled_checkpoint(clone):
    printed = commands(clone)
    trained = [clone / command[2] for command in printed if command[:2] == ['wamdiff', 'train']]
    assert [path.name for path in trained] == [path.name for path in (*TEACHER, *NANO)]
    assert all(path.is_file() for path in trained)
    last = str((_output(NANO[-1]) / 'latest').relative_to(ROOT))
    others = [command for command in printed if command[:2] != ['wamdiff', 'train']]
    data, validation, teacher, start, evaluate, drive, bundle = others
    assert data[:4] == ['wamdiff', 'data', 'generate', 'runs/nano/data']
    assert validation[3:6] == ['runs/nano/validation', '--split', 'validation']
    assert teacher[2:6] == ['wamdiff_ros.training.nano', 'runs/teacher/start', '--size', 'teacher']
    assert start[2:4] == ['wamdiff_ros.training.nano', 'runs/nano/start']
    assert evaluate[:2] == ['wamdiff', 'evaluate']
    assert evaluate[evaluate.index('--data') - 1] == last
    assert '50' in drive and last in drive
    assert bundle[2:5] == ['wamdiff_ros.training.bundle', last, 'models/nano']


def test_a_step_is_skipped_when_its_result_is_there_and_resumed_when_it_is_half_done(clone):
    first, second = NANO[:2]
    (clone / 'runs' / 'nano' / 'start').mkdir(parents=True)
    outputs = [clone / _output(path).relative_to(ROOT) for path in (first, second)]
    done, half = outputs[0] / f'step_{Recipe.load(first).steps:06d}', outputs[1] / 'step_000001'
    for folder in (done, half):
        folder.mkdir(parents=True)
        (folder.parent / 'latest').symlink_to(folder.name)
    printed = commands(clone)
    trained = {Path(c[2]).name: c[3:] for c in printed if c[:2] == ['wamdiff', 'train']}
    assert first.name not in trained
    assert trained[second.name] == ['--resume']
    assert trained[NANO[2].name] == []
    assert not any('runs/nano/start' in command for command in printed)


def test_data_counts_as_there_when_all_its_shards_are(clone):
    data = clone / 'runs' / 'nano' / 'data'
    data.mkdir(parents=True)
    (data / 'shard-000001.tar').touch()
    assert commands(clone, '--only', 'data', '--routes', '16') == []
    ((*_, routes, _, _),) = commands(clone, '--only', 'data', '--routes', '17')
    assert routes == '24'


@pytest.mark.parametrize(
    ('options', 'said'),
    [
        (['--only', '9_magic'], "'9_magic' is none of: data validation teacher_start"),
        (['--only'], '--only wants a step'),
        (['--routes', 'many'], "--routes wants a number above 0, not 'many'"),
        (['--fast'], "unknown option '--fast'"),
    ],
)
def test_wrong_options_are_refused(clone, options, said):
    result = subprocess.run(
        [clone / 'scripts' / 'train', *options], capture_output=True, text=True, check=False
    )
    assert result.returncode == 2
    assert said in result.stderr


def test_help_says_what_it_does(clone):
    result = subprocess.run(
        [clone / 'scripts' / 'train', '--help'], capture_output=True, text=True, check=True
    )
    assert 'Ctrl-C' in result.stdout and '--only STEP' in result.stdout


def _output(recipe: Path) -> Path:
    size, _, name = recipe.stem.partition('_')
    return ROOT / 'runs' / size / name


def _real(path: Path) -> Path:
    """Without its '..', and without following the links of a run that is there."""
    return Path(os.path.normpath(path))
