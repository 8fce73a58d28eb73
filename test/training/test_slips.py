"""Numbers that begin wrongly in training."""

from pathlib import Path

import numpy as np
import pytest

from wamdiff_ros.model.config import load_config
from wamdiff_ros.model.tokenizer import Tokenizer
from wamdiff_ros.training.block_layout import Layout, fill_answer, lay_out_blocks
from wamdiff_ros.training.conversations import write_displacements, write_fixed_width
from wamdiff_ros.training.noise import Noise, content_tokens, token_texts
from wamdiff_ros.training.slips import Slips, nearest

NANO = Path(__file__).parents[2] / 'models/nano'
CONFIG = load_config(NANO)
TOKENIZER = Tokenizer.load(NANO, CONFIG)
TEXTS = token_texts(TOKENIZER, CONFIG.text.vocab_size)
for _token in CONFIG.eos_token_ids:
    TEXTS[_token] = ''
BLOCK = 32
WAYPOINTS = [(5.2, 0.1), (12.3, -1.4), (20.0, -3.0), (26.9, -4.1),
             (33.0, -5.0), (38.9, -6.1), (45.1, -7.2), (51.0, -8.0)]  # fmt: skip
TEXT = write_fixed_width(WAYPOINTS)
DISPLACEMENTS = write_displacements(WAYPOINTS)


def blocks(text: str) -> np.ndarray:
    filled = fill_answer(TOKENIZER.encode(text), CONFIG.eos_token_ids[0], BLOCK)
    return np.array(filled).reshape(-1, BLOCK)


def text_of(tokens: np.ndarray) -> str:
    return ''.join(TEXTS[token] for token in tokens.reshape(-1))


def hidden_from(answer: np.ndarray, digit: int) -> np.ndarray:
    """Hide the digits of every number from the one at this place on, but no punctuation."""
    masked, place = np.zeros(answer.size, bool), 0
    for slot, token in enumerate(answer.reshape(-1)):
        text = TEXTS[token]
        place = 0 if ',' in text else place
        masked[slot] = text.isdecimal() and place >= digit
        place += text.isdecimal()
    return masked.reshape(answer.shape)


@pytest.mark.parametrize(
    ('begins', 'truth', 'wanted'),
    [
        ('4', '38.20', '40.00'),
        ('3', '41.30', '39.90'),
        ('39', '40.10', '39.90'),
        ('+', '-01.40', '+00.00'),
        ('-', '+01.40', '-00.00'),
        ('-02', '-01.40', '-02.00'),
        ('-00', '-01.40', '-00.90'),
        ('05', '062', '059'),
        ('06', '058', '060'),
        ('-01', '-023', '-019'),
        ('-', '+003', '-000'),
    ],
)
def test_the_best_end_of_a_number_makes_it_the_nearest_that_begins_so(begins, truth, wanted):
    assert nearest(begins, truth) == wanted
    digits = [f'{n / 10:05.2f}' if '.' in truth else f'{n:03d}' for n in range(1000)]
    signs = '+-' if begins[0] in '+-' else ('',)
    numbers = [sign + number for number in digits for sign in signs]
    best = min(abs(float(one) - float(truth)) for one in numbers if one.startswith(begins))
    assert abs(float(wanted) - float(truth)) == pytest.approx(best)


@pytest.mark.parametrize('text', (TEXT, DISPLACEMENTS))
def test_a_slip_changes_shown_digits_and_the_hidden_ones_are_the_best_end(text):
    answer, random = blocks(text), np.random.default_rng(0)
    masked, hidden = hidden_from(answer, 2), len('.00' if '.' in text else '0')
    changed = 0
    for _ in range(50):
        shown, labels = Slips(TEXTS, 0.5).add(answer, masked, random)
        for seen, learnt, true in zip(
            *(text_of(part).split(',') for part in (shown, labels)), text.split(','), strict=True
        ):
            if seen == true:
                assert learnt == true
                continue
            changed += 1
            assert seen[-hidden:] == true[-hidden:]
            assert learnt == nearest(seen[:-hidden], true)
    assert changed > 50


def test_larger_errors_slip_more_and_none_never():
    answer, masked = blocks(TEXT), hidden_from(blocks(TEXT), 2)
    counts = []
    for error_mps in (0.0, 0.1, 1.0):
        slips, random = Slips(TEXTS, error_mps), np.random.default_rng(0)
        counts.append(
            sum((slips.add(answer, masked, random)[0] != answer).sum() for _ in range(30))
        )
    assert counts[0] == 0 < counts[1] < counts[2]


@pytest.mark.parametrize('hidden', (True, False))
def test_numbers_that_are_hidden_or_shown_as_a_whole_stay(hidden):
    answer, random = blocks(TEXT), np.random.default_rng(0)
    shown, labels = Slips(TEXTS, 5.0).add(answer, np.full(answer.shape, hidden), random)
    assert (shown == answer).all() and (labels == answer).all()


def test_numbers_across_two_blocks_stay():
    answer = blocks(TEXT)
    texts = [TEXTS[token] for token in answer.reshape(-1)]
    edge = len(''.join(texts[:BLOCK]))
    straddling = [
        number
        for number in range(16)
        if len(','.join(TEXT.split(',')[:number])) < edge
        < len(','.join(TEXT.split(',')[: number + 1]))
    ]  # fmt: skip
    assert straddling
    slips, random = Slips(TEXTS, 5.0), np.random.default_rng(0)
    for _ in range(20):
        shown, _ = slips.add(answer, hidden_from(answer, 2), random)
        for number in straddling:
            assert text_of(shown).split(',')[number] == TEXT.split(',')[number]


@pytest.mark.parametrize('text', ('longitudinal: keep_speed', '05.20 m, +00.10 m', ''))
def test_answers_without_waypoints_stay(text):
    answer = blocks(text)
    shown, labels = Slips(TEXTS, 5.0).add(answer, hidden_from(answer, 1), np.random.default_rng(0))
    assert (shown == answer).all() and (labels == answer).all()


def test_only_blocks_masked_in_turn_slip_and_the_layout_learns_the_labels():
    content = content_tokens(TOKENIZER, CONFIG.text.vocab_size)
    answer = blocks(TEXT).reshape(-1)
    slipped = {}
    for in_turn in (0.0, 1.0):
        noise = Noise(
            Layout(BLOCK, 2, in_turn=in_turn), CONFIG.mask_token_id, content, Slips(TEXTS, 0.5)
        )
        random = np.random.default_rng(0)
        slipped[in_turn] = [noise.add(answer, random) for _ in range(50)]
    assert all((labels == answer).all() for *_, labels in slipped[0.0])
    noisy, levels, weights, labels = next(
        one for one in slipped[1.0] if not (one[3] == answer).all()
    )
    masked = noisy == CONFIG.mask_token_id
    assert not (labels == answer)[masked].all()
    prompt = type('Prompt', (), {'token_ids': [1], 'positions': np.zeros((3, 1)),
                                 'next_position': 1, '__len__': lambda self: 1})()  # fmt: skip
    batch = lay_out_blocks(
        [prompt], [answer], [noisy], [levels], BLOCK, CONFIG.mask_token_id,
        weights=[weights], labels=[labels],
    )  # fmt: skip
    assert batch.labels.tolist() == labels[masked].tolist()
