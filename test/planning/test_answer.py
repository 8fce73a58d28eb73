import json
import re

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from wamdiff_ros.planning.answer import (
    MAX_DESCRIPTION_LENGTH,
    Refusal,
    WaypointForm,
    Waypoints,
    format_waypoints,
    parse_description,
    parse_waypoints,
)

VALUES = [2.5, 0.0, 5.01, -0.02, 7.5, -0.1, 10.0, -0.25, 12.5, -0.5, 15, -0.8, 17.4, -1.2, 20, -2]
PLAIN = ','.join(str(value) for value in VALUES)
PAIRS = list(zip(VALUES[::2], VALUES[1::2], strict=True))


@pytest.mark.parametrize(
    'text',
    [
        PLAIN,
        f'  {PLAIN}\n',
        PLAIN.replace(',', ', '),
        PLAIN.replace(',', ' ,\n'),
        PLAIN.replace(',', ' '),
        PLAIN.replace(',', ';'),
        PLAIN.replace(',', '，'),
        PLAIN + ',',
        PLAIN + '.',
        PLAIN + '. ',
        PLAIN + ',\n',
        f'[{PLAIN}]',
        f'[{PLAIN},]',
        f'({PLAIN}).',
        'Answer: ' + PLAIN,
        'answer:' + PLAIN,
        'ANSWER：' + PLAIN,
        'Trajectory = ' + PLAIN,
        'Waypoints:\n' + PLAIN,
        ','.join(f'({x},{y})' for x, y in PAIRS),
        ' '.join(f'({x}, {y})' for x, y in PAIRS),
        ''.join(f'({x},{y})' for x, y in PAIRS),
        '\n'.join(f'[{x}, {y}],' for x, y in PAIRS),
        json.dumps(PAIRS),
        '（' + '），（'.join(f'{x}，{y}' for x, y in PAIRS) + '）',
        ','.join(f'{value:+.2f}' for value in VALUES),
        ','.join(f'{value:.3e}' for value in VALUES),
        re.sub(r'\b0\.', '.', PLAIN),
        PLAIN.replace('15,', '15.,'),
    ],
)
def test_tolerated_forms_give_the_same_waypoints(text):
    parsed = parse_waypoints(text)
    assert isinstance(parsed, Waypoints), parsed
    assert parsed.xy_base_m.shape == (8, 2)
    assert np.allclose(parsed.xy_base_m.ravel(), VALUES, rtol=1e-3, atol=1e-9)


def with_first(word):
    return ','.join([word, *PLAIN.split(',')[1:]])


@pytest.mark.parametrize(
    ('text', 'words'),
    [
        ('', 'empty'),
        (' \n', 'empty'),
        ('...', 'empty'),
        (',', 'empty'),
        ('[]', 'empty'),
        ('Answer:', 'empty'),
        ('1,2,3', '3 numbers, wanted 16'),
        (','.join(PLAIN.split(',')[:15]), '15 numbers, wanted 16'),
        (PLAIN + ',1', '17 numbers, wanted 16'),
        (with_first('nan'), "'nan' is not finite"),
        (with_first('-inf'), "'-inf' is not finite"),
        (with_first('Infinity'), "'Infinity' is not finite"),
        (with_first('1e999'), "'1e999' m is farther than 200 m"),
        (with_first('-1e400'), "'-1e400' m is farther"),
        (with_first('9' * 500), 'm is farther than 200 m'),
        (with_first('200.01'), "'200.01' m is farther than 200 m"),
        (with_first('-1000'), "'-1000' m is farther than 200 m"),
        (with_first('1.2.3'), "'1.2.3' is not a number"),
        (with_first('--1'), "'--1' is not a number"),
        (with_first('1-2'), "'1-2' is not a number"),
        (with_first('+-1'), "'+-1' is not a number"),
        (with_first('- 1'), "'-' is not a number"),
        (with_first('1e'), "'1e' is not a number"),
        (with_first('1_0'), "'1_0' is not a number"),
        (with_first('0x10'), "'0x10' is not a number"),
        (with_first('1m'), "'1m' is not a number"),
        (with_first('x=1'), "'x=1' is not a number"),
        (with_first('.'), "'.' is not a number"),
        (with_first('１'), r"'\uff11' is not a number"),
        (with_first('٣'), r"'\u0663' is not a number"),
        (with_first('−1'), r"'\u22121' is not a number"),
        (with_first('\x00'), r"'\x00' is not a number"),
        (with_first('\ud800'), r"'\ud800' is not a number"),
        (with_first('{1'), "'{1' is not a number"),
        (with_first(''), 'nothing between two commas, at number 1'),
        (PLAIN.replace(',', ',,', 1), 'nothing between two commas, at number 2'),
        (PLAIN + ',,', 'nothing between two commas'),
        (PLAIN.replace(',', ' and ', 1), "'and' is not a number"),
        ('The vehicle goes ' + PLAIN, "'The' is not a number"),
        (PLAIN + ' is the answer', "'is' is not a number"),
        ('Answer: Answer: ' + PLAIN, "'Answer:' is not a number"),
        ('[' + PLAIN, 'brackets do not match'),
        (PLAIN + ')', 'brackets do not match'),
        ('(' + PLAIN + ']', 'brackets do not match'),
        ('<|mask|>', "'<|mask|>' is not a number"),
        ('1,' * 2000, 'answer of 4000 characters, limit 2000'),
    ],
)
def test_malformed_forms_give_a_reason(text, words):
    parsed = parse_waypoints(text)
    assert isinstance(parsed, Refusal)
    assert words in parsed.reason
    assert parsed.reason.isascii()
    assert len(parsed.reason) < 100


