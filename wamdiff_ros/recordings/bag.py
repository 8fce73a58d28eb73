"""Read and write rosbag2 recordings without a ROS installation, through `rosbags`.

Knows the project's own messages. Messages are plain objects of the `rosbags` type store here;
their fields are named as in the .msg files.
"""

import shutil
from collections.abc import Collection, Iterator
from contextlib import ExitStack, suppress
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from backports import zstd
from rosbags.interfaces import Connection, MessageDefinition, MessageDefinitionFormat
from rosbags.rosbag2 import (
    CompressionFormat,
    CompressionMode,
    Reader,
    StoragePlugin,
    Writer,
    WriterError,
)
from rosbags.rosbag2.storage_mcap import McapReader
from rosbags.serde import SerdeError
from rosbags.typesys import (
    Stores,
    TypesysError,
    get_types_from_idl,
    get_types_from_msg,
    get_typestore,
)
from rosbags.typesys.store import Typestore

from ..share import share_path
from .bag_files import BagError, opened_storage, storage_files

RESERVE_BYTES = 32_000_000  # room that is left on the disk so that a bag can still be finished
ZSTD_MAGIC = b'\x28\xb5\x2f\xfd'


@cache
def typestore(distribution: str = '') -> Typestore:
    """Return the ROS 2 message types together with wamdiff_ros/msg/*.

    Of the distribution, 'humble', or of Jazzy where that is none that `rosbags` knows.
    """
    names = {store.value: store for store in Stores}
    store = get_typestore(names.get(f'ros2_{distribution}', Stores.ROS2_JAZZY))
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
            with suppress(OSError):  # it tries to write what is still buffered
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


class BagReader:
    """Reads a bag, to be used as a context manager; one that is not finished as far as it goes.

    `topics` is {topic: (type name, number of messages)}; `notes` says what is odd about the bag,
    in sentences. Definitions that are in the bag count; without any (sqlite3 of ROS 2 Humble)
    those of the distribution that it names apply, or else Jazzy's. Methods raise BagError.
    """

    def __init__(self, bag: Path | str) -> None:
        self.path = Path(bag)
        self._stack = ExitStack()
        self._readers: list[Reader] = []
        self._stores: dict[str, Typestore] = {}
        files, self._distribution, self.notes = storage_files(self.path)
        try:
            for file in files:
                reader, note = self._stack.enter_context(opened_storage(file))
                self._readers.append(reader)
                self.notes += [note] if note else []
        except BaseException:
            self.close()
            raise
        self.topics: dict[str, tuple[str, int]] = {}
        for connection in self._connections():
            _, count = self.topics.get(connection.topic, ('', 0))
            self.topics[connection.topic] = (connection.msgtype, count + connection.msgcount)

    def close(self) -> None:
        """Close the files."""
        self._stack.close()

    def __enter__(self) -> 'BagReader':
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def duration_ns(self) -> int:
        """Time from the first to the last message, by the bag's clock."""
        times = [(r.start_time, r.end_time) for r in self._readers if r.message_count]
        if not times:
            return 0
        return max(0, max(end for _, end in times) - min(start for start, _ in times) - 1)

    def serialised(
        self, topics: Collection[str] | None = None
    ) -> Iterator[tuple[str, str, int, bytes]]:
        """Yield (topic, type name, bag time [ns], CDR) in the bag's order; None: all topics."""
        for reader in self._readers:
            chosen = [c for c in reader.connections if topics is None or c.topic in topics]
            if not chosen:  # an empty list would mean "all" to the reader
                continue
            messages = _messages_of(reader, chosen)
            while True:
                try:
                    connection, stamp_ns, data = next(messages)
                    # Compressed message by message; CDR begins with a zero.
                    cdr = zstd.decompress(data) if bytes(data[:4]) == ZSTD_MAGIC else bytes(data)
                except StopIteration:
                    break
                except Exception as error:  # decompressors and the database have their own
                    raise BagError(
                        f'{reader.path}: is damaged, it cannot be read on from here ({error})'
                    ) from error
                yield connection.topic, connection.msgtype, stamp_ns, cdr

    def messages(
        self, topics: Collection[str] | None = None
    ) -> Iterator[tuple[str, str, int, Any]]:
        """Yield like `serialised`, with the message in place of its bytes."""
        for topic, type_name, stamp_ns, cdr in self.serialised(topics):
            yield topic, type_name, stamp_ns, self.deserialise(topic, type_name, cdr)

    def deserialise(self, topic: str, type_name: str, cdr: bytes) -> Any:
        """Return the message."""
        if type_name not in self._stores:
            self._stores[type_name] = self._store_of(topic, type_name)
        try:
            return self._stores[type_name].deserialize_cdr(cdr, type_name)
        except SerdeError as error:
            raise BagError(
                f'{self.path}: a {type_name} on {topic} is corrupt ({error})'
            ) from error

    def _connections(self) -> Iterator[Connection]:
        for reader in self._readers:
            yield from reader.connections

    def _store_of(self, topic: str, type_name: str) -> Typestore:
        for connection in self._connections():
            if connection.msgtype == type_name and connection.msgdef.data:
                try:
                    store = _defined_store(connection.msgdef, type_name)
                    store.get_msgdef(type_name)  # with all that it refers to
                    return store
                except (TypesysError, KeyError, RecursionError) as error:
                    raise BagError(
                        f'{self.path}: the definition of {type_name} cannot be read ({error})'
                    ) from error
        store = typestore(self._distribution)
        if type_name not in store.fielddefs:
            raise BagError(
                f'{self.path}: {topic} carries {type_name}, which is defined neither in the bag '
                f'nor in ROS 2 {self._distribution or "jazzy"}; record it as mcap, which holds '
                'the definitions, or leave the topic out'
            )
        return store


