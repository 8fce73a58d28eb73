import pytest

from wamdiff_ros.training.recipe import Recipe, RecipeError
from wamdiff_ros.training.schedule import rate_factor

GOOD = """
kind: block
init: models/nano
output: runs/b4
data: [shards]
steps: 100
batch: {planning: 8}
learning_rate: 1e-3
block_size: 4
"""


def load(tmp_path, text):
    file = tmp_path / 'recipe.yaml'
    file.write_text(text)
    return Recipe.load(file)


def test_paths_count_from_the_recipes_folder(tmp_path):
    recipe = load(tmp_path, GOOD)
    assert recipe.init == tmp_path / 'models/nano'
    assert recipe.data == (tmp_path / 'shards',)
    assert recipe.learning_rate == 1e-3


@pytest.mark.parametrize(
    ('line', 'named'),
    [
        ('colour: red', "'colour'.*take it out"),
        ('seed: one', "seed is 'one'"),
        ('kind: magic', "kind is 'magic'"),
        ('block_size: 1', 'block_size is 1'),
        ('teacher: models/nano', 'teacher'),
        ('batch: {planning: 8, singing: 1}', 'singing'),
        ('batch: {planning: 0}', 'batch'),
        ('betas: [0.9]', 'betas'),
        ('betas: [0.9, 1.5]', 'betas'),
        ('image_sizes: [256, 128]', 'image_sizes'),
        ('learning_rate: .nan', 'learning_rate'),
        ('learning_rate: fast', 'learning_rate'),
        ('compile: 1', 'compile'),
        ('on_policy_every: 2', 'on_policy_every'),
        ('weighting: 1/t', 'weighting'),
    ],
)
def test_a_wrong_field_is_refused_by_file_and_name(tmp_path, line, named):
    name = line.partition(':')[0]
    kept = [old for old in GOOD.splitlines() if not old.startswith(f'{name}:')]
    with pytest.raises(RecipeError, match=rf'recipe\.yaml: .*{named}'):
        load(tmp_path, '\n'.join([*kept, line]))


def test_a_field_that_is_missing_is_named(tmp_path):
    with pytest.raises(RecipeError, match='steps must be given'):
        load(tmp_path, GOOD.replace('steps: 100', ''))


def test_a_file_that_is_no_yaml_is_refused(tmp_path):
    with pytest.raises(RecipeError, match='cannot be read as YAML'):
        load(tmp_path, 'kind: [')
    with pytest.raises(RecipeError, match='holds a str'):
        load(tmp_path, 'just words')


def test_the_learning_rate_rises_to_its_peak_and_falls_to_its_floor(tmp_path):
    recipe = load(tmp_path, GOOD + 'warm_up_steps: 10\nwarm_up_from: 0.1\ndecay_to: 0.05\n')
    factors = [rate_factor(recipe, step) for step in range(100)]
    assert factors[0] == pytest.approx(0.1) and factors[10] == pytest.approx(1.0)
    assert factors[-1] == pytest.approx(0.05)
    assert factors[:11] == sorted(factors[:11])
    assert factors[10:] == sorted(factors[10:], reverse=True)
