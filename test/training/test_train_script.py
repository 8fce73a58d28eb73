"""scripts/train: what it would run, in a clone of its own with nothing in runs/ yet."""

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from wamdiff_ros.training.recipe import Recipe

ROOT = Path(__file__).parents[2]
RECIPES = sorted((ROOT / 'config' / 'training').glob('nano_*.yaml'))
RUNS = ROOT / 'runs' / 'nano'


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


def test_every_recipe_starts_from_the_result_of_the_one_before_it():
    before = RUNS / 'start'
    for path in RECIPES:
        recipe = Recipe.load(path)
        assert recipe.init.resolve() == before.resolve(), path.name
        assert recipe.output.resolve() == RUNS / path.stem.removeprefix('nano_')
        assert [data.resolve() for data in recipe.data] == [RUNS / 'data']
        before = recipe.output / 'latest'


def test_the_commands_go_from_nothing_to_the_bundled_checkpoint(clone):
    printed = commands(clone)
    trained = [clone / command[2] for command in printed if command[:2] == ['wamdiff', 'train']]
    assert [path.name for path in trained] == [path.name for path in RECIPES]
    assert all(path.is_file() for path in trained)
    last = f'runs/nano/{RECIPES[-1].stem.removeprefix("nano_")}/latest'
    others = [command for command in printed if command[:2] != ['wamdiff', 'train']]
    data, validation, start, evaluate, drive, bundle = others
    assert data[:4] == ['wamdiff', 'data', 'generate', 'runs/nano/data']
    assert validation[3:6] == ['runs/nano/validation', '--split', 'validation']
    assert start[2:4] == ['wamdiff_ros.training.nano', 'runs/nano/start']
    assert evaluate[:2] == ['wamdiff', 'evaluate']
    assert evaluate[evaluate.index('--data') - 1] == last
    assert '50' in drive and last in drive
    assert bundle[2:5] == ['wamdiff_ros.training.bundle', last, 'models/nano']


def test_a_step_is_skipped_when_its_result_is_there_and_resumed_when_it_is_half_done(clone):
    first, second = RECIPES[:2]
    runs = clone / 'runs' / 'nano'
    (runs / 'start').mkdir(parents=True)
    done = runs / first.stem.removeprefix('nano_') / f'step_{Recipe.load(first).steps:06d}'
    half = runs / second.stem.removeprefix('nano_') / 'step_000001'
    for folder in (done, half):
        folder.mkdir(parents=True)
        (folder.parent / 'latest').symlink_to(folder.name)
    printed = commands(clone)
    trained = {Path(c[2]).name: c[3:] for c in printed if c[:2] == ['wamdiff', 'train']}
    assert first.name not in trained
    assert trained[second.name] == ['--resume']
    assert trained[RECIPES[2].name] == []
    assert not any('wamdiff_ros.training.nano' in command for command in printed)


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
        (['--only', '9_magic'], "'9_magic' is none of: data validation start 1_vision"),
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
