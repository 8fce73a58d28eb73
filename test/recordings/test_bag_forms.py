"""Every form of a recording is read, and one that is not finished as far as it goes."""

import shutil
import sqlite3

import bag_forms
import pytest
from bag_forms import CHUNK, FILE, MCAP, MESSAGE, SQLITE
from recording import START_NS, header, image, message, odometry, sensor_bag, write

from wamdiff_ros.recordings.bag import ZSTD_MAGIC, BagError, BagReader, bag_topics, read_messages

FORMS = {
    'sqlite3': lambda path, m: bag_forms.write(path, m, SQLITE),
    'mcap': lambda path, m: bag_forms.write(path, m, MCAP),
    'compressed chunks': lambda path, m: bag_forms.write(path, m, MCAP, CHUNK),
    'mcap, messages compressed': lambda path, m: bag_forms.write(path, m, MCAP, MESSAGE),
    'sqlite3, messages compressed': lambda path, m: bag_forms.write(path, m, SQLITE, MESSAGE),
    'mcap, files compressed': lambda path, m: bag_forms.write(path, m, MCAP, FILE),
    'sqlite3, files compressed': lambda path, m: bag_forms.write(path, m, SQLITE, FILE),
    'split mcap': bag_forms.split,
    'split sqlite3': lambda path, m: bag_forms.split(path, m, SQLITE),
}


@pytest.fixture(scope='module')
def messages():
    return list(read_messages(sensor_bag()))


def facts(read):
    return [(topic, kind, ns, entry.header.stamp) for topic, kind, ns, entry in read]


@pytest.mark.parametrize('form', FORMS)
@pytest.mark.parametrize('metadata', [True, False])
def test_every_form_holds_the_same_messages(form, metadata, messages, tmp_path):
    bag = FORMS[form](tmp_path / 'bag', messages)
    if not metadata:
        bag_forms.without_metadata(bag)
    with BagReader(bag) as reader:
        assert facts(reader.messages()) == facts(messages)
        assert reader.topics == bag_topics(sensor_bag())
        assert ['no metadata.yaml' in note for note in reader.notes] == [True] * (not metadata)


@pytest.mark.parametrize('form', ['sqlite3', 'mcap', 'mcap, files compressed'])
def test_a_file_alone_is_a_bag(form, messages, tmp_path):
    bag = FORMS[form](tmp_path / 'bag', messages)
    file = shutil.copy(bag_forms.storage(bag), tmp_path)
    assert facts(read_messages(file)) == facts(messages)


@pytest.mark.parametrize('compression', [None, CHUNK])
def test_an_unfinished_mcap_is_read_up_to_its_last_whole_record(compression, messages, tmp_path):
    many = [(*entry[:2], entry[2] + i, entry[3]) for i in range(20) for entry in messages]
    bag = bag_forms.write(tmp_path / 'bag', many, MCAP, compression)
    whole = sum(count for _, count in bag_topics(bag).values())
    bag_forms.cut(bag, 0.7)
    with BagReader(bag) as reader:
        read = facts(reader.messages())
        assert any('not finished' in note for note in reader.notes)
        assert sum(count for _, count in reader.topics.values()) == len(read)
    assert read == facts(many)[: len(read)]
    assert 0.3 * whole < len(read) < whole


def test_an_mcap_that_ends_in_zeros_is_read_up_to_there(messages, tmp_path):
    bag = bag_forms.write(tmp_path / 'bag', messages * 10, MCAP)
    bag_forms.cut(bag, 0.7)
    before = facts(read_messages(bag))
    file = bag_forms.storage(bag)
    file.write_bytes(file.read_bytes() + bytes(100_000))
    assert before
    assert facts(read_messages(bag)) == before


def test_messages_out_of_order_in_an_mcap_without_index_come_in_the_order_of_the_file(tmp_path):
    stamps = [START_NS + i for i in (3, 1, 2)] * 2000
    entries = [('/odometry', ns, odometry(ns, 0.0, 0.0, 0.0, 1.0)) for ns in stamps]
    bag = bag_forms.write(
        tmp_path / 'bag', [(t, 'nav_msgs/msg/Odometry', ns, m) for t, ns, m in entries]
    )
    bag_forms.cut(bag, 0.9)
    read = [ns for _, _, ns, _ in read_messages(bag)]
    assert len(read) > 3000
    assert read == stamps[: len(read)]


