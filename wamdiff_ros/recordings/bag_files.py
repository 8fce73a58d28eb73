"""The storage files of a recording, finished or not, and what has to be done before they are read.

A recorder that was killed leaves no metadata.yaml, an mcap without its end, or a database with a
journal beside it. All of them hold what was written until then.
"""

import io
import re
import shutil
import sqlite3
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from backports import zstd
from rosbags.rosbag2 import Reader, ReaderError

STORAGE_SUFFIXES = ('.mcap', '.db3')
COMPRESSED_SUFFIX = '.zstd'
# What the readers raise for lengths and numbers that make no sense.
DAMAGE = (ValueError, ArithmeticError, LookupError, MemoryError, AssertionError, struct.error)
MCAP_MAGIC = b'\x89MCAP0\r\n'
MCAP_HEADER, MCAP_FOOTER = 0x01, 0x02
# A footer that says "no summary", and the magic that ends the file (mcap.dev/spec).
MCAP_END = struct.pack('<BQQQI', MCAP_FOOTER, 20, 0, 0, 0) + MCAP_MAGIC


class BagError(RuntimeError):
    """A bag cannot be read or written; the message names the file and the remedy."""


def is_bag(path: Path) -> bool:
    """Return whether the path is a storage file, or a folder that holds some."""
    if path.is_dir():
        return (path / 'metadata.yaml').exists() or any(is_storage(p) for p in path.iterdir())
    return is_storage(path)


def is_storage(path: Path) -> bool:
    """Return whether the file's name is that of a storage file, compressed or not."""
    return path.is_file() and path.name.removesuffix(COMPRESSED_SUFFIX).endswith(STORAGE_SUFFIXES)


def storage_files(bag: Path) -> tuple[list[Path], str, list[str]]:
    """Return the bag's files in their order, the ROS distribution or '', and what is odd.

    The order is that of metadata.yaml, or else of the numbers in the names. Raises BagError.
    """
    if not bag.exists():
        raise BagError(f'{bag}: no such bag')
    if bag.suffix == '.bag':
        raise BagError(f'{bag}: is a ROS 1 bag; convert it first with `rosbags-convert`')
    if not bag.is_dir():
        if not is_storage(bag):
            raise BagError(f'{bag}: is not an .mcap or .db3 file, nor a folder of such')
        return [bag], '', []
    present = sorted((path for path in bag.iterdir() if is_storage(path)), key=_numbers_last)
    if not (bag / 'metadata.yaml').exists():
        if not present:
            raise BagError(f'{bag}: holds neither metadata.yaml nor .mcap or .db3 files')
        note = f'{bag}: has no metadata.yaml, its recorder was killed; read in the order of names'
        return present, '', [note]
    names, distribution = _metadata(bag / 'metadata.yaml')
    files = [bag / name for name in names if (bag / name).is_file()]
    missing = [name for name in names if not (bag / name).is_file()]
    if not files:
        raise BagError(f'{bag}: cannot be read ({", ".join(missing) or "no file"} is missing)')
    return files, distribution, [f'{bag / name}: is missing' for name in missing]


@contextmanager
def opened_storage(path: Path) -> Iterator[tuple[Reader, str]]:
    """Open one storage file and say what is odd about it, or ''. Raises BagError."""
    with TemporaryDirectory(prefix='wamdiff_bag_') as folder:
        try:
            plain = path
            if path.suffix == COMPRESSED_SUFFIX:
                plain = Path(folder, path.stem)
                with zstd.open(path, 'rb') as packed, plain.open('wb') as unpacked:
                    shutil.copyfileobj(packed, unpacked)
            plain, note = _with_journal(plain, Path(folder))
            if plain.suffix == '.mcap' and not _is_finished(plain):
                plain = _Finished(plain)
                note = 'is not finished, its recorder was killed; read in the order of the file'
            reader = Reader(plain)
            reader.open()
        except (ReaderError, OSError, EOFError, zstd.ZstdError, sqlite3.Error, *DAMAGE) as error:
            reason, remedy = str(error) or type(error).__name__, ''
            if path.suffix == '.db3':
                remedy = f'; `sqlite3 {path} .recover | sqlite3 mended.db3` saves what there is'
            raise BagError(f'{path}: cannot be read ({reason}){remedy}') from error
        try:
            if plain.suffix == '.mcap' and not note and not reader.storage.chunks:
                note = 'has no index; read in the order of the file'
            yield reader, f'{path}: {note}' if note else ''
        finally:
            reader.close()


