import os
import pickle
import tarfile

import numpy as np
import pytest

from wamdiff_ros.training.records import ConversationRecord
from wamdiff_ros.training.shards import ShardError, Shards, ShardWriter


def record(number):
    return ConversationRecord(
        f'<image>question {number}', f'answer {number}', {'jpg': bytes([number]) * (500 + number)}
    )


@pytest.fixture
def shard(tmp_path):
    path = tmp_path / 'shard-000000.tar'
    with ShardWriter(path) as writer:
        for number in range(5):
            writer.write(f'{number:06d}', record(number))
    return path


def test_records_come_back_in_any_order(shard):
    shards = Shards(shard.parent)
    assert len(shards) == 5
    for number in (3, 0, 4, -1):
        assert shards[number].question == record(number % 5).question
        assert shards[number].images == record(number % 5).images
    assert shards.key(2) == '000002'
    with pytest.raises(IndexError):
        shards[5]


def test_the_kept_index_is_used_and_made_anew_when_the_shard_changes(shard):
    Shards(shard)
    assert shard.with_suffix('.index.json').is_file()
    assert len(Shards(shard)) == 5
    with ShardWriter(shard) as writer:
        writer.write('other', record(9))
    os.utime(shard, ns=(1, 1))
    assert [Shards(shard).key(0), len(Shards(shard))] == ['other', 1]
    shard.with_suffix('.index.json').write_text('[]')
    assert len(Shards(shard)) == 1


@pytest.mark.parametrize('cut', [0.2, 0.3, 0.45])
def test_a_shard_cut_short_is_refused_by_name_and_place(shard, cut):
    data = shard.read_bytes()
    shard.write_bytes(data[: int(len(data) * cut) // 512 * 512 + 100])
    with pytest.raises(ShardError, match=r'shard-000000\.tar.*byte \d+'):
        Shards(shard)


def test_a_shard_that_ends_between_two_records_is_refused(shard):
    with tarfile.open(shard) as tar:
        end = tar.getmembers()[4].offset
    shard.write_bytes(shard.read_bytes()[:end])
    with pytest.raises(ShardError, match=f'byte {end}, after 2 records'):
        Shards(shard)


def test_a_shard_cut_short_after_it_was_opened_is_noticed(shard):
    shards = Shards(shard)
    os.truncate(shard, 2000)
    with pytest.raises(ShardError, match=r'00000\d\.\w+ at byte \d+'):
        shards[4]


def test_a_broken_record_is_named(shard):
    data = shard.read_bytes()
    assert data.count(b'"human"') == 5
    shard.write_bytes(data.replace(b'"human"', b'"nobod"', 1))
    with pytest.raises(ShardError, match=r'shard-000000\.tar: 000000\.json at byte \d+.*"human"'):
        Shards(shard)[0]


def test_a_shard_appears_only_when_it_is_whole(tmp_path):
    with (
        pytest.raises(RuntimeError, match='lights out'),
        ShardWriter(tmp_path / 'shard-000000.tar') as writer,
    ):
        writer.write('a', record(0))
        raise RuntimeError('lights out')
    assert list(tmp_path.iterdir()) == []


def test_equal_records_give_equal_files(shard, tmp_path):
    other = tmp_path / 'other.tar'
    with ShardWriter(other) as writer:
        for number in range(5):
            writer.write(f'{number:06d}', record(number))
    assert other.read_bytes() == shard.read_bytes()


def test_keys_that_webdataset_would_misread_are_refused(tmp_path):
    with ShardWriter(tmp_path / 'a.tar') as writer:
        writer.write('a', record(0))
        for key in ('a', 'b.c', 'd/e', ''):
            with pytest.raises(ValueError, match='key'):
                writer.write(key, record(1))


def test_open_shards_can_be_sent_to_another_process(shard):
    shards = Shards(shard)
    expected = shards[1].question
    assert pickle.loads(pickle.dumps(shards))[1].question == expected


def test_a_folder_without_shards_is_refused(tmp_path):
    with pytest.raises(ShardError, match='no shards'):
        Shards(tmp_path)


def test_the_library_webdataset_reads_the_same_records(shard):
    webdataset = pytest.importorskip('webdataset', reason='webdataset is not installed')
    samples = list(webdataset.WebDataset(str(shard), shardshuffle=False).decode())
    assert [s['__key__'] for s in samples] == [f'{n:06d}' for n in range(5)]
    assert [s['json'] for s in samples] == [record(n).to_json() for n in range(5)]
    assert np.array_equal([len(s['jpg']) for s in samples], [500, 501, 502, 503, 504])
