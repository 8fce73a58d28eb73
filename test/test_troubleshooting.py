"""Every error text in docs/troubleshooting.md is one that the code says."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENT = (ROOT / 'docs' / 'troubleshooting.md').read_text('utf8')
QUOTED = re.findall(r'^### `(.+)`$', DOCUMENT, re.MULTILINE)


@cache
def texts() -> frozenset[str]:
    """Return the strings of the package; what an f-string fills in is `…`, repeated ones one."""
    found = set()
    for path in (ROOT / 'wamdiff_ros').rglob('*.py'):
        for node in ast.walk(ast.parse(path.read_text('utf8'))):
            if isinstance(node, ast.JoinedStr):
                parts = [p.value if isinstance(p, ast.Constant) else '…' for p in node.values]
                found.add(''.join(parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
    return frozenset(found)


def test_the_document_quotes_texts():
    assert len(QUOTED) > 25
    assert len(QUOTED) == len(set(QUOTED))


@pytest.mark.parametrize('quoted', QUOTED)
def test_every_quoted_text_is_in_the_code(quoted):
    assert any(quoted in text for text in texts()), f'{quoted}: nothing says so'


def test_a_text_that_nobody_says_would_be_found():
    assert not any('the moon is in the way' in text for text in texts())
