"""A linear layer in 8 bits for x86 CPUs: weights per output, activations per token, at run time.

The arithmetic of torchao's Int8DynamicActivationInt8WeightConfig, with which a test compares it,
on the integer matrix product of oneDNN that torch has for its compiler.
"""

import torch
from torch import nn

_SMALLEST = 1e-12  # scale of a row of zeros


class Int8Linear(nn.Module):
    """Takes the place of a `nn.Linear` for inference."""

    def __init__(self, linear: nn.Linear):
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        weight = linear.weight.detach().float()
        scale = (weight.abs().amax(dim=1) / 127).clamp_(min=_SMALLEST)
        quantised = (weight / scale[:, None]).round_().to(torch.int8)
        # Opaque to torch: neither moved nor saved, hence no buffer.
        self._packed = torch.ops.onednn.qlinear_prepack(quantised, None)
        self._scale = scale
        self._zeros = torch.zeros(self.out_features, dtype=torch.int64)
        self.bias = None if linear.bias is None else linear.bias.detach().float()

    @staticmethod
    def available() -> bool:
        """Return whether this torch and this CPU have the kernels.

        Without VNNI the products of 8-bit numbers would be clipped to 16 bits.
        """
        flags = getattr(torch.cpu, 'get_capabilities', dict)()
        vnni = flags.get('avx512_vnni', False) or flags.get('avx_vnni', False)
        return vnni and hasattr(torch.ops.onednn, 'qlinear_pointwise')

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x [..., in] → [..., out] in x's dtype."""
        rows = x.reshape(-1, self.in_features).float()
        step = (rows.abs().amax(dim=1, keepdim=True) / 127).clamp_(min=_SMALLEST)
        # The kernel takes unsigned activations and one scale: 128 is zero, and the scale of each
        # row is multiplied in afterwards.
        quantised = (rows / step).round_().add_(128).to(torch.uint8)
        out = torch.ops.onednn.qlinear_pointwise(
            quantised, 1.0, 128, self._packed, self._scale, self._zeros, None,
            1.0, 0, torch.float32, 'none', [], '',
        ).mul_(step)  # fmt: skip
        if self.bias is not None:
            out += self.bias
        return out.to(x.dtype).view(*x.shape[:-1], self.out_features)
