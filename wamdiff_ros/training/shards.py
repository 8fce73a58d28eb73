"""Records in files: WebDataset tar shards, written one by one and read in any order.

The format is that of docs/data.md; the library `webdataset` reads it as a stream. Here each
shard's offsets are indexed once (kept beside it), so that a record is one `pread` per member.
"""

import json
import os
import tarfile
from collections import Counter
from collections.abc import Iterable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

from .records import Record, RecordError, read_record

INDEX_VERSION = 1


class ShardError(ValueError):
    """A shard cannot be read; the message names the file and the place in it."""


class ShardWriter:
    """Writes one shard under a temporary name; it appears when `with` ends without an error."""

    def __init__(self, path: Path):
        self.path = Path(path)
        self._partial = self.path.with_name(f'.{self.path.name}.{os.getpid()}.partial')
        self._keys: set[str] = set()

    def __enter__(self) -> 'ShardWriter':
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._tar = tarfile.open(self._partial, 'w', format=tarfile.USTAR_FORMAT)
        return self

    def __exit__(self, kind, error, trace) -> None:
        self._tar.close()
        if kind is None:
            self._partial.replace(self.path)
        else:
            self._partial.unlink()

    def write(self, key: str, record: Record) -> None:
        """Append `record`; `key` must be new and without dots and slashes."""
        if not key or '.' in key or '/' in key or key in self._keys:
            raise ValueError(f'key {key!r} is used already, or holds a dot or slash')
        self._keys.add(key)
        for name, data in record.images.items():
            self._add(f'{key}.{name}', data)
        text = json.dumps(record.to_json(), ensure_ascii=False, allow_nan=False)
        self._add(f'{key}.json', text.encode())

    def _add(self, name: str, data: bytes) -> None:
        # Time, owner and mode stay at fixed values: equal records give equal files.
        info = tarfile.TarInfo(name)
        info.size = len(data)
        self._tar.addfile(info, BytesIO(data))


class Shards:
    """The records of shards as a sequence; negative indices count from the end.

    paths: shards, or folders whose *.tar are taken in the order of their names. May be sent to
    other processes. Raises ShardError, naming file, key and offset.
    """

    def __init__(self, paths: str | Path | Iterable[str | Path]):
        self.paths = _tar_files(paths)
        self._places: list[tuple[int, str, dict[str, tuple[int, int]]]] = []
        for number, path in enumerate(self.paths):
            for key, members in _index(path):
                self._places.append((number, key, members))
        self._files: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, index: int) -> Record:
        number, key, members = self._places[index]
        if 'json' not in members:
            raise ShardError(f'{self.paths[number]}: {key} has no {key}.json')
        data = {name: self._read(number, key, name, *place) for name, place in members.items()}
        try:
            return read_record(json.loads(data.pop('json')), data)
        except (RecordError, ValueError, RecursionError) as error:
            offset = members['json'][0]
            raise ShardError(
                f'{self.paths[number]}: {key}.json at byte {offset}: {error}'
            ) from error

    def __iter__(self) -> Iterator[Record]:
        return (self[index] for index in range(len(self)))

    @property
    def counts(self) -> list[int]:
        """How many records each of `paths` holds."""
        counts = Counter(number for number, _, _ in self._places)
        return [counts[number] for number in range(len(self.paths))]

    def key(self, index: int) -> str:
        """Return the key of a record."""
        return self._places[index][1]

    def close(self) -> None:
        """Close the files; they are opened again when needed."""
        while self._files:
            os.close(self._files.popitem()[1])

    def _read(self, number: int, key: str, name: str, offset: int, size: int) -> bytes:
        if number not in self._files:
            self._files[number] = os.open(self.paths[number], os.O_RDONLY)
        data = os.pread(self._files[number], size, offset)
        if len(data) != size:
            raise ShardError(
                f'{self.paths[number]}: {key}.{name} at byte {offset} has {len(data)} of {size} '
                'bytes: the file was cut short'
            )
        return data

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, '_files': {}}


def _tar_files(paths: str | Path | Iterable[str | Path]) -> list[Path]:
    files = []
    for path in map(Path, [paths] if isinstance(paths, (str, Path)) else paths):
        found = sorted(path.glob('*.tar')) if path.is_dir() else [path]
        if not found or not found[0].is_file():
            raise ShardError(f'{path}: there are no shards (*.tar)')
        files += found
    return files


def _index(path: Path) -> list[tuple[str, dict[str, tuple[int, int]]]]:
    """Return (key, {name: (offset, size)}) of each record, from the kept index if it is new."""
    status = path.stat()
    head = {'version': INDEX_VERSION, 'bytes': status.st_size, 'mtime_ns': status.st_mtime_ns}
    kept = path.with_suffix('.index.json')
    try:
        found = json.loads(kept.read_text())
        if found['shard'] == head:
            return [(str(k), _places(m, status.st_size)) for k, m in found['records']]
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        pass  # none yet, or not one of ours: it is made anew
    records = _scan(path)
    partial = kept.with_name(f'.{kept.name}.{os.getpid()}.partial')
    try:
        partial.write_text(json.dumps({'shard': head, 'records': records}))
        partial.replace(kept)
    except OSError:
        pass  # a folder that cannot be written to: scanned again next time
    return records


def _places(members: dict[str, list[int]], file_bytes: int) -> dict[str, tuple[int, int]]:
    """Return {name: (offset, size)}; raises ValueError for a place that is not in the file."""
    places = {}
    for name, (offset, size) in members.items():
        if type(offset) is not int or type(size) is not int:
            raise ValueError
        if offset < 0 or size < 0 or offset + size > file_bytes:
            raise ValueError
        places[name] = (offset, size)
    return places


def _scan(path: Path) -> list[tuple[str, dict[str, tuple[int, int]]]]:
    records: list[tuple[str, dict[str, tuple[int, int]]]] = []
    end = 0
    try:
        with tarfile.open(path, 'r:') as tar:
            for member in tar:
                if member.isfile():
                    folder, _, base = member.name.rpartition('/')
                    key, _, name = base.partition('.')
                    key = f'{folder}/{key}' if folder else key
                    if not records or records[-1][0] != key:
                        records.append((key, {}))
                    records[-1][1][name] = (member.offset_data, member.size)
                end = member.offset_data + -(-member.size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE
    except (tarfile.TarError, EOFError) as error:
        raise ShardError(f'{path}: broken at or after byte {end}: {error}') from error
    # tarfile takes a missing end, or rubbish after a member, for the end of the archive.
    with path.open('rb') as file:
        file.seek(end)
        if file.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
            raise ShardError(
                f'{path}: the archive breaks off at byte {end}, after {len(records)} records; '
                'make this shard again, or delete it'
            )
    return records
