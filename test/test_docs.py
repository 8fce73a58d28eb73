"""What the documents say of files, commands and recipes is there."""

import re
from pathlib import Path

import pytest
import yaml

from wamdiff_ros.cli import COMMANDS

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([*ROOT.glob('*.md'), *ROOT.glob('docs/*.md'), ROOT / 'models' / 'README.md'])
RECIPES = sorted((ROOT / 'config' / 'training').glob('*.yaml'))


@pytest.mark.parametrize('path', DOCUMENTS, ids=lambda path: path.name)
def test_every_link_leads_somewhere(path):
    for target in re.findall(r'\]\(([^)\s]+)\)', path.read_text()):
        if '://' not in target:
            file, _, heading = target.partition('#')
            linked = (path.parent / file).resolve() if file else path
            assert linked.exists(), f'{path.name} links to {target}'
            if heading:
                headings = re.findall(r'^#+ (.+)$', linked.read_text(), re.MULTILINE)
                assert heading in [_anchor(text) for text in headings], f'{path.name}: {target}'


def _anchor(heading: str) -> str:
    return re.sub(r'[^\w -]', '', heading.lower()).replace(' ', '-')


@pytest.mark.parametrize('path', DOCUMENTS, ids=lambda path: path.name)
def test_every_command_that_is_named_exists(path):
    text = path.read_text()
    assert set(re.findall(r'\bwamdiff ([a-z]+)\b', text)) <= set(COMMANDS)
    for script in re.findall(r'(?<![\w/])scripts/(\w+(?:\.py)?)', text):
        assert (ROOT / 'scripts' / script).exists(), f'{path.name} names scripts/{script}'


@pytest.mark.parametrize('room', ['simulation', 'training'])
def test_the_architecture_names_every_file_of_these_rooms(room):
    document = (ROOT / 'docs' / 'architecture.md').read_text()
    for path in (ROOT / 'wamdiff_ros' / room).glob('*.py'):
        assert path.name == '__init__.py' or f'`{path.name}`' in document, path.name


@pytest.mark.parametrize('path', RECIPES, ids=lambda path: path.stem)
def test_the_recipes_table_is_up_to_date(path):
    assert recipe_row(path) in (ROOT / 'docs' / 'training.md').read_text(), recipe_row(path)


def test_every_rule_of_robustness_is_held_by_a_test_that_exists():
    document = (ROOT / 'docs' / 'robustness.md').read_text()
    named = re.findall(r'`(test/[\w/]+\.py)::(\w+)`', document)
    assert len(named) > 50
    for file, name in named:
        assert (ROOT / file).is_file(), file
        assert re.search(rf'^def {name}\(', (ROOT / file).read_text(), re.MULTILINE), name
    for row in re.findall(r'^\| (.+) \|$', document.partition('## Faults tried')[0], re.MULTILINE):
        case, _, tests = row.split(' | ')
        assert case == 'case' or set(case) == set('-|') or '::' in tests, f'{case}: no test'


def recipe_row(path: Path) -> str:
    """Return a recipe's row of the table in docs/training.md."""
    values = yaml.safe_load(path.read_text())
    start, teacher = (
        f'`{value.removeprefix("../../runs/").removesuffix("/latest")}`' if value else '–'
        for value in (values['init'], values.get('teacher'))
    )
    cells = (f'`{path.stem}`', values['kind'], values.get('block_size', 1), start, teacher)
    return f'| {" | ".join(map(str, cells))} | {values["steps"]} |'


if __name__ == '__main__':
    print('\n'.join(map(recipe_row, RECIPES)))
