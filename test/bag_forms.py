"""One recording in every form that rosbag2 gives it, and as a killed recorder leaves it."""

import shutil
from pathlib import Path

import yaml
from rosbags.rosbag2 import CompressionFormat, CompressionMode, StoragePlugin, Writer

from wamdiff_ros.recordings.bag import read_messages, typestore

SQLITE, MCAP = StoragePlugin.SQLITE3, StoragePlugin.MCAP
FILE, MESSAGE, CHUNK = CompressionMode.FILE, CompressionMode.MESSAGE, CompressionMode.STORAGE


def write(path, messages, plugin=MCAP, compression=None):
    """Write [(topic, type name, bag time, message)] and return the path of the bag."""
    writer = Writer(path, version=9, storage_plugin=plugin)
    if compression is not None:
        writer.set_compression(compression, CompressionFormat.ZSTD)
    with writer:
        connections = {}
        for topic, type_name, stamp_ns, message in messages:
            if topic not in connections:
                connections[topic] = writer.add_connection(topic, type_name, typestore=typestore())
            cdr = typestore().serialize_cdr(message, type_name)
            writer.write(connections[topic], stamp_ns, cdr)
    return path


def split(path, messages, plugin=MCAP, parts=3):
    """Write a bag of several files, with the metadata.yaml that rosbag2 would write."""
    size = -(-len(messages) // parts)
    whole = write(path, messages, plugin)
    suffix = storage(whole).suffix
    storage(whole).unlink()
    names = [f'{path.name}_{i}{suffix}' for i in range(parts)]
    for i, name in enumerate(names):
        part = write(path / 'part', messages[i * size : (i + 1) * size], plugin)
        shutil.move(storage(part), path / name)
        shutil.rmtree(part)
    metadata = yaml.safe_load((path / 'metadata.yaml').read_text())
    metadata['rosbag2_bagfile_information']['relative_file_paths'] = names
    (path / 'metadata.yaml').write_text(yaml.safe_dump(metadata))
    return path


def without_metadata(bag):
    (bag / 'metadata.yaml').unlink()
    return bag


def storage(bag):
    """Return the path of a bag's only file."""
    (file,) = [f for f in Path(bag).iterdir() if f.name != 'metadata.yaml']
    return file


def cut(bag, share):
    """Leave the first part of the bag's only file, and no metadata, as a killed recorder does."""
    file = storage(bag)
    file.write_bytes(file.read_bytes()[: int(file.stat().st_size * share)])
    return without_metadata(bag)


def messages_of(bag):
    return list(read_messages(bag))