def _numbers_last(path: Path) -> list:
    """Sort name_2 before name_10."""
    words = re.split(r'(\d+)', path.name)
    return [(int(word), '') if word.isdigit() else (0, word) for word in words]


def _metadata(path: Path) -> tuple[list[str], str]:
    import yaml

    try:
        content = yaml.safe_load(path.read_text('utf8'))['rosbag2_bagfile_information']
        if not isinstance(content['relative_file_paths'], list):
            raise TypeError('relative_file_paths is not a list')
        names = [Path(name).name for name in content['relative_file_paths']]
    except (yaml.YAMLError, KeyError, TypeError, UnicodeDecodeError) as error:
        raise BagError(
            f'{path}: cannot be read ({error}); delete it, and the files beside it are read '
            'in the order of their names'
        ) from error
    return names, content.get('ros_distro') or ''


def _with_journal(path: Path, folder: Path) -> tuple[Path, str]:
    """Return a database together with what its killed writer had left beside it."""
    journals = [path.with_name(path.name + suffix) for suffix in ('-wal', '-journal')]
    journals = [journal for journal in journals if journal.is_file() and journal.stat().st_size]
    if path.suffix != '.db3' or not journals:
        return path, ''
    copies = [Path(shutil.copy(source, folder)) for source in (path, *journals)]
    database = sqlite3.connect(copies[0])
    try:
        database.execute('PRAGMA journal_mode = DELETE')  # takes the journal in
        database.execute('SELECT count(*) FROM sqlite_master').fetchone()
    finally:
        database.close()
    return copies[0], f'its recorder was killed; read together with {journals[0].name}'


# -- unfinished mcap --------------------------------------------------------------------------


def _is_finished(path: Path) -> bool:
    with path.open('rb') as file:
        size = file.seek(0, io.SEEK_END)
        file.seek(max(size - len(MCAP_MAGIC), len(MCAP_MAGIC)))
        return file.read() == MCAP_MAGIC


def _end_of_records(path: Path) -> int:
    """Return where the last whole record ends. Raises BagError for a file with none."""
    size = path.stat().st_size
    with path.open('rb') as file:
        if file.read(len(MCAP_MAGIC)) != MCAP_MAGIC:
            raise BagError(f'{path}: cannot be read (it is empty, or no mcap file)')
        end, kinds = file.tell(), 0
        while len(head := file.read(9)) == 9:
            kind, length = struct.unpack('<BQ', head)
            # Zeros are blocks that a file system had set aside.
            if kind in (0, MCAP_FOOTER) or end + 9 + length > size:
                break
            if not kinds and kind != MCAP_HEADER:
                break
            end, kinds = file.seek(end + 9 + length), kinds + 1
    if not kinds:
        raise BagError(f'{path}: cannot be read (it ends within its header)')
    return end


class _Finished:
    """An unfinished mcap file as a reader wants to see it: cut after its last whole record."""

    def __init__(self, path: Path) -> None:
        self.suffix = path.suffix
        self._path = path
        self._end = _end_of_records(path)

    def __str__(self) -> str:
        return str(self._path)

    def exists(self) -> bool:
        return True

    def is_dir(self) -> bool:
        return False

    def open(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_WithEnd(self._path.open(mode), self._end))


class _WithEnd(io.RawIOBase):
    """The first `end` bytes of `file`, and then MCAP_END."""

    def __init__(self, file: io.BufferedReader, end: int) -> None:
        self._file, self._end, self._at = file, end, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        size = self._end + len(MCAP_END)
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: size}[whence]
        return self._at

    def readinto(self, buffer) -> int:
        if self._at < self._end:
            self._file.seek(self._at)
            data = self._file.read(min(len(buffer), self._end - self._at))
        else:
            start = self._at - self._end
            data = MCAP_END[start : start + len(buffer)]
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def close(self) -> None:
        self._file.close()
        super().close()
