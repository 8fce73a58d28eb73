"""Products with a layer's weights; on a CPU packed once, instead of anew in every call.

oneDNN, which does torch's matrix products on CPUs, reads weights in blocks of its own order. Given
plain ones it reorders them in each call, which costs a product with few rows a good part of its
time. What is packed is a copy: it takes the weights' memory once more.
"""

from collections.abc import Callable
from weakref import WeakValueDictionary

import torch
from torch.nn.functional import linear

from ..model.network import Network

# In float32 smaller products lose more to the way into the packed kernel than they win.
FLOAT_OUTPUTS, FLOAT_ROWS = 512, 8
_PACKED: 'WeakValueDictionary[tuple, Packed]' = WeakValueDictionary()


def product(weight: torch.Tensor, rows: int | None = None) -> 'Plain | Packed':
    """Return what multiplies with `weight` [out, in]; packed for about `rows` rows, if given.

    Stays plain where packing cannot be had or does not pay. All who pack one weight share the
    copy, which is not packed anew when somebody changes the weight.
    """
    if rows is None or not pays(weight, rows):
        return Plain(weight)
    key = weight.data_ptr(), weight.shape, weight.dtype, rows
    packed = _PACKED.get(key)
    if packed is None:
        packed = _PACKED[key] = Packed(weight, rows)
    return packed


def pays(weight: torch.Tensor, rows: int) -> bool:
    """Return whether packing `weight` [out, in] makes its products with `rows` rows faster."""
    if type(weight.data) is not torch.Tensor:  # in fewer bits
        return False
    if weight.device.type != 'cpu' or not hasattr(torch.ops.mkldnn, '_linear_pointwise'):
        return False
    if weight.dtype == torch.bfloat16:
        return torch.ops.mkldnn._is_mkldnn_bf16_supported()
    large = weight.shape[0] >= FLOAT_OUTPUTS and rows >= FLOAT_ROWS
    return weight.dtype == torch.float32 and large


def packed_head(network: Network, rows: int | None) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return `network.head`, packed for about `rows` rows where that pays."""
    head, weight = network.lm_head, network.text.embed_tokens.weight
    if head is not None:
        weight = getattr(head, 'weight', None)  # an Int8Linear has none
    if rows is None or weight is None or not pays(weight, rows):
        return network.head
    packed = product(weight, rows)
    return lambda hidden: packed(hidden).float()


class Plain:
    """Products with a weight [out, in] as it is."""

    def __init__(self, weight: torch.Tensor):
        self.weight = weight
        self._transposed = weight.t()

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """x [..., in] → [..., out]."""
        return linear(x, self.weight)

    def added(self, x: torch.Tensor, to: torch.Tensor) -> torch.Tensor:
        """x [..., in], to [..., out] → their product's sum with `to`, in one operation."""
        return torch.addmm(to.flatten(0, -2), x.flatten(0, -2), self._transposed).view(to.shape)


class Packed:
    """The same with a packed copy."""

    def __init__(self, weight: torch.Tensor, rows: int):
        self.weight = weight  # stays where it is, as long as its address stands for it
        # Opaque to torch: neither moved nor saved.
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), rows)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """See Plain."""
        return torch.ops.mkldnn._linear_pointwise(x, self._packed, None, 'none', [], '')

    def added(self, x: torch.Tensor, to: torch.Tensor) -> torch.Tensor:
        """See Plain."""
        return torch.ops.mkldnn._linear_pointwise.binary(x, to, self._packed, None, 'add')
