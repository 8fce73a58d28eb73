"""How much arithmetic and reading the stages of an answer take, counted from the shape."""

from dataclasses import dataclass

from ..model.config import ModelConfig


@dataclass(frozen=True)
class Work:
    """Of one forward; a multiplication with its addition counts as two operations."""

    flops: float
    read_bytes: float  # weights and cached keys and values, each once


def language_forward(
    config: ModelConfig, item_bytes: int, *, rows: int, context: int, head_rows: int
) -> Work:
    """`rows` new tokens that see `context` slots, themselves included; `head_rows` get logits."""
    text = config.text
    attended = text.num_heads * text.head_dim
    cached = 2 * text.num_kv_heads * text.head_dim  # key and value of one slot
    matrices = text.hidden_size * (2 * attended + cached + 3 * text.intermediate_size)
    head = text.hidden_size * text.vocab_size
    flops = text.num_layers * (2 * rows * matrices + 4 * rows * context * attended)
    reads = text.num_layers * (matrices + context * cached)
    if head_rows:
        flops += 2 * head_rows * head
        reads += head
    return Work(flops, reads * item_bytes)


def vision_forward(config: ModelConfig, item_bytes: int, *, patches: int) -> Work:
    """One image of so many patches."""
    vision = config.vision
    hidden, merge = vision.hidden_size, vision.spatial_merge_size**2
    embed = vision.in_channels * vision.temporal_patch_size * vision.patch_size**2 * hidden
    block = hidden * (4 * hidden + 2 * vision.intermediate_size)
    merger = merge * hidden * (merge * hidden + vision.out_hidden_size)
    mergers = 1 + len(vision.deepstack_layers)
    flops = 2 * patches * (embed + vision.depth * block)
    flops += vision.depth * 4 * patches**2 * hidden + 2 * patches / merge * mergers * merger
    return Work(flops, (embed + vision.depth * block + mergers * merger) * item_bytes)
