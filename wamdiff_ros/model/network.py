"""The whole network, with the module names of a Hugging Face checkpoint."""

import torch
from torch import nn

from .config import ModelConfig
from .text import TextTower
from .vision import VisionTower


class _Towers(nn.Module):
    def __init__(self, config: ModelConfig):
        super().__init__()
        self.visual = VisionTower(config.vision)
        self.language_model = TextTower(config.text)


class Network(nn.Module):
    """Both towers and the head; `state_dict` has the checkpoint's tensor names."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.config = config
        self.quantised = ''  # in words, by runtime.quantisation
        self.model = _Towers(config)
        # A tied head has no tensor of its own in the checkpoint, and none here.
        self.lm_head = (
            None
            if config.tied_head
            else nn.Linear(config.text.hidden_size, config.text.vocab_size, bias=False)
        )

    @property
    def text(self) -> TextTower:
        """The language tower."""
        return self.model.language_model

    @property
    def vision(self) -> VisionTower:
        """The vision tower."""
        return self.model.visual

    def head(self, hidden: torch.Tensor) -> torch.Tensor:
        """Hidden states [..., hidden] → logits [..., vocab], in float32.

        Float32 because confidences are compared with a threshold: in bfloat16 a probability of
        0.8984 would count as 0.9.
        """
        if self.lm_head is None:
            return nn.functional.linear(hidden, self.text.embed_tokens.weight).float()
        return self.lm_head(hidden).float()
