"""Checkpoint folders of the nano models: configuration, words, tokenizer and random weights.

    python -m wamdiff_ros.training.nano OUT --size nano --seed 0

The architecture is the real model's, Qwen3-VL as WAM-Diff2 has it; only the sizes differ. The
prompts are short and all numbers have a fixed width, so that each digit has its own slot.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Regex, decoders, models, pre_tokenizers, trainers
from tokenizers import Tokenizer as TokenizerFile

from ..model.config import load_config
from ..model.network import Network
from ..model.weights import save_network
from ..planning.prompts import PromptTemplates

CONTROL_TOKENS = (
    '<|im_start|>',
    '<|im_end|>',
    '<|vision_start|>',
    '<|vision_end|>',
    '<|image_pad|>',
    '<|video_pad|>',
    '<|mask|>',
)
VOCABULARY = 768  # at most
MAX_PIXELS = 256 * 128
TEMPLATES = PromptTemplates(
    lead_in='Ahead:\n',
    # No acceleration: the expert's gives away that it moves off or turns. A model that is told it
    # learns that instead of looking, and waits for itself when it drives.
    navigation='\nCommand: {command}. Velocity: {velocity}. Waypoints:',
    # The state belongs into it: a picture does not say whether the vehicle stands or brakes.
    description=(
        '\nCommand: {command}. Velocity: {velocity}. Acceleration: {acceleration}. '
        'Describe the scene:'
    ),
    number_format='+05.1f',
    # 63 tokens, two blocks of 32 with four waypoints in each.
    waypoints='displacements',
)


@dataclass(frozen=True)
class Size:
    """What distinguishes one nano model from another."""

    hidden: int
    layers: int
    heads: int
    key_value_heads: int
    intermediate: int
    vision_hidden: int
    vision_layers: int


HEAD_DIM = 64
SIZES = {
    # The smallest that tests can train in seconds.
    'tiny': Size(64, 2, 1, 1, 128, 64, 2),
    # The bundled student, and its teacher of stage III.
    'nano': Size(192, 4, 3, 1, 576, 192, 4),
    'teacher': Size(320, 6, 5, 5, 960, 256, 5),
}


def write_skeleton(out: Path, size: Size, corpus: Iterable[str], block_size: int = 1) -> None:
    """Write everything of a checkpoint but its weights and its card.

    `corpus`: the texts that the model will read and write; the tokenizer is made for them.
    """
    tokenizer = make_tokenizer(corpus)
    ids = {token['content']: token['id'] for token in tokenizer['added_tokens']}
    config = {
        'architectures': ['WAMDiff2ForConditionalGeneration'],
        'model_type': 'wam_diff2',
        'dtype': 'bfloat16',
        'tie_word_embeddings': True,
        'block_size': block_size,
        'mask_token_id': ids['<|mask|>'],
        'eos_token_id': ids['<|im_end|>'],
        'image_token_id': ids['<|image_pad|>'],
        'video_token_id': ids['<|video_pad|>'],
        'vision_start_token_id': ids['<|vision_start|>'],
        'vision_end_token_id': ids['<|vision_end|>'],
        'text_config': {
            'model_type': 'wam_diff2_text',
            'vocab_size': -(-(max(ids.values()) + 1) // 64) * 64,
            'hidden_size': size.hidden,
            'intermediate_size': size.intermediate,
            'num_hidden_layers': size.layers,
            'num_attention_heads': size.heads,
            'num_key_value_heads': size.key_value_heads,
            'head_dim': HEAD_DIM,
            'hidden_act': 'silu',
            'rms_norm_eps': 1e-6,
            'rope_theta': 10000.0,
            'rope_scaling': {
                'rope_type': 'default',
                'mrope_interleaved': True,
                'mrope_section': [12, 10, 10],
            },
            'max_position_embeddings': 4096,
            'attention_bias': False,
        },
        'vision_config': {
            'model_type': 'wam_diff2',
            'depth': size.vision_layers,
            'hidden_size': size.vision_hidden,
            'intermediate_size': 3 * size.vision_hidden,
            'num_heads': size.vision_hidden // 64,
            'in_channels': 3,
            'patch_size': 16,
            'temporal_patch_size': 2,
            'spatial_merge_size': 2,
            'out_hidden_size': size.hidden,
            'num_position_embeddings': 256,
            # From the second layer on: edges and colours, which the last layer has forgotten.
            'deepstack_visual_indexes': [1],
            'hidden_act': 'gelu_pytorch_tanh',
        },
    }
    processor = {
        'patch_size': 16,
        'temporal_patch_size': 2,
        'merge_size': 2,
        'min_pixels': 32 * 32 * 4,
        'max_pixels': MAX_PIXELS,
        'image_mean': [0.5, 0.5, 0.5],
        'image_std': [0.5, 0.5, 0.5],
    }
    prompts = {
        name: getattr(TEMPLATES, name)
        for name in ('lead_in', 'navigation', 'description', 'number_format', 'waypoints')
    }
    out.mkdir(parents=True, exist_ok=True)
    for name, value in (
        ('config.json', config),
        ('preprocessor_config.json', processor),
        ('prompts.json', prompts),
        ('tokenizer.json', tokenizer),
    ):
        (out / name).write_text(json.dumps(value, indent=1, ensure_ascii=False) + '\n')


def make_tokenizer(corpus: Iterable[str]) -> dict:
    """Train a small byte-level BPE on `corpus` and on the nano prompts; digits stay single."""
    file = TokenizerFile(models.BPE())
    words = Regex(r' ?[A-Za-z_]+|[0-9]| ?[^\sA-Za-z_0-9]+|\s+')
    file.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(words, 'isolated'), pre_tokenizers.ByteLevel(False, use_regex=False)]
    )
    file.decoder = decoders.ByteLevel()
    questions = [
        TEMPLATES.description.format(
            command=word, velocity='(+08.3,-00.1)', acceleration='(-00.1,+00.2)'
        )
        for word in TEMPLATES.commands.values()
    ]
    # Separators with their signs become one token each, in answers as in questions.
    numbers = ['(+1,-2,+3)', '(-1,+2,-3).', '1.2,+3.4,5.6,-7.8']
    texts = ['user\n', 'assistant\n', TEMPLATES.lead_in, TEMPLATES.navigation]
    texts += [*questions, *numbers, *corpus]
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(CONTROL_TOKENS),
        min_frequency=1,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    file.train_from_iterator(texts * 8, trainer)
    file.add_special_tokens(list(CONTROL_TOKENS))
    return json.loads(file.to_str())


def write_random_weights(out: Path, seed: int, std: float = 0.02) -> None:
    """Give a skeleton seeded random weights, saved in float32 beside its configuration."""
    torch.manual_seed(seed)
    network = Network(load_config(out))
    for parameter in network.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=std)
    save_network(network, out / 'model.safetensors', torch.float32)


def main(args: list[str] | None = None) -> int:
    """Write the checkpoint that training starts from; returns 0, or 1 where OUT exists."""
    from ..simulation.truth import LATERAL, LONGITUDINAL, WORDINGS
    from .conversations import corpus

    parser = argparse.ArgumentParser(
        prog='python -m wamdiff_ros.training.nano',
        description='Write a nano checkpoint with random weights, to start training from.',
    )
    parser.add_argument('out', type=Path, metavar='OUT', help='new folder')
    parser.add_argument('--size', choices=SIZES, default='nano', help='(%(default)s)')
    parser.add_argument(
        '--seed', type=int, default=0, metavar='S', help='of the weights (%(default)s)'
    )
    arguments = parser.parse_args(args)
    out = arguments.out
    if out.exists():
        print(f'{out}: is there already; delete it or choose another folder', file=sys.stderr)
        return 1
    # Whole lines too, so that what stands between two fields becomes one token.
    lines = [
        f'longitudinal: {longitudinal}\nlateral: {lateral}\nexplanation: '
        for longitudinal in LONGITUDINAL
        for lateral in LATERAL
    ]
    partial = out.with_name(f'.{out.name}.{os.getpid()}.partial')
    write_skeleton(partial, SIZES[arguments.size], corpus(TEMPLATES, [*WORDINGS, *lines]))
    write_random_weights(partial, arguments.seed)
    partial.rename(out)
    print(out)
    return 0


if __name__ == '__main__':
    sys.exit(main())
