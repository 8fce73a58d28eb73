"""The language tower: Qwen3 decoder layers with q/k norm, grouped queries and deepstack inputs.

How a layer attends (which cache, which mask, which kernel) is handed in as `attend`; this file
knows only projections, norms, rotations and the order in which they happen.
"""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import nn

from .config import TextConfig
from .rope import MRope, rotate

ALL = slice(None)


class Attend(Protocol):
    """Attention of one forward; called once per layer."""

    def __call__(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
    ) -> torch.Tensor:
        """Query [n, heads, L, d], key and value [n, kv_heads, L, d] → output [n, heads, L, d].

        Queries and keys are rotated already. What the new tokens may see beside themselves, and
        whether their keys and values are kept, is the implementation's business. In the last
        layer there are fewer queries than keys if the tower was asked for some rows only.
        """
        ...


class RMSNorm(nn.Module):
    """Root-mean-square norm, computed in float32."""

    def __init__(self, size: int, eps: float):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x [..., size] → the same shape and dtype."""
        return nn.functional.rms_norm(x.float(), x.shape[-1:], None, self.eps).to(x.dtype) * (
            self.weight
        )


class Attention(nn.Module):
    """Projections and rotations around `attend`."""

    def __init__(self, config: TextConfig):
        super().__init__()
        d = config.head_dim
        self.head_dim = d
        self.q_proj = nn.Linear(config.hidden_size, config.num_heads * d, bias=False)
        self.k_proj = nn.Linear(config.hidden_size, config.num_kv_heads * d, bias=False)
        self.v_proj = nn.Linear(config.hidden_size, config.num_kv_heads * d, bias=False)
        self.o_proj = nn.Linear(config.num_heads * d, config.hidden_size, bias=False)
        self.q_norm = RMSNorm(d, config.rms_norm_eps)
        self.k_norm = RMSNorm(d, config.rms_norm_eps)

    def _heads(self, x: torch.Tensor) -> torch.Tensor:
        return x.unflatten(-1, (-1, self.head_dim))  # [n, L, heads, d]

    def project(self, x, cos, sin) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """x [n, L, hidden] → rotated query, rotated key and value, as `Attend` takes them."""
        query = self.q_norm(self._heads(self.q_proj(x))).transpose(1, 2)
        key = self.k_norm(self._heads(self.k_proj(x))).transpose(1, 2)
        value = self._heads(self.v_proj(x)).transpose(1, 2)
        return rotate(query, cos, sin), rotate(key, cos, sin), value

    def forward(self, x, cos, sin, layer: int, attend: Attend, rows: slice) -> torch.Tensor:
        """x [n, L, hidden] → [n, rows, hidden]."""
        query, key, value = self.project(x, cos, sin)
        out = attend(layer, query[:, :, rows], key, value)
        return self.o_proj(out.transpose(1, 2).flatten(2))


class MLP(nn.Module):
    """Gated feed-forward with SiLU."""

    def __init__(self, config: TextConfig):
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x [n, L, hidden] → the same shape."""
        return self.down_proj(nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    """One pre-norm transformer layer."""

    def __init__(self, config: TextConfig):
        super().__init__()
        self.self_attn = Attention(config)
        self.mlp = MLP(config)
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(self, x, cos, sin, layer: int, attend: Attend, rows: slice) -> torch.Tensor:
        """x [n, L, hidden] → [n, rows, hidden]; all of x is attended to."""
        attended = self.self_attn(self.input_layernorm(x), cos, sin, layer, attend, rows)
        x = x[:, rows] + attended
        return x + self.mlp(self.post_attention_layernorm(x))


class TextTower(nn.Module):
    """Embeddings, layers and the final norm; the head is the model's (it may be tied)."""

    def __init__(self, config: TextConfig):
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.rope = MRope(config.head_dim, config.rope_theta, config.mrope_section)

    def forward(
        self,
        x: torch.Tensor,
        positions: torch.Tensor,
        attend: Attend,
        deepstack: Sequence[torch.Tensor] = (),
        rows: slice = ALL,
    ) -> torch.Tensor:
        """Run the layers over embedded tokens.

        x [n, L, hidden]; positions [3, n, L]; deepstack: per early layer a tensor [n, L, hidden]
        that is added to its output (zero where a token is no image token); rows: the tokens whose
        hidden states are wanted, which spares the last layer the others. Returns normed hidden
        states [n, rows, hidden].
        """
        return self.run(x, *self.rope(positions), attend, deepstack, rows)

    def run(
        self,
        x: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        attend: Attend,
        deepstack: Sequence[torch.Tensor] = (),
        rows: slice | torch.Tensor = ALL,
    ) -> torch.Tensor:
        """Run the layers as `forward` does, with the rotations [n, 1, L, head_dim] at hand.

        rows: a slice, or indices [r].
        """
        for index, layer in enumerate(self.layers):
            wanted = rows if index == len(self.layers) - 1 else ALL
            x = layer(x, cos, sin, index, attend, wanted)
            if index < len(deepstack):
                x = x + deepstack[index][:, wanted]
        return self.norm(x)
