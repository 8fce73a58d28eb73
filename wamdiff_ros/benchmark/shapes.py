"""The networks that are measured: a checkpoint, or the published shape with random weights."""

from dataclasses import replace

import torch

from ..model.config import ModelConfig, TextConfig, VisionConfig
from ..model.network import Network
from ..model.rope import MRope

# Qwen3-VL-2B, as WAM-Diff2 takes it: block size 32, mask token 151671.
QWEN3_VL_2B = ModelConfig(
    family='wam_diff2',
    text=TextConfig(
        vocab_size=151_936,
        hidden_size=2048,
        intermediate_size=6144,
        num_layers=28,
        num_heads=16,
        num_kv_heads=8,
        head_dim=128,
        rms_norm_eps=1e-6,
        rope_theta=5e6,
        mrope_section=(24, 20, 20),
        max_position=262_144,
    ),
    vision=VisionConfig(
        depth=24,
        hidden_size=1024,
        intermediate_size=4096,
        num_heads=16,
        in_channels=3,
        patch_size=16,
        temporal_patch_size=2,
        spatial_merge_size=2,
        out_hidden_size=2048,
        num_position_embeddings=2304,
        deepstack_layers=(5, 11, 17),
    ),
    tied_head=True,
    image_token_id=151_655,
    video_token_id=151_656,
    vision_start_token_id=151_652,
    vision_end_token_id=151_653,
    eos_token_ids=(151_645,),
    block_size=32,
    mask_token_id=151_671,
    denoising_steps=8,
)
_RANDOM_VALUES = 1 << 22


def random_network(config: ModelConfig, dtype: torch.dtype, device: torch.device) -> Network:
    """Return a network of this shape whose matrices are noise and whose norms are ones.

    The noise repeats itself, because billions of normal numbers take a minute to draw and no
    kernel's time depends on them.
    """
    with torch.device('meta'):
        network = Network(config)
    network = network.to(dtype).to_empty(device=device)
    generator = torch.Generator().manual_seed(0)
    noise = (0.02 * torch.randn(_RANDOM_VALUES, generator=generator)).to(device, dtype)
    for name, parameter in network.named_parameters():
        values = parameter.data.view(-1)
        if parameter.dim() == 1:
            values.fill_(1.0 if name.endswith('weight') else 0.0)
            continue
        for start in range(0, values.numel(), _RANDOM_VALUES):
            part = values[start : start + _RANDOM_VALUES]
            part.copy_(noise[: part.numel()])
    text = config.text
    network.text.rope = MRope(text.head_dim, text.rope_theta, text.mrope_section).to(device)
    return network.eval().requires_grad_(False)


def token_by_token(config: ModelConfig) -> ModelConfig:
    """Return the same network as an autoregressive one: blocks of one token, causal prompts."""
    return replace(config, block_size=1, denoising_steps=1)


def twin(network: Network) -> Network:
    """Return another network over the same tensors, whose modules can be replaced."""
    with torch.device('meta'):
        other = Network(network.config)
    other.load_state_dict(network.state_dict(), assign=True)
    other.text.rope = network.text.rope
    return other.eval().requires_grad_(False)
