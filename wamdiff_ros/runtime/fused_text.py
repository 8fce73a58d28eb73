"""The language tower for inference: the same layers in fewer and larger steps.

Query, key and value are one matrix, gate and up another, and residuals are added inside the
products. The tower's own weights become views of the fused ones, so that only what is packed is
held twice, and the plain tower still runs. Results differ from the plain tower's by rounding only.
"""

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn.functional import rms_norm, silu

from ..model.text import ALL, Attend, Layer, TextTower
from .products import product


class FusedText:
    """Has `run` of model.text.TextTower; not a module, holds no weights of its own."""

    def __init__(self, tower: TextTower, packed_for: int | None = None):
        """packed_for: how many rows a forward mostly has, to pack weights for it on a CPU."""
        self._layers = [_FusedLayer(layer, packed_for) for layer in tower.layers]
        self._norm = tower.norm
        half = tower.layers[0].self_attn.head_dim // 2
        sign = torch.ones(2 * half, device=tower.norm.weight.device)
        sign[:half] = -1.0
        self._sign = sign  # of the sine on either half, once the halves have changed places

    def run(
        self,
        x: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        attend: Attend,
        deepstack: Sequence[torch.Tensor] = (),
        rows: slice | torch.Tensor = ALL,
    ) -> torch.Tensor:
        """See model.text.TextTower.run."""
        cos, sin = cos.transpose(1, 2), (sin * self._sign).transpose(1, 2)  # [n, L, 1, d]
        last = len(self._layers) - 1
        for index, layer in enumerate(self._layers):
            wanted = rows if index == last else ALL
            x = layer(x, cos, sin, index, attend, wanted)
            if index < len(deepstack):
                x = x + deepstack[index][:, wanted]
        return self._norm(x)


class _FusedLayer:
    def __init__(self, layer: Layer, packed_for: int | None):
        attention, mlp = layer.self_attn, layer.mlp
        stacked = _stack(attention.q_proj, attention.k_proj, attention.v_proj)
        self.qkv = product(stacked, packed_for)
        self.gate_up = product(_stack(mlp.gate_proj, mlp.up_proj), packed_for)
        self.out = product(attention.o_proj.weight, packed_for)
        self.down = product(mlp.down_proj.weight, packed_for)
        self.head_dim = d = attention.head_dim
        self.heads = attention.q_proj.out_features // d
        self.rotated = self.heads + attention.k_proj.out_features // d  # heads of query and key
        self.eps = attention.q_norm.eps
        self.qk_weight = torch.cat(
            (
                attention.q_norm.weight.float().expand(self.heads, d),
                attention.k_norm.weight.float().expand(self.rotated - self.heads, d),
            )
        )
        self.input_weight = layer.input_layernorm.weight
        self.mlp_weight = layer.post_attention_layernorm.weight

    def __call__(self, x, cos, sin, layer: int, attend: Attend, rows) -> torch.Tensor:
        """x [n, L, hidden] → [n, rows, hidden]."""
        qkv = self.qkv(_norm(x, self.input_weight, self.eps))
        qkv = qkv.view(*x.shape[:2], -1, self.head_dim)  # [n, L, heads, d]
        qk = rms_norm(qkv[:, :, : self.rotated].float(), (self.head_dim,), None, self.eps)
        qk = qk * self.qk_weight
        half = self.head_dim // 2
        qk = torch.addcmul(qk * cos, qk.roll(half, -1), sin).to(x.dtype)
        query, key = qk[:, :, : self.heads], qk[:, :, self.heads :]
        value = qkv[:, :, self.rotated :]
        if rows is not ALL:
            query, x = query[:, rows], x[:, rows]
        out = attend(layer, query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2))
        x = self.out.added(out.transpose(1, 2).flatten(2), x)
        gate, up = self.gate_up(_norm(x, self.mlp_weight, self.eps)).chunk(2, dim=-1)
        return self.down.added(silu(gate).mul_(up), x)


def _norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Do as model.text.RMSNorm does, in one call where no rounding lies between."""
    if x.dtype == torch.float32:
        return rms_norm(x, x.shape[-1:], weight, eps)
    return rms_norm(x.float(), x.shape[-1:], None, eps).to(x.dtype) * weight


def _stack(*projections: nn.Linear) -> torch.Tensor:
    """Return the projections' weights as one matrix, of which each becomes a view."""
    weights = [projection.weight.data for projection in projections]
    sizes = [projection.out_features for projection in projections]
    first, storage = weights[0], weights[0].untyped_storage()
    shared = all(weight.untyped_storage().data_ptr() == storage.data_ptr() for weight in weights)
    if shared and storage.nbytes() == sum(sizes) * first.shape[1] * first.itemsize:
        # Another engine over the same network has done it.
        return first.as_strided((sum(sizes), first.shape[1]), first.stride())
    stacked = torch.cat(weights)
    for projection, part in zip(projections, stacked.split(sizes), strict=True):
        projection.weight.data = part
    return stacked