def test_a_damaged_chunk_ends_the_reading_and_is_named(messages, tmp_path):
    bag = bag_forms.write(tmp_path / 'bag', messages, MCAP, CHUNK)
    file = bag_forms.storage(bag)
    data = bytearray(file.read_bytes())
    at = data.index(ZSTD_MAGIC)
    data[at : at + 64] = bytes(64)
    file.write_bytes(data)
    with pytest.raises(BagError, match=r'bag\.mcap: is damaged'):
        list(read_messages(bag))


def test_a_write_ahead_log_of_a_killed_recorder_is_read_too(messages, tmp_path):
    bag = bag_forms.write(tmp_path / 'bag', messages[:-50], SQLITE)
    file = bag_forms.storage(bag)
    database = sqlite3.connect(file)
    database.execute('PRAGMA journal_mode = WAL')
    again = 'SELECT id + 1000, topic_id, timestamp, data FROM messages'
    database.execute(f'INSERT INTO messages {again}')
    database.commit()
    killed = tmp_path / 'killed'
    killed.mkdir()
    for path in bag.glob('*.db3*'):  # before the connection closes and takes the log in
        shutil.copy(path, killed)
    database.close()
    assert (killed / 'bag.db3-wal').stat().st_size
    before = {path.name: path.read_bytes() for path in killed.iterdir()}
    with BagReader(killed) as reader:
        assert len(list(reader.messages())) == 2 * (len(messages) - 50)
        assert any('db3-wal' in note for note in reader.notes)
    assert {path.name: path.read_bytes() for path in killed.iterdir()} == before


@pytest.mark.parametrize(
    ('make', 'words'),
    [
        (lambda file: file.write_bytes(b''), 'empty, or no mcap'),
        (lambda file: file.write_bytes(b'\x89MCAP0\r\n\x01\x20'), 'ends within its header'),
        (lambda file: file.write_bytes(b'some text'), 'empty, or no mcap'),
        (lambda file: file.rename(file.with_suffix('.db3')), 'recover'),
    ],
)
def test_a_file_that_is_none_is_refused_by_name(make, words, messages, tmp_path):
    file = bag_forms.storage(bag_forms.write(tmp_path / 'bag', messages[:3]))
    make(file)
    bag_forms.without_metadata(tmp_path / 'bag')
    with pytest.raises(BagError, match=r'bag\.(mcap|db3): .*' + words):
        list(read_messages(tmp_path / 'bag'))


def test_an_unfinished_database_is_refused_with_the_remedy(messages, tmp_path):
    bag = bag_forms.cut(bag_forms.write(tmp_path / 'bag', messages, SQLITE), 0.6)
    with pytest.raises(BagError, match='recover'):
        list(read_messages(bag))


def test_a_missing_part_is_noted(messages, tmp_path):
    bag = bag_forms.split(tmp_path / 'bag', messages)
    (bag / 'bag_1.mcap').unlink()
    with BagReader(bag) as reader:
        assert reader.notes == [f'{bag}/bag_1.mcap: is missing']
        assert 0 < len(list(reader.messages())) < len(messages)


def test_parts_come_in_the_order_of_their_numbers(messages, tmp_path):
    bag = bag_forms.without_metadata(bag_forms.split(tmp_path / 'bag', messages, parts=12))
    assert (bag / 'bag_11.mcap').exists()
    times = [ns for _, _, ns, _ in read_messages(bag)]
    assert times == sorted(times)


def test_a_message_that_is_corrupt_is_named(tmp_path):
    bag = write(tmp_path / 'bag', [('/image', START_NS, image(START_NS))])
    with BagReader(bag) as reader, pytest.raises(BagError, match='/image is corrupt'):
        reader.deserialise('/image', 'sensor_msgs/msg/CompressedImage', b'\0\1\0\0' + b'\xff' * 40)


def test_a_type_that_nobody_defines_is_named_with_the_remedy(tmp_path):
    entry = message('std_msgs/msg/Header', stamp=header(1).stamp, frame_id='')
    bag = bag_forms.write(tmp_path / 'bag', [('/a', 'std_msgs/msg/Header', 1, entry)], SQLITE)
    database = sqlite3.connect(bag_forms.storage(bag))
    database.execute("UPDATE topics SET type = 'vendor_msgs/msg/Radar'")
    database.commit()
    database.close()
    bag_forms.without_metadata(bag)
    with pytest.raises(BagError, match=r'vendor_msgs/msg/Radar.*neither in the bag nor in ROS 2'):
        list(read_messages(bag))
    assert bag_topics(bag) == {'/a': ('vendor_msgs/msg/Radar', 1)}  # others can still be read
