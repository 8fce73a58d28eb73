"""Every text in docs/troubleshooting.md is one that the code says; every reason has an entry."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENT = (ROOT / 'docs' / 'troubleshooting.md').read_text('utf8')
QUOTED = re.findall(r'^### `(.+)`$', DOCUMENT, re.MULTILINE)
ROBUSTNESS = (ROOT / 'docs' / 'robustness.md').read_text('utf8')
# fault | published | reason | recovery [s]
FAULTS = re.findall(r'^\| (.+) \| (.+) \| (.*) \| ([\d.]+) \|$', ROBUSTNESS, re.MULTILINE)
REASONS = sorted({r.strip() for _, _, r, _ in FAULTS if r.strip() and not r.startswith('none:')})
# The ego buffer says the same of both.
FILLED_IN = ('odometry', 'acceleration')


@cache
def texts() -> frozenset[str]:
    """Return the strings of the package; what an f-string fills in is `…`, repeated ones one."""
    found = set()
    for path in (ROOT / 'wamdiff_ros').rglob('*.py'):
        for node in ast.walk(ast.parse(path.read_text('utf8'))):
            if isinstance(node, ast.JoinedStr):
                parts = [p.value if isinstance(p, ast.Constant) else '…' for p in node.values]
                text = ''.join(parts)
                found |= {text, *(text.replace('…', word, 1) for word in FILLED_IN)}
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


def test_the_table_of_faults_gives_reasons():
    assert len(FAULTS) > 30
    assert len(REASONS) > 20


@pytest.mark.parametrize('reason', REASONS)
def test_every_reason_that_a_fault_gave_has_an_entry(reason):
    assert without_an_entry(reason) == ''


def test_a_reason_without_an_entry_would_be_found():
    told = 'odometry ends 1.2 s (limit 0.2 s) before t0; the moon is in the way'
    assert without_an_entry(told) == 'the moon is in the way'
    assert without_an_entry('the moon is in the w...') == 'the moon is in the w...'


def without_an_entry(reason):
    """Return what no entry quotes of a reason, which the table may have cut off."""
    reason = re.sub(r'^/[\w/]+: ', '', reason)  # the log's topic
    for quoted in QUOTED:
        pieces = [re.escape(piece) for piece in quoted.split('…')]
        # What ends with `…` goes on to the end of the reason.
        last = '.*' if quoted.endswith('…') else pieces[-1]
        reason = re.sub('.+?'.join([*pieces[:-1], last]), '', reason)
    reason = reason.strip(' ;()')
    begun = reason.endswith('...') and any(
        reason.startswith(quoted.partition('…')[0]) for quoted in QUOTED if quoted[0] != '…'
    )
    return '' if begun else reason
