"""The outside baseline: `transformers`' own Qwen3-VL with the same weights.

It generates token by token with its KV cache, greedily, over the same prompt and pixels. Its
prefill is one forward that includes the vision tower and computes the logits of the last token
only, as its `generate` does it.
"""

from dataclasses import asdict

import torch

from ..model.config import ModelConfig
from ..model.network import Network
from .runs import Clock, Run
from .workload import Question

try:
    import transformers
    from transformers.generation.streamers import BaseStreamer
except ImportError as error:
    raise ImportError(
        'the outside baseline needs transformers: pip install -r requirements/bench.txt'
    ) from error

VERSION = transformers.__version__


class TransformersBaseline:
    """`transformers`' model, sharing the memory of the network's weights."""

    def __init__(self, network: Network):
        self._model = share_weights(network)

    def answer(self, question: Question, tokens: int) -> Run:
        """Prefill once by itself, then generate exactly `tokens` tokens."""
        inputs = self._inputs(question)
        clock = Clock(self._model.device)
        with torch.inference_mode():
            self._model(**inputs, use_cache=True, logits_to_keep=1)
        prefill_s = clock.lap()
        laps = _TokenClock(self._model.device)
        ids = self._model.generate(
            **inputs, max_new_tokens=tokens, do_sample=False, eos_token_id=None, streamer=laps,
        )  # fmt: skip
        answer = ids[0, len(question.prompt) :].tolist()
        if len(answer) != tokens:
            raise RuntimeError(f'transformers generated {len(answer)} tokens instead of {tokens}')
        # The streamer gets the prompt, then token by token; the first one is the prefill's.
        return Run(0.0, prefill_s, sum(laps.seconds[2:]), tokens, tokens - 1, tuple(answer))

    def _inputs(self, question: Question) -> dict[str, torch.Tensor]:
        device = self._model.device
        ids = torch.tensor([question.prompt.token_ids], device=device)
        inputs = {'input_ids': ids, 'attention_mask': torch.ones_like(ids)}
        if question.images:
            pixels = [torch.from_numpy(image.patches.copy()) for image in question.images]
            inputs['pixel_values'] = torch.cat(pixels).to(device, self._model.dtype)
            inputs['image_grid_thw'] = torch.tensor(
                [image.grid for image in question.images], device=device
            )
            image = self._model.config.image_token_id
            inputs['mm_token_type_ids'] = (ids == image).int()
        return inputs


class _TokenClock(BaseStreamer):
    """Notes the seconds until `generate` hands over the prompt, and each token."""

    def __init__(self, device: torch.device):
        self.seconds: list[float] = []
        self._clock = Clock(device)

    def put(self, value: torch.Tensor) -> None:
        """Called with the prompt, then with every token."""
        self.seconds.append(self._clock.lap())

    def end(self) -> None:
        """Called once, after the last token."""


def share_weights(network: Network) -> 'transformers.Qwen3VLForConditionalGeneration':
    """Return transformers' model with the network's own tensors as its weights."""
    weight = network.text.embed_tokens.weight
    config = transformers_config(network.config)
    with torch.device('meta'):
        model = transformers.Qwen3VLForConditionalGeneration(config)
    missing, surplus = model.load_state_dict(network.state_dict(), strict=False, assign=True)
    if surplus or set(missing) - {'lm_head.weight'}:
        raise RuntimeError(f'transformers names other tensors: {[*missing, *surplus][:5]}')
    model.tie_weights()
    # Tables that are computed, not stored, were on the meta device too.
    for parent, name in _rotary_modules(model):
        old = getattr(parent, name)
        setattr(parent, name, type(old)(old.config).to(weight.device))
    left = [name for name, t in [*model.named_parameters(), *model.named_buffers()] if t.is_meta]
    if left:
        raise RuntimeError(f'transformers has tensors that no checkpoint holds: {left[:5]}')
    model.generation_config.eos_token_id = None  # as many tokens as are asked for
    return model.eval()


def transformers_config(config: ModelConfig) -> 'transformers.Qwen3VLConfig':
    """Return the same architecture in transformers' words."""
    text, vision = asdict(config.text), asdict(config.vision)
    theta, section = text.pop('rope_theta'), text.pop('mrope_section')
    text['rope_parameters'] = {
        'rope_type': 'default', 'rope_theta': theta, 'mrope_section': list(section),
        'mrope_interleaved': True,
    }  # fmt: skip
    text['num_hidden_layers'] = text.pop('num_layers')
    text['num_attention_heads'] = text.pop('num_heads')
    text['num_key_value_heads'] = text.pop('num_kv_heads')
    text['max_position_embeddings'] = text.pop('max_position')
    vision['deepstack_visual_indexes'] = list(vision.pop('deepstack_layers'))
    return transformers.Qwen3VLConfig(
        text_config={**text, 'tie_word_embeddings': config.tied_head},
        vision_config=vision,
        tie_word_embeddings=config.tied_head,
        image_token_id=config.image_token_id,
        video_token_id=config.video_token_id,
        vision_start_token_id=config.vision_start_token_id,
        vision_end_token_id=config.vision_end_token_id,
    )


def _rotary_modules(model: torch.nn.Module):
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            if any(buffer.is_meta for buffer in child.buffers(recurse=False)):
                yield parent, name
