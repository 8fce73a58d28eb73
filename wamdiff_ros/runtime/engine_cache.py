"""Files that belong to what they were made from: built once, and never used for anything else.

Beside each file lies a JSON with its key (what it was made from and for) and its digest. TensorRT
engines run only in the version and on the GPU that they were built for; the key says which. Both
files are written under other names first and then renamed, the JSON last, so that an interrupted
build leaves nothing that looks whole. Files from others are not safe to load: keep the folder
writable for its owner alone, as it is made here.
"""

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from .onnx_vision import file_sha256

DIGEST = 'sha256'


class CacheMismatch(ValueError):
    """What lies in the cache cannot be used; the message says which file, why, and what to do."""


def default_cache_dir() -> Path:
    """Return the folder for built files: wamdiff_ros in the user's cache folder."""
    base = os.environ.get('XDG_CACHE_HOME') or '~/.cache'
    return Path(base).expanduser() / 'wamdiff_ros'


def engine_key(
    *,
    tensorrt: str,
    gpu: str,
    compute_capability: tuple[int, int],
    onnx_sha256: str,
    shapes: Mapping[str, object],
    precision: str,
) -> dict:
    """Return the key of a TensorRT engine: everything that it depends on."""
    return {
        'tensorrt': tensorrt,
        'gpu': gpu,
        'compute_capability': '.'.join(map(str, compute_capability)),
        'onnx_sha256': onnx_sha256,
        'shapes': json.loads(json.dumps(shapes)),  # lists, as they come back
        'precision': precision,
    }


def insist_on_match(file: Path, key: Mapping, others: tuple[Path, ...] = ()) -> None:
    """Return if `file` (and `others`, its further parts) was made for `key` and is whole.

    Raises FileNotFoundError when there is none, and CacheMismatch with the reason otherwise.
    """
    sidecar = _sidecar(file)
    for part in (file, *others, sidecar):
        if not part.is_file():
            raise FileNotFoundError(f'{part}: no such file; build it with wamdiff prebuild')
    try:
        stored = json.loads(sidecar.read_text('utf8'))
        digest = stored.pop(DIGEST)
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise CacheMismatch(f'{sidecar}: cannot be read ({error!r}); build it again') from None
    different = [name for name in {**stored, **key} if stored.get(name) != key.get(name)]
    if different:
        name = different[0]
        raise CacheMismatch(
            f'{file}: was made for {name} {stored.get(name)!r}, this is {key.get(name)!r}'
            + (f' (also different: {", ".join(different[1:])})' if different[1:] else '')
            + '; build it again with wamdiff prebuild'
        )
    if digest != file_sha256(file, *others):
        raise CacheMismatch(f'{file}: is damaged or was changed; build it again')


def write_key(file: Path, key: Mapping, others: tuple[Path, ...] = ()) -> None:
    """Say that `file` was made for `key`; call it when the file is complete."""
    content = {**key, DIGEST: file_sha256(file, *others)}
    _replace(_sidecar(file), json.dumps(content, indent=1).encode())


def write_engine(file: Path, engine: bytes, key: Mapping) -> None:
    """Put an engine and its key into the cache, in the place of what was there."""
    make_private(file.parent)
    _sidecar(file).unlink(missing_ok=True)
    _replace(file, engine)
    write_key(file, key)


def make_private(folder: Path) -> None:
    """Make a folder that only its owner can write to; one that exists stays as it is."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def _sidecar(file: Path) -> Path:
    return file.with_name(f'{file.name}.json')


def _replace(file: Path, content: bytes) -> None:
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=f'.{file.name}.')
    try:
        with os.fdopen(handle, 'wb') as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(name, file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
