"""Make the nano checkpoint of the demo: `python -m wamdiff_ros.training.demo_model OUT`.

A few million random weights, fitted at block size 32 to continue plain motion (see motion.py).
The vision tower stays random and the model says so when it is asked for a description. It stands
in until checkpoints that drive are trained; the architecture is the real model's.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import cv2
import numpy as np
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer as TokenizerFile
from tokenizers import decoders, models, pre_tokenizers, trainers
from torch.nn.functional import cross_entropy, scaled_dot_product_attention
from tqdm import tqdm

from ..model.chat import user_prompt
from ..model.config import ModelConfig, load_config
from ..model.image_processor import ImageProcessor
from ..model.network import Network
from ..model.tokenizer import Tokenizer
from ..model.weights import save_network
from ..planning.prompts import Image, PromptTemplates, description_turn, navigation_turn
from ..types import CameraFrame, Command, Observation
from .block_layout import BlockBatch, fill_answer
from .motion import sample_motion, write_fixed_width

BLOCK_SIZE = 32
# Of training images, in pixels; the large ones are what cameras come to after resizing.
SMALL_SIZES = [(32 * h, 32 * w) for h in (1, 2, 3, 4) for w in (1, 2, 3, 4, 5)]
LARGE_SIZES = [(160, 320), (192, 320), (192, 256), (128, 448), (160, 352), (128, 416)]
DESCRIPTION = 'This demo checkpoint continues the present motion. It does not look at the image.'
CONTROL_TOKENS = (
    '<|im_start|>',
    '<|im_end|>',
    '<|vision_start|>',
    '<|vision_end|>',
    '<|image_pad|>',
    '<|video_pad|>',
    '<|mask|>',
)
CARD = """\
# Demo checkpoint: trained on plain motion only, it does not look at the image

Made by `python -m wamdiff_ros.training.demo_model`. Architecture: Qwen3-VL as in WAM-Diff2, at
nano size, block size 32. The language tower was fitted to continue a vehicle's motion from the
velocity and acceleration in its prompt; the truth is a model whose acceleration and yaw rate fade.
The vision tower has random weights. The last of its runs: {steps} steps of {batch} samples.

Measured on 200 held-out motions at the checkpoint's own decoding settings: {parsed} of 200
answers parse, mean waypoint error {error:.2f} m.

