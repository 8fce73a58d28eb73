import json

import pytest
from PIL import Image as Picture

from wamdiff_ros import cli
from wamdiff_ros.training.conversion import ConversionError, convert
from wamdiff_ros.training.shards import Shards


def entry(image, question='<image>\nWhere to?', answer='1.00,0.00'):
    return {
        'image': image,
        'conversations': [
            {'from': 'human', 'value': question},
            {'from': 'gpt', 'value': answer},
        ],
    }


@pytest.fixture
def source(tmp_path):
    (tmp_path / 'pictures').mkdir()
    for number, name in enumerate(('a.jpg', 'b.png', 'c.JPEG')):
        Picture.new('RGB', (40, 20), (number, 0, 0)).save(tmp_path / 'pictures' / name)
    return tmp_path / 'train.json'


def write(source, *entries):
    source.write_text(json.dumps(entries))
    return source


def test_pictures_and_words_are_taken_over_as_they_are(source, tmp_path):
    two = entry(['pictures/b.png', 'pictures/c.JPEG'], '<image><image>Compare.', 'Equal.')
    text = {'conversations': entry('', 'No picture?', 'No.')['conversations']}
    conversion = convert(
        write(source, entry('pictures/a.jpg'), two, text), tmp_path / 'out', records_per_shard=2
    )
    assert (conversion.records, conversion.shards, conversion.left_out) == (3, 2, ())
    first, second, third = Shards(tmp_path / 'out')
    assert first.images == {'jpg': (tmp_path / 'pictures' / 'a.jpg').read_bytes()}
    assert (first.question, first.answer) == ('<image>\nWhere to?', '1.00,0.00')
    assert list(second.images) == ['0.png', '1.jpg']
    assert (third.question, third.images) == ('No picture?', {})


def test_entries_without_their_pictures_are_left_out_and_listed(source, tmp_path):
    (tmp_path / 'pictures' / 'broken.jpg').write_bytes(b'not a picture')
    entries = [entry('pictures/a.jpg'), entry('gone.jpg'), entry('pictures/broken.jpg')]
    conversion = convert(write(source, *entries), tmp_path / 'out')
    assert conversion.records == len(Shards(tmp_path / 'out')) == 1
    assert conversion.left_out[0] == 'entry 1: gone.jpg: not there'
    assert conversion.left_out[1].startswith('entry 2: pictures/broken.jpg: ')


@pytest.mark.parametrize(
    ('bad', 'key'),
    [
        ('what', 'is a str'),
        ({'image': 'pictures/a.jpg'}, 'conversations: missing'),
        (entry(3), 'image: 3'),
        (entry('a.gif'), "image: 'a.gif'"),
        (entry('pictures/a.jpg', 'no mark'), 'conversations: .*<image>'),
        (entry('pictures/a.jpg', answer=None), 'conversations: value None'),
        ({**entry('pictures/a.jpg'), 'conversations': []}, 'conversations: '),
    ],
)
def test_an_entry_of_another_form_is_named_and_nothing_is_written(source, tmp_path, bad, key):
    write(source, entry('pictures/a.jpg'), bad)
    with pytest.raises(ConversionError, match=rf'train\.json: entry 1: {key}'):
        convert(source, tmp_path / 'out')
    assert not (tmp_path / 'out').exists()


@pytest.mark.parametrize('text', ['{', '{}', '[' * 100_000])
def test_a_file_that_is_no_list_is_named(source, tmp_path, text):
    source.write_text(text)
    with pytest.raises(ConversionError, match=r'train\.json: '):
        convert(source, tmp_path / 'out')


def test_a_folder_with_shards_is_not_mixed_with_others(source, tmp_path):
    convert(write(source, entry('pictures/a.jpg')), tmp_path / 'out')
    with pytest.raises(ConversionError, match='already'):
        convert(source, tmp_path / 'out')


def test_the_command_counts_lists_and_says_so_with_its_exit_code(source, tmp_path, capsys):
    write(source, entry('pictures/a.jpg'), entry('gone.jpg'))
    assert cli.main(['data', 'convert', str(source), str(tmp_path / 'out')]) == 1
    said = capsys.readouterr()
    assert '1 record' in said.out
    assert 'entry 1: gone.jpg: not there' in said.err
    assert 'entry 1: gone.jpg' in (tmp_path / 'out' / 'left_out.txt').read_text()
    write(source, entry('pictures/a.jpg'))
    assert cli.main(['data', 'convert', str(source), str(tmp_path / 'whole')]) == 0
    assert cli.main(['data', 'convert', str(tmp_path / 'none.json'), str(tmp_path / 'no')]) == 2
    assert 'none.json' in capsys.readouterr().err