def test_other_counts():
    assert parse_waypoints('1,2,3,4', count=2).xy_base_m.tolist() == [[1, 2], [3, 4]]


@given(st.text())
@example('1' * 1999)
@example('(' * 1999)
@example('١,' * 16)
@example('\ud800')
def test_no_text_raises(text):
    assert isinstance(parse_waypoints(text), (Waypoints, Refusal))
    clean, sections = parse_description(text)
    assert isinstance(clean, str)
    assert isinstance(sections, tuple)


@given(st.text(alphabet='0123456789+-.,;()[]eE \nanif', max_size=150), st.integers(1, 8))
def test_no_nearly_right_text_raises_or_gives_unbounded_waypoints(text, count):
    parsed = parse_waypoints(text, count)
    if isinstance(parsed, Waypoints):
        assert parsed.xy_base_m.shape == (count, 2)
        assert np.abs(parsed.xy_base_m).max() <= 200


@given(st.lists(st.floats(-200, 200), min_size=16, max_size=16))
def test_formatting_and_parsing_round_trip(values):
    xy_base_m = np.array(values).reshape(8, 2)
    text = format_waypoints(xy_base_m)
    assert '-0.00' not in text.split(',')
    parsed = parse_waypoints(text)
    assert np.abs(parsed.xy_base_m - xy_base_m).max() <= 0.005 + 1e-9
    assert format_waypoints(parsed.xy_base_m) == text


def test_format_has_two_decimals_and_no_negative_zero():
    assert format_waypoints(np.array([[1.005, -0.001], [-2, 0.5]])) in (
        '1.00,0.00,-2.00,0.50',
        '1.01,0.00,-2.00,0.50',
    )


@pytest.mark.parametrize('bad', [np.zeros(16), np.full((8, 2), np.nan), np.zeros((8, 3))])
def test_format_refuses_what_is_no_waypoints(bad):
    with pytest.raises(ValueError, match='waypoints'):
        format_waypoints(bad)


def test_free_text_passes():
    text = 'A wet road. A cyclist is ahead: keep left.'
    assert parse_description(f'\n {text} ') == (text, ())


def test_json_object_of_strings_gives_sections():
    text = '{"road": "wet", "critical objects": "a cyclist"}'
    assert parse_description(text) == (text, (('road', 'wet'), ('critical objects', 'a cyclist')))


def test_named_lines_give_sections():
    text = 'road: wet\n\ncritical_objects : a cyclist: slow'
    sections = (('road', 'wet'), ('critical_objects', 'a cyclist: slow'))
    assert parse_description(text) == (text, sections)


@pytest.mark.parametrize(
    'text', ['{"a": 1}', '["a"]', '"a"', 'null', 'road: wet\nmore', '12:30 h']
)
def test_other_forms_have_no_sections(text):
    assert parse_description(text) == (text, ())


def test_control_characters_are_removed():
    hostile = 'a\x00\x1b[31mb\u202ec\r\nd\te\ud800'
    assert parse_description(hostile) == ('a[31mbc\nd e', ())
    assert parse_description('{"a": "x\\u0007y"}')[1] == (('a', 'xy'),)


@pytest.mark.parametrize('text', ['a' * 10**6, '[' * 10**6, '{"a":' * 10**5])
def test_length_of_a_description_is_bounded(text):
    clean, sections = parse_description(text)
    assert clean == text[:MAX_DESCRIPTION_LENGTH]
    assert sections == ()


@given(st.dictionaries(st.text(max_size=10), st.text(max_size=20), max_size=4))
def test_sections_of_any_json_are_clean_text(content):
    _, sections = parse_description(json.dumps(content))
    assert len(sections) == len(content)
    for pair in sections:
        for part in pair:
            part.encode('utf-8')


def test_displacements_add_up_from_the_vehicle_in_decimetres():
    text = '052,+001,+053,-003,+000,+000,-002,+010,+001,+000,+001,+000,+001,+000,+010,-005'
    parsed = parse_waypoints(text, form=WaypointForm.DISPLACEMENTS)
    assert parsed.xy_base_m[:4] == pytest.approx(
        np.array([(5.2, 0.1), (10.5, -0.2), (10.5, -0.2), (10.3, 0.8)])
    )
    assert parsed.xy_base_m[-1] == pytest.approx((11.6, 0.3))


@pytest.mark.parametrize(
    ('text', 'reason'),
    [
        (','.join(['251', '000'] * 8), '200.8 m in all is farther than 200 m'),
        (','.join(['000', '-251'] * 8), '200.8 m in all is farther than 200 m'),
        (','.join(['001', '000'] * 7), '14 numbers, wanted 16'),
        *(
            (
                ','.join(['052', '+001'] * 7 + ['052', number]),
                f'{number!r} has not three digits, the answer may be cut off',
            )
            for number in ('+01', '+0', '+0012', '+1.5', '1e2')
        ),
        ('', 'empty answer'),
    ],
)
def test_displacements_are_refused_like_positions(text, reason):
    assert parse_waypoints(text, form=WaypointForm.DISPLACEMENTS).reason == reason