Limits: it does not see anything. It must not drive anything.
"""


def make_tokenizer(templates: PromptTemplates) -> dict:
    """Train a small byte-level BPE on the prompts' own words; digits stay single."""
    file = TokenizerFile(models.BPE())
    file.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(False)]
    )
    file.decoder = decoders.ByteLevel()
    words = [templates.lead_in, templates.navigation, templates.description, DESCRIPTION]
    words += ['user\n', 'assistant\n', *(command.value for command in Command)]
    trainer = trainers.BpeTrainer(
        vocab_size=640,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    file.train_from_iterator(words * 4, trainer)
    file.add_special_tokens(list(CONTROL_TOKENS))
    return json.loads(file.to_str())


def write_skeleton(out: Path, templates: PromptTemplates) -> None:
    """Write everything of the checkpoint but its weights and its card."""
    tokenizer = make_tokenizer(templates)
    ids = {token['content']: token['id'] for token in tokenizer['added_tokens']}
    config = {
        'architectures': ['WAMDiff2ForConditionalGeneration'],
        'model_type': 'wam_diff2',
        'dtype': 'bfloat16',
        'tie_word_embeddings': True,
        'block_size': BLOCK_SIZE,
        'denoising_steps': 3,
        'mask_token_id': ids['<|mask|>'],
        'eos_token_id': ids['<|im_end|>'],
        'image_token_id': ids['<|image_pad|>'],
        'video_token_id': ids['<|video_pad|>'],
        'vision_start_token_id': ids['<|vision_start|>'],
        'vision_end_token_id': ids['<|vision_end|>'],
        'text_config': {
            'model_type': 'wam_diff2_text',
            'vocab_size': -(-(max(ids.values()) + 1) // 64) * 64,
            'hidden_size': 128,
            'intermediate_size': 384,
            'num_hidden_layers': 4,
            'num_attention_heads': 4,
            'num_key_value_heads': 2,
            'head_dim': 32,
            'hidden_act': 'silu',
            'rms_norm_eps': 1e-6,
            'rope_theta': 10000.0,
            'rope_scaling': {
                'rope_type': 'default',
                'mrope_interleaved': True,
                'mrope_section': [6, 5, 5],
            },
            'max_position_embeddings': 4096,
            'attention_bias': False,
        },
        'vision_config': {
            'model_type': 'wam_diff2',
            'depth': 2,
            'hidden_size': 64,
            'intermediate_size': 128,
            'num_heads': 2,
            'in_channels': 3,
            'patch_size': 16,
            'temporal_patch_size': 2,
            'spatial_merge_size': 2,
            'out_hidden_size': 128,
            'num_position_embeddings': 256,
            'deepstack_visual_indexes': [0],
            'hidden_act': 'gelu_pytorch_tanh',
        },
    }
    processor = {
        'patch_size': 16,
        'temporal_patch_size': 2,
        'merge_size': 2,
        'min_pixels': 32 * 32 * 4,
        'max_pixels': 320 * 192,
        'image_mean': [0.5, 0.5, 0.5],
        'image_std': [0.5, 0.5, 0.5],
    }
    out.mkdir(parents=True, exist_ok=True)
    for name, value in (
        ('config.json', config),
        ('preprocessor_config.json', processor),
        ('tokenizer.json', tokenizer),
    ):
        (out / name).write_text(json.dumps(value, indent=1, ensure_ascii=False) + '\n')


class Samples:
    """Draws prompts and answers; images are a fixed pool of noise and blurs, encoded once.

    Many sizes, because each shifts the text against the blocks of the prompt.
    """

    def __init__(self, model_dir: Path, network: Network, seed: int):
        self.config: ModelConfig = network.config
        self.tokenizer = Tokenizer.load(model_dir, self.config)
        self.processor = ImageProcessor.load(model_dir, self.config.vision)
        self.templates = PromptTemplates.load(model_dir)
        self.random = np.random.default_rng(seed)
        self.frames, self.features, self.grids = [], [], []
        self.small = len(SMALL_SIZES)
        for index, (height, width) in enumerate(SMALL_SIZES + LARGE_SIZES):
            coarse = (height, width) if index % 4 == 0 else (3, 5)
            noise = self.random.integers(0, 256, (*coarse, 3), np.uint8)
            rgb = cv2.resize(noise, (width, height), interpolation=cv2.INTER_CUBIC)
            patches, grid = self.processor.patches(rgb)
            with torch.no_grad():
                self.features.append(network.vision(torch.from_numpy(patches), grid))
            self.frames.append(CameraFrame('front', 0, rgb))
            self.grids.append(grid)

    def draw(self, which: int):
        """Return a prompt, its image's index in the pool, the answer's text and its motion."""
        motion = sample_motion(self.random)
        command = list(Command)[self.random.integers(3)]
        observation = Observation(0, (self.frames[which],), motion.ego(), command)
        describe = self.random.random() < 0.04
        turn = (description_turn if describe else navigation_turn)(self.templates, observation)
        parts = [part.index if isinstance(part, Image) else part.text for part in turn]
        prompt = user_prompt(parts, [self.grids[which]], self.tokenizer, self.config)
        text = DESCRIPTION if describe else write_fixed_width(motion.waypoints_base_m)
        return prompt, text, motion, observation

    def batch(self, size: int, generator: torch.Generator):
        """Return a noised batch, and per sample the image's place and pool index."""
        prefixes, answers, images = [], [], []
        # Full-size images are dear, so they come seldom, and then for the whole batch.
        large = self.random.random() < 0.25
        pool = range(self.small, len(self.frames)) if large else range(self.small)
        for _ in range(size):
            which = int(self.random.choice(pool))
            prompt, text, _, _ = self.draw(which)
            ids = self.tokenizer.encode(text)
            answers.append(fill_answer(ids, self.config.eos_token_ids[0], BLOCK_SIZE))
            prefixes.append((prompt.token_ids, prompt.positions, prompt.next_position))
            images.append((prompt.images[0], which))
        from .block_layout import collate

        batch = collate(prefixes, answers, BLOCK_SIZE, self.config.mask_token_id, generator)
        return batch, images


def loss_of(network: Network, samples: Samples, batch: BlockBatch, images) -> torch.Tensor:
    """Return the mean cross-entropy of the masked slots.

    Not weighted by 1/t: a decoder of few steps spends its time in noisy states.
    """
    text = network.text
    x = text.embed_tokens(batch.token_ids)
    deepstack = [torch.zeros_like(x) for _ in network.config.vision.deepstack_layers]
    rows = []
    for row, ((first, count), which) in enumerate(images):
        tokens, deep = samples.features[which]
        rows.append(torch.cat((x[row, :first], tokens.to(x.dtype), x[row, first + count :])))
        for layer, feature in zip(deepstack, deep, strict=True):
            layer[row, first : first + count] = feature

    def attend(layer, query, key, value):
        return scaled_dot_product_attention(
            query, key, value, attn_mask=batch.visible, enable_gqa=True
        )

    hidden = text(torch.stack(rows), batch.positions, attend, deepstack)
    masked = batch.labels >= 0
    return cross_entropy(network.head(hidden[masked]), batch.labels[masked])


def train(out: Path, minutes: float, batch_size: int, seed: int) -> int:
    """Fit the network for `minutes`; saves into `out` and returns the number of steps.

    Goes on from the weights in `out` where there are some.
    """
    torch.manual_seed(seed)
    network = Network(load_config(out))
    weights = out / 'model.safetensors'
    if weights.exists():
        network.load_state_dict(load_file(weights))
    else:
        for parameter in network.parameters():
            if parameter.dim() > 1:
                torch.nn.init.normal_(parameter, std=0.02)
    network.vision.requires_grad_(False)
    samples = Samples(out, network, seed)
    generator = torch.Generator().manual_seed(seed)
    trained = [p for p in network.parameters() if p.requires_grad]
    optimiser = torch.optim.AdamW(trained, lr=1.0, betas=(0.9, 0.95), weight_decay=0.01)
    peak, warm_up = 3e-3, 100
    start, steps = time.monotonic(), 0
    with tqdm(total=round(minutes * 60), unit='s', smoothing=0) as bar:
        while (elapsed := time.monotonic() - start) < minutes * 60:
            left = 1 - elapsed / (minutes * 60)
            for group in optimiser.param_groups:
                group['lr'] = peak * min(1.0, (steps + 1) / warm_up) * min(1.0, 0.02 + 2 * left)
            batch, images = samples.batch(batch_size, generator)
            with torch.autocast('cpu', torch.bfloat16):
                loss = loss_of(network, samples, batch, images)
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(trained, 1.0)
            optimiser.step()
            steps += 1
            bar.update(min(bar.total - bar.n, round(time.monotonic() - start) - bar.n))
            bar.set_postfix(step=steps, loss=f'{loss.item():.3f}')
            if steps % 200 == 0:
                save_network(network, weights, torch.bfloat16)
    save_network(network, weights, torch.bfloat16)
    return steps


def evaluate(out: Path, count: int = 200) -> tuple[int, float]:
    """Return how many of `count` held-out answers parse, and their mean waypoint error [m]."""
    from ..parameters import Parameters
    from ..runtime.session import PlanningSession

    session = PlanningSession.load(Parameters.from_mapping({'model_dir': str(out)}))
    samples = Samples(out, session._engine.network, seed=123_456)
    errors = []
    for _ in tqdm(range(count), unit='plan'):
        which = samples.small + len(errors) % len(LARGE_SIZES)
        _, _, motion, observation = samples.draw(which)
        plan = session.plan(observation).plan
        if plan is not None:
            off = plan.waypoints_base_m - motion.waypoints_base_m
            errors.append(float(np.linalg.norm(off, axis=1).mean()))
    return len(errors), float(np.mean(errors)) if errors else float('nan')


def main() -> int:
    """Make the checkpoint from nothing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('out', type=Path, help='checkpoint folder to write')
    parser.add_argument('--minutes', type=float, default=20.0, help='training time (default 20)')
    parser.add_argument('--batch', type=int, default=32, help='samples per step (default 32)')
    parser.add_argument('--seed', type=int, default=0)
    args = parser.parse_args()
    if not (args.out / 'model.safetensors').exists():
        write_skeleton(args.out, PromptTemplates())
    steps = train(args.out, args.minutes, args.batch, args.seed)
    parsed, error = evaluate(args.out)
    card = CARD.format(steps=steps, batch=args.batch, parsed=parsed, error=error)
    (args.out / 'README.md').write_text(card)
    print(card)
    return 0


if __name__ == '__main__':
    sys.exit(main())
