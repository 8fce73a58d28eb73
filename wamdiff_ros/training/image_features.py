"""What a frozen vision tower says of every record's images, computed once and kept on disk.

A stage that does not train the vision tower needs neither its forward nor the pictures again. The
features lie beside the run, one file per shard, under a hash of the tower and of the image size,
so that stages with the same tower share them and new shards are added to them.
"""

import hashlib
import os
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from ..model.network import Network
from .recipe import RecipeError
from .shards import Shards

AT_ONCE = 128  # records
FORMAT = 2  # of the files


class ImageFeatures:
    """Features by record: [images, 1 + deepstack layers, tokens, hidden], bfloat16."""

    def __init__(
        self, folder: Path, shards: Shards, network: Network, examples, size: tuple[int, int]
    ):
        """Compute what is missing; `examples` are those of the shards, size (width, height).

        Raises RecipeError where the records of a shard have not all the same number of images.
        """
        config = network.config
        token = config.vision.patch_size * config.vision.spatial_merge_size
        width, height = size
        shape = (
            1 + len(config.vision.deepstack_layers),
            (width // token) * (height // token),
            config.text.hidden_size,
        )
        folder = folder / _hash_of(network.vision, size)
        folder.mkdir(parents=True, exist_ok=True)
        self._rows: list[tuple[int, int]] = []  # file, row in it
        self._files: list[np.ndarray] = []
        first = 0
        counts = shards.counts
        with tqdm(total=sum(counts), desc='image features', unit='image', disable=None) as bar:
            for path, count in zip(shards.paths, counts, strict=True):
                file = folder / f'{path.stem}-{_hash_of_shard(path)}.npy'
                if not file.exists():
                    self._compute(
                        file, range(first, first + count), shape, network, examples, size
                    )
                self._rows += [(len(self._files), row) for row in range(count)]
                # numpy has no bfloat16.
                self._files.append(np.load(file, mmap_mode='r'))
                first += count
                bar.update(count)

    def __getitem__(self, index: int) -> torch.Tensor:
        """Return the features of record `index`."""
        file, row = self._rows[index]
        return torch.from_numpy(self._files[file][row].copy()).view(torch.bfloat16)

    @staticmethod
    @torch.no_grad()
    def _compute(file: Path, indexes: range, shape, network: Network, examples, size) -> None:
        device = network.text.embed_tokens.weight.device
        kept = None
        for start in range(0, len(indexes), AT_ONCE):
            some = [examples.pictures(index, size) for index in indexes[start : start + AT_ONCE]]
            if kept is None:
                kept = np.empty((len(indexes), len(some[0]), *shape), np.int16)
            if not some[0] or any(len(pictures) != kept.shape[1] for pictures in some):
                raise RecipeError(
                    f'{file.stem}: records have no or not equally many images; take '
                    'image_features out'
                )
            patches = torch.from_numpy(np.stack([p for pictures in some for p, _ in pictures]))
            with torch.autocast(device.type, torch.bfloat16):
                tokens, deepstack = network.vision(patches.to(device), some[0][0][1])
            stacked = torch.stack((tokens, *deepstack), dim=1).to(torch.bfloat16).cpu()
            stacked = stacked.view(torch.int16).unflatten(0, (len(some), -1))
            kept[start : start + len(some)] = stacked.numpy()
        partial = file.with_name(f'.{file.name}.{os.getpid()}.partial')
        with partial.open('wb') as handle:
            np.save(handle, kept)
        partial.replace(file)


def _hash_of(vision: torch.nn.Module, size: tuple[int, int]) -> str:
    weights = b''.join(
        name.encode() + tensor.float().cpu().numpy().tobytes()
        for name, tensor in sorted(vision.state_dict().items())
    )
    return _hash(weights + repr((FORMAT, *size)).encode())


def _hash_of_shard(path: Path) -> str:
    # A shard that was made anew under its name is another one.
    status = path.stat()
    return _hash(repr((str(path.resolve()), status.st_size, status.st_mtime_ns)).encode())


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
