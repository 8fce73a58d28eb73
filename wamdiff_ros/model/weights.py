"""Weights from safetensors in Hugging Face layout, checked tensor by tensor before they are used.

Nothing is unpickled and no code from a checkpoint is run. Every refusal is a CheckpointError that
names the file and the tensor.
"""

from collections.abc import Callable
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from .config import CheckpointError, ModelConfig, read_json
from .network import Network
from .rope import MRope

_DTYPES = {'F32': torch.float32, 'BF16': torch.bfloat16, 'F16': torch.float16}
_HEAD = 'lm_head.weight'
_EMBEDDING = 'model.language_model.embed_tokens.weight'
_INDEX = 'model.safetensors.index.json'


class LoadCancelled(Exception):
    """Loading was given up because the process is ending."""


def load_network(
    model_dir: Path,
    config: ModelConfig,
    *,
    dtype: torch.dtype,
    device: torch.device,
    progress: Callable[[str], None] = lambda text: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> Network:
    """Load the checkpoint in `model_dir` into a network for inference in `dtype` on `device`."""
    with torch.device('meta'):  # shapes without memory, until each tensor has been checked
        network = Network(config)
    expected = {name: tuple(t.shape) for name, t in network.state_dict().items()}
    tensors: dict[str, torch.Tensor] = {}
    shards = find_shards(Path(model_dir))
    for number, (file, listed) in enumerate(shards.items(), start=1):
        progress(f'loading {file.name} ({number} of {len(shards)})')
        _read_shard(file, listed, expected, config.tied_head, tensors, dtype, device, cancelled)
    _check_tied_head(tensors, config.tied_head, Path(model_dir))
    missing = sorted(expected.keys() - tensors.keys())
    if missing:
        raise CheckpointError(
            f'{model_dir}: tensor {missing[0]} is missing'
            + (f', and {len(missing) - 1} more' if len(missing) > 1 else '')
        )
    network.load_state_dict(tensors, assign=True)
    text = config.text
    # Tables that are computed, not stored, were on the meta device too.
    network.text.rope = MRope(text.head_dim, text.rope_theta, text.mrope_section).to(device)
    return network.eval().requires_grad_(False)


def find_shards(model_dir: Path) -> dict[Path, frozenset[str] | None]:
    """Return the checkpoint's files, each with the tensors in its index (None: no index)."""
    single = model_dir / 'model.safetensors'
    index = model_dir / _INDEX
    if index.exists():
        weight_map = read_json(index)
        weight_map = weight_map.get('weight_map') if isinstance(weight_map, dict) else None
        if not isinstance(weight_map, dict) or not weight_map:
            raise CheckpointError(f'{index}: weight_map is missing')
        shards: dict[Path, set[str]] = {}
        for tensor, name in weight_map.items():
            # A shard is a plain file beside its index: nothing outside the folder is opened.
            if not isinstance(name, str) or Path(name).name != name:
                raise CheckpointError(f'{index}: {tensor} is said to be in {name!r}, no file name')
            shards.setdefault(model_dir / name, set()).add(tensor)
        for file in shards:
            if file.suffix != '.safetensors':
                raise CheckpointError(f'{file}: only safetensors files are read')
            if not file.is_file():
                raise CheckpointError(f'{file}: no such file, but {index.name} lists it')
        return {file: frozenset(names) for file, names in shards.items()}
    if single.is_file():
        return {single: None}
    pickles = [
        p.name for pattern in ('*.bin', '*.pt', '*.pth', '*.ckpt') for p in model_dir.glob(pattern)
    ]
    if pickles:
        raise CheckpointError(
            f'{model_dir / pickles[0]}: pickled weights can run code when they are read and are '
            'refused; convert the checkpoint to safetensors'
        )
    raise CheckpointError(f'{model_dir}: holds neither model.safetensors nor {_INDEX}')


def _read_shard(file, listed, expected, tied_head, tensors, dtype, device, cancelled) -> None:
    try:
        with safe_open(file, framework='pt') as shard:
            names = set(shard.keys())
            if listed is not None and names != listed:
                name = sorted(names ^ listed)[0]
                where = (
                    'listed in the index but not in the file'
                    if name in listed
                    else ('in the file but not listed in the index')
                )
                raise CheckpointError(f'{file}: tensor {name} is {where}')
            for name in sorted(names):
                if cancelled():
                    raise LoadCancelled
                surplus_head = tied_head and name == _HEAD
                wanted = expected.get(_EMBEDDING if surplus_head else name)
                if wanted is None:
                    raise CheckpointError(f'{file}: tensor {name} belongs to no part of the model')
                view = shard.get_slice(name)
                # Checked in the header, before memory is allocated for it.
                if tuple(view.get_shape()) != wanted:
                    raise CheckpointError(
                        f'{file}: tensor {name} has shape {view.get_shape()}, config.json asks '
                        f'for {list(wanted)}'
                    )
                if view.get_dtype() not in _DTYPES:
                    raise CheckpointError(
                        f'{file}: tensor {name} is {view.get_dtype()}, wanted one of '
                        f'{", ".join(_DTYPES)}'
                    )
                tensor = shard.get_tensor(name).to(dtype)
                if not torch.isfinite(tensor).all():
                    raise CheckpointError(
                        f'{file}: tensor {name} holds NaN or infinity as {dtype}'
                    )
                tensors[name] = tensor.to(device)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(
            f'{file}: not a readable safetensors file (truncated or damaged?): {error}'
        ) from None


def _check_tied_head(tensors: dict[str, torch.Tensor], tied: bool, model_dir: Path) -> None:
    """Drop a stored copy of a tied head; refuse one that differs from the embedding."""
    if tied and _HEAD in tensors:
        head = tensors.pop(_HEAD)
        if _EMBEDDING in tensors and not torch.equal(head, tensors[_EMBEDDING]):
            raise CheckpointError(
                f'{model_dir}: {_HEAD} differs from {_EMBEDDING}, but config.json ties them'
            )


def save_network(network: Network, file: Path, dtype: torch.dtype) -> None:
    """Write the network's weights as one safetensors file under the checkpoint's tensor names."""
    tensors = {
        name: tensor.detach().to('cpu', dtype).contiguous()
        for name, tensor in network.state_dict().items()
    }
    save_file(tensors, file, metadata={'format': 'pt'})
