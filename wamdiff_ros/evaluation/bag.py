"""Read and write rosbag2 recordings without a ROS installation, through `rosbags`.

Knows the project's own messages. Messages are plain objects of the `rosbags` type store here;
their fields are named as in the .msg files.
"""

import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from rosbags.highlevel import AnyReader, AnyReaderError
from rosbags.rosbag2 import (
    CompressionFormat,
    CompressionMode,
    ReaderError,
    StoragePlugin,
    Writer,
    WriterError,
)
from rosbags.typesys import Stores, TypesysError, get_types_from_msg, get_typestore
from rosbags.typesys.store import Typestore

from ..share import share_path

RESERVE_BYTES = 32_000_000  # room that is left on the disk so that a bag can still be finished


class BagError(RuntimeError):
    """A bag cannot be read or written; the message names the file and the remedy."""


@cache
def typestore() -> Typestore:
    """Return the ROS 2 message types together with wamdiff_ros/msg/*."""
    store = get_typestore(Stores.ROS2_JAZZY)
    types: dict = {}
    for path in sorted(share_path('msg').glob('*.msg')):
        types.update(get_types_from_msg(path.read_text('utf8'), f'wamdiff_ros/msg/{path.stem}'))
    store.register(types)
    return store


class BagWriter:
    """Write serialised messages into a new mcap bag, to be used as a context manager.

    The bag is finished on every way out of the `with` block, an exception included. Raises
    BagError when the path exists, or as soon as the disk is nearly full: then everything up to
    that message is in the finished bag.
    """

    def __init__(self, path: Path | str, *, reserve_bytes: int = RESERVE_BYTES) -> None:
        self.path = Path(path)
        self.message_count = 0
        self._reserve_bytes = reserve_bytes
        self._unchecked_bytes = reserve_bytes  # the first message checks the disk
        self._connections: dict[str, Any] = {}
        try:
            self._writer = Writer(self.path, version=9, storage_plugin=StoragePlugin.MCAP)
            self._writer.set_compression(CompressionMode.STORAGE, CompressionFormat.ZSTD)
            self._writer.open()
        except WriterError as error:
            raise BagError(f'{self.path}: exists already; name a new folder') from error
        except OSError as error:
            raise BagError(f'{self.path}: cannot be created ({error.strerror})') from error

    def write(self, topic: str, type_name: str, stamp_ns: int, cdr: bytes) -> None:
        """Append one message: its CDR bytes, on `topic`, of `type_name` like 'pkg/msg/Name'."""
        self._check_disk(len(cdr))
        try:
            if topic not in self._connections:
                self._connections[topic] = self._writer.add_connection(
                    topic, type_name, typestore=typestore()
                )
            self._writer.write(self._connections[topic], stamp_ns, cdr)
        except TypesysError as error:
            raise BagError(f'{topic}: the message type {type_name} is not known') from error
        except OSError as error:
            raise BagError(f'{self.path}: writing failed ({error.strerror})') from error
        self.message_count += 1

    def write_message(self, topic: str, stamp_ns: int, message: Any) -> None:
        """Append one message of the type store."""
        type_name = message.__msgtype__
        cdr = bytes(typestore().serialize_cdr(message, type_name))
        self.write(topic, type_name, stamp_ns, cdr)

    def close(self) -> None:
        """Write the index and metadata.yaml; closing twice is fine."""
        if self._writer.storage is None:
            return
        try:
            self._writer.close()
        except OSError as error:
            self._writer.abort()
            raise BagError(
                f'{self.path}: could not be finished ({error.strerror}); its index is missing'
            ) from error

    def __enter__(self) -> 'BagWriter':
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check_disk(self, size: int) -> None:
        self._unchecked_bytes += size
        if self._unchecked_bytes < self._reserve_bytes / 4:
            return
        self._unchecked_bytes = 0
        free = shutil.disk_usage(self.path).free
        if free < self._reserve_bytes:
            raise BagError(
                f'{self.path}: only {free / 1e6:.0f} MB are left on the disk; the bag ends here, '
                f'after {self.message_count} messages'
            )


def read_messages(
    bag: Path | str, topics: Collection[str] | None = None
) -> Iterator[tuple[str, str, int, Any]]:
    """Yield (topic, type name, bag time [ns], message) in the order of the bag's time.

    `topics` restricts to these; None reads all. Raises BagError.
    """
    with _opened(bag) as reader:
        for connection, stamp_ns, cdr in _chosen_messages(reader, topics):
            message = reader.deserialize(cdr, connection.msgtype)
            yield connection.topic, connection.msgtype, stamp_ns, message


def read_serialised(
    bag: Path | str, topics: Collection[str] | None = None
) -> Iterator[tuple[str, str, int, bytes]]:
    """Yield like `read_messages`, with the CDR bytes in place of the message."""
    with _opened(bag) as reader:
        for connection, stamp_ns, cdr in _chosen_messages(reader, topics):
            yield connection.topic, connection.msgtype, stamp_ns, bytes(cdr)


def bag_topics(bag: Path | str) -> dict[str, tuple[str, int]]:
    """Return {topic: (type name, number of messages)} of the bag. Raises BagError."""
    topics: dict[str, tuple[str, int]] = {}
    with _opened(bag) as reader:
        for connection in reader.connections:
            _, count = topics.get(connection.topic, ('', 0))
            topics[connection.topic] = (connection.msgtype, count + connection.msgcount)
    return topics


def bag_duration_ns(bag: Path | str) -> int:
    """Return the time from the first to the last message. Raises BagError."""
    with _opened(bag) as reader:
        return max(0, reader.duration - 1) if reader.message_count else 0


def _chosen_messages(reader: AnyReader, topics: Collection[str] | None) -> Iterator[tuple]:
    chosen = [c for c in reader.connections if topics is None or c.topic in topics]
    if chosen:  # an empty list would mean "all" to the reader
        yield from reader.messages(chosen)


@contextmanager
def _opened(bag: Path | str) -> Iterator[AnyReader]:
    path = Path(bag)
    if not path.exists():
        raise BagError(f'{path}: no such bag')
    if path.suffix == '.bag':
        raise BagError(f'{path}: is a ROS 1 bag; convert it first with `rosbags-convert`')
    if path.is_dir() and not (path / 'metadata.yaml').exists():
        raise BagError(
            f'{path}: holds no metadata.yaml, so it is not a finished rosbag2 recording; '
            f'`ros2 bag reindex {path}` can repair one'
        )
    try:
        # Without definitions in the bag (sqlite3 of ROS 2 Humble) the default types apply.
        with AnyReader([path], default_typestore=typestore()) as reader:
            yield reader
    except (AnyReaderError, ReaderError, OSError) as error:
        raise BagError(f'{path}: cannot be read ({error})') from error
