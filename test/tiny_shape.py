"""The real architecture in a size that runs in milliseconds."""

from dataclasses import replace

from wamdiff_ros.benchmark.shapes import QWEN3_VL_2B

TINY = replace(
    QWEN3_VL_2B,
    text=replace(
        QWEN3_VL_2B.text, vocab_size=320, hidden_size=64, intermediate_size=128, num_layers=2,
        num_heads=2, num_kv_heads=1, head_dim=64, mrope_section=(12, 10, 10), max_position=4096,
    ),
    vision=replace(
        QWEN3_VL_2B.vision, depth=2, hidden_size=64, intermediate_size=128, num_heads=1,
        out_hidden_size=64, num_position_embeddings=64, deepstack_layers=(0,),
    ),
    image_token_id=315, video_token_id=316, vision_start_token_id=317, vision_end_token_id=318,
    eos_token_ids=(313,), mask_token_id=314, block_size=8, denoising_steps=4,
)  # fmt: skip
