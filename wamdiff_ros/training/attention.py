"""Attention of training on a CPU: rows in chunks, each against only the keys that it may see.

Torch's fused CPU kernel computes what the mask hides, and its backward is slow at the lengths of
nano models. Here a block-diffusion mask costs about half of its square, and the products run as
plain matrix multiplications. The result is that of scaled_dot_product_attention.
"""

from dataclasses import dataclass

import torch

CHUNK = 64  # rows


@dataclass(frozen=True, eq=False)
class Chunk:
    """Consecutive rows, the keys that any of them sees, and which of those each row does not."""

    rows: slice
    columns: tuple[slice, ...]
    hidden: torch.Tensor | None  # bool [n or 1, rows, columns]; None: all of them are seen


def chunks_of(visible: torch.Tensor) -> tuple[Chunk, ...]:
    """Cut a mask, bool [n or 1, rows, S] (True: the row sees the column), into chunks of rows."""
    size = visible.shape[1]
    chunks = []
    for start in range(0, size, CHUNK):
        end = min(start + CHUNK, size)
        rows = visible[:, start:end]
        seen = rows.any(dim=0).any(dim=0)  # [S]
        changes = torch.diff(seen.int(), prepend=torch.zeros(1), append=torch.zeros(1)).nonzero()
        bounds = changes.flatten().tolist()
        columns = tuple(slice(a, b) for a, b in zip(bounds[::2], bounds[1::2], strict=True))
        hidden = ~rows[:, :, seen]
        chunks.append(Chunk(slice(start, end), columns, hidden if hidden.any() else None))
    return tuple(chunks)


@torch.compiler.disable
def chunked_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    chunks: tuple[Chunk, ...] | None = None,
) -> torch.Tensor:
    """Query [n, heads, rows, d], key and value [n, kv_heads, S, d] → [n, heads, rows, d].

    Without `chunks` every row sees every column.
    """
    chunks = chunks or (Chunk(slice(0, query.shape[2]), (slice(0, key.shape[2]),), None),)
    return _ChunkedAttention.apply(query, key, value, chunks)


class _ChunkedAttention(torch.autograd.Function):
    """softmax(query · keyᵀ / √d) · value over chunks, with grouped queries."""

    @staticmethod
    def forward(ctx, query, key, value, chunks):
        n, heads, _, d = query.shape
        kv = key.shape[1]
        scaled = (query * d**-0.5).unflatten(1, (kv, heads // kv))
        out = torch.empty(n, kv, heads // kv, query.shape[2], d, dtype=query.dtype)
        saved = []
        for chunk in chunks:
            q = scaled[:, :, :, chunk.rows].reshape(n * kv, -1, d)
            k, v = _take(key, chunk.columns), _take(value, chunk.columns)
            scores = torch.bmm(q, k.transpose(1, 2))  # [n*kv, group*rows, columns]
            if chunk.hidden is not None:
                _view(scores, n, kv, chunk).masked_fill_(chunk.hidden[:, None, None], -torch.inf)
            p = scores.softmax(dim=-1)
            out[:, :, :, chunk.rows] = torch.bmm(p, v).view(n, kv, heads // kv, -1, d)
            saved.append(p)
        ctx.save_for_backward(query, key, value, *saved)
        ctx.chunks = chunks
        return out.flatten(1, 2)

    @staticmethod
    def backward(ctx, grad):
        query, key, value, *saved = ctx.saved_tensors
        n, heads, _, d = query.shape
        kv, scale = key.shape[1], d**-0.5
        grouped = query.unflatten(1, (kv, heads // kv))
        grad = grad.unflatten(1, (kv, heads // kv))
        grad_q = torch.empty(grouped.shape, dtype=query.dtype)
        grad_k = torch.zeros(key.shape)
        grad_v = torch.zeros(value.shape)
        for chunk, p in zip(ctx.chunks, saved, strict=True):
            q = grouped[:, :, :, chunk.rows].reshape(n * kv, -1, d)
            g = grad[:, :, :, chunk.rows].reshape(n * kv, -1, d)
            k, v = _take(key, chunk.columns), _take(value, chunk.columns)
            grad_p = torch.bmm(g, v.transpose(1, 2))
            grad_s = torch._softmax_backward_data(grad_p, p, -1, p.dtype)
            grad_q[:, :, :, chunk.rows] = (torch.bmm(grad_s, k) * scale).view(
                n, kv, heads // kv, -1, d
            )
            _add(grad_k, chunk.columns, torch.bmm(grad_s.transpose(1, 2), q) * scale)
            _add(grad_v, chunk.columns, torch.bmm(p.transpose(1, 2), g))
        return grad_q.flatten(1, 2), grad_k.to(key.dtype), grad_v.to(value.dtype), None


def _take(x: torch.Tensor, columns: tuple[slice, ...]) -> torch.Tensor:
    """x [n, kv, S, d] → its columns [n*kv, columns, d]."""
    parts = [x[:, :, part] for part in columns]
    return (parts[0] if len(parts) == 1 else torch.cat(parts, dim=2)).flatten(0, 1)


def _add(total: torch.Tensor, columns: tuple[slice, ...], values: torch.Tensor) -> None:
    start = 0
    values = values.view(*total.shape[:2], -1, total.shape[3])
    for part in columns:
        end = start + part.stop - part.start
        total[:, :, part] += values[:, :, start:end]
        start = end


def _view(scores: torch.Tensor, n: int, kv: int, chunk: Chunk) -> torch.Tensor:
    """Scores [n*kv, group*rows, columns] → [n, kv, group, rows, columns]."""
    return scores.view(n, kv, -1, chunk.rows.stop - chunk.rows.start, scores.shape[-1])
