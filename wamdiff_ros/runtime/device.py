"""Where the network runs and in which precision, from the words of the parameters."""

import torch


def choose_device(name: str) -> torch.device:
    """Return the device for auto, cpu or cuda; raises ValueError for a GPU that is not there."""
    if name == 'auto':
        name = 'cuda' if torch.cuda.is_available() else 'cpu'
    if name == 'cuda' and not torch.cuda.is_available():
        raise ValueError('device: cuda is wanted, but torch finds no CUDA device')
    return torch.device(name)


def choose_dtype(name: str, device: torch.device) -> torch.dtype:
    """Return the precision; auto is float32 on a CPU and bfloat16 elsewhere."""
    if name == 'auto':
        name = 'float32' if device.type == 'cpu' else 'bfloat16'
    return getattr(torch, name)
