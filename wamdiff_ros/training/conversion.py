"""From WAM-Diff2's published JSON to shards.

The JSON is a list of {"image": path or list of paths, "conversations": [{"from": "human",
"value": "<image>…"}, {"from": "gpt", "value": …}]}. Pictures are taken over byte by byte.
"""

import json
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image as Picture
from tqdm import tqdm

from .records import ConversationRecord, RecordError, read_conversation
from .shards import ShardWriter

SUFFIXES = {'.jpg': 'jpg', '.jpeg': 'jpg', '.png': 'png', '.webp': 'webp'}


class ConversionError(ValueError):
    """A file cannot be converted; the message names the file, the entry and the key."""


@dataclass(frozen=True)
class Conversion:
    """What became of a file: entries are left out when one of their images is."""

    records: int
    shards: int
    left_out: tuple[str, ...]  # "entry 17: images/a.jpg: not there"


def convert(
    source: Path, out: Path, image_root: Path | None = None, records_per_shard: int = 1000
) -> Conversion:
    """Convert the JSON file `source` into shards in the folder `out`.

    Image paths count from `image_root`, by default the folder of `source`. Entries whose images
    are missing or broken are left out and listed; entries of another form, and an `out` that
    holds shards already, raise ConversionError.
    """
    entries = _read(source)
    root = source.parent if image_root is None else image_root
    if any(out.glob('*.tar')):
        raise ConversionError(f'{out}: holds shards already; choose a new folder')
    # All forms are checked before anything is written.
    paths = [_image_paths(source, number, entry) for number, entry in enumerate(entries)]
    for number, entry in enumerate(entries):
        _record(source, number, entry, dict.fromkeys(_names(source, number, paths[number]), b''))
    records, shards, left_out = 0, 0, []
    with tqdm(total=len(entries), desc='converting', unit='record', disable=None) as bar:
        for first in range(0, len(entries), records_per_shard):
            shard = out / f'shard-{shards:06d}.tar'
            with ShardWriter(shard) as writer:
                for number in range(first, min(first + records_per_shard, len(entries))):
                    bar.update()
                    images, problem = _load_images(root, paths[number])
                    if problem:
                        left_out.append(f'entry {number}: {problem}')
                        continue
                    names = _names(source, number, paths[number])
                    pictures = dict(zip(names, images, strict=True))
                    writer.write(
                        f'{number:08d}', _record(source, number, entries[number], pictures)
                    )
                    records += 1
            shards += 1
    return Conversion(records, shards, tuple(left_out))


def _read(source: Path) -> list[Any]:
    try:
        entries = json.loads(source.read_text(encoding='utf-8'))
    except (OSError, ValueError, RecursionError) as error:
        raise ConversionError(f'{source}: no JSON in UTF-8 can be read: {error}') from error
    if not isinstance(entries, list):
        raise ConversionError(f'{source}: holds a {type(entries).__name__}, wanted a list')
    return entries


def _image_paths(source: Path, number: int, entry: Any) -> list[str]:
    where = f'{source}: entry {number}'
    if not isinstance(entry, dict):
        raise ConversionError(f'{where}: is a {type(entry).__name__}, wanted an object')
    if 'conversations' not in entry:
        raise ConversionError(f'{where}: conversations: missing, there are {sorted(entry)}')
    paths = entry.get('image', [])
    paths = [paths] if isinstance(paths, str) else paths
    if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
        raise ConversionError(f'{where}: image: {paths!r} is neither a path nor a list of paths')
    return paths


def _names(source: Path, number: int, paths: list[str]) -> list[str]:
    """Return the member names: "jpg" for a single picture, else "0.jpg", "1.jpg", …"""
    names = []
    for index, path in enumerate(paths):
        suffix = SUFFIXES.get(Path(path).suffix.lower())
        if suffix is None:
            raise ConversionError(
                f'{source}: entry {number}: image: {path!r} is none of {", ".join(SUFFIXES)}'
            )
        names.append(suffix if len(paths) == 1 else f'{index}.{suffix}')
    return names


def _record(
    source: Path, number: int, entry: dict, images: dict[str, bytes]
) -> ConversationRecord:
    try:
        return read_conversation(entry['conversations'], images)
    except RecordError as error:
        raise ConversionError(f'{source}: entry {number}: conversations: {error}') from error


def _load_images(root: Path, paths: list[str]) -> tuple[list[bytes], str]:
    """Return all encoded pictures, or what is wrong with one of them."""
    images = []
    for path in paths:
        try:
            data = (root / path).read_bytes()
            Picture.open(BytesIO(data)).verify()
        except FileNotFoundError:
            return [], f'{path}: not there'
        except (OSError, SyntaxError, ValueError, Picture.DecompressionBombError) as error:
            return [], f'{path}: {error}'
        images.append(data)
    return images, ''