def read_messages(
    bag: Path | str, topics: Collection[str] | None = None
) -> Iterator[tuple[str, str, int, Any]]:
    """Yield (topic, type name, bag time [ns], message) in the bag's order. Raises BagError.

    `topics` restricts to these; None reads all.
    """
    with BagReader(bag) as reader:
        yield from reader.messages(topics)


def read_serialised(
    bag: Path | str, topics: Collection[str] | None = None
) -> Iterator[tuple[str, str, int, bytes]]:
    """Yield like `read_messages`, with the CDR bytes in place of the message."""
    with BagReader(bag) as reader:
        yield from reader.serialised(topics)


def bag_topics(bag: Path | str) -> dict[str, tuple[str, int]]:
    """Return {topic: (type name, number of messages)} of the bag. Raises BagError."""
    with BagReader(bag) as reader:
        return reader.topics


def bag_duration_ns(bag: Path | str) -> int:
    """Return the time from the first to the last message. Raises BagError."""
    with BagReader(bag) as reader:
        return reader.duration_ns


def _messages_of(reader: Reader, connections: list[Connection]) -> Iterator[tuple]:
    storage = reader.storage
    if isinstance(storage, McapReader) and not storage.chunks:
        # Without an index, `messages` would insist on the order of time.
        return storage.messages_scan(connections)
    return reader.messages(connections)


@lru_cache(maxsize=256)  # reading a definition takes longer than a thousand messages
def _defined_store(definition: MessageDefinition, type_name: str) -> Typestore:
    """Return the type as a bag defines it, and those in it."""
    types: dict = {}
    if definition.format is MessageDefinitionFormat.MSG:
        types = get_types_from_msg(definition.data, type_name)
    else:
        for part in definition.data.split('=' * 80 + '\n'):
            text = part.partition('\n')[2] if part.startswith('IDL: ') else part
            if text.strip():
                types.update(get_types_from_idl(text))
    store = get_typestore(Stores.EMPTY)
    store.register(types)
    return store
