"""On-policy distillation: the student decodes its own answers, and learns from where it went.

The decoded answer becomes the clean copy, and states that the student really passed through while
decoding become the noisy copies, as the paper has it; the reference's code masks the finished
answer at random instead. The decoder and its KV cache are those of the runtime.
"""

import numpy as np
import torch

from ..decoding.block_diffusion import BlockSettings, Trace, decode_blocks
from ..model.network import Network
from ..runtime.engine import Engine, ImageFeatures
from .batches import TaskBatch
from .block_layout import BlockBatch, fill_answer, lay_out_blocks
from .recipe import Recipe


class OnPolicy:
    """Decodes with a copy of the student's weights in the dtype that decoding runs in."""

    def __init__(self, recipe: Recipe, student: Network, dtype: torch.dtype):
        self._student = student
        device = student.text.embed_tokens.weight.device
        with torch.device(device):
            network = Network(student.config).to(dtype)
        self._engine = Engine(network.eval().requires_grad_(False))
        steps = recipe.on_policy_steps or student.config.denoising_steps
        self._settings = BlockSettings.of(student.config, denoising_steps=steps)
        self._copies = recipe.noisy_copies

    def lay_out(
        self, batch: TaskBatch, teacher_block_size: int, random: np.random.Generator
    ) -> BlockBatch:
        """Return the layout of the student's own answers to the prompts of `batch`."""
        answers, states = self.decode(batch)
        size, mask = self._settings.block_size, self._settings.mask_token_id
        noisy = []
        for row, answer in enumerate(answers):
            blocks = len(answer) // size
            # An answer may be done with a block before the others are.
            unfinished = [[s[row] for s in block if mask in s[row]] for block in states[:blocks]]
            copies = np.empty((self._copies, len(answer)), np.int64)
            for copy in range(self._copies):
                for block, choices in enumerate(unfinished):
                    choice = choices[random.integers(len(choices))]
                    copies[copy, block * size : (block + 1) * size] = choice
            noisy.append(copies)
        levels = [
            (copies == mask).reshape(self._copies, -1, size).mean(2).repeat(size, axis=1)
            for copies in noisy
        ]
        prompts = [example.prompt for example in batch.examples]
        return lay_out_blocks(prompts, answers, noisy, levels, size, mask, teacher_block_size)

    def decode(self, batch: TaskBatch) -> tuple[list[list[int]], list[list[np.ndarray]]]:
        """Decode all prompts of `batch` together, as far as its longest answer.

        Returns each answer, filled to whole blocks, and per block its states before every
        denoising step, token ids [n, B] in which masked slots hold the mask token.
        """
        config, size = self._student.config, self._settings.block_size
        engine = self._engine
        engine.network.load_state_dict(self._student.state_dict())
        prompts = [example.prompt for example in batch.examples]
        longest = max(len(example.answer) + 1 for example in batch.examples)
        with torch.inference_mode():
            features = self._encode(batch)
            engine.prefill(prompts, features, longest)
        trace = Trace(record=True)
        decoded = decode_blocks(engine, self._settings, longest, trace=trace)
        states, first = [], 0
        for steps in trace.steps_per_block:
            states.append([trace.steps[first + step][0].cpu().numpy() for step in range(steps)])
            first += steps
        answers = []
        for answer in decoded:
            ids = list(answer.token_ids)
            if answer.finished:
                ids = fill_answer(ids, config.eos_token_ids[0], size)
            answers.append(ids)
        return answers, states

    def _encode(self, batch: TaskBatch) -> list[list[ImageFeatures]]:
        """Run the vision tower over all images of one size together."""
        features: list[dict[int, ImageFeatures]] = [{} for _ in batch.examples]
        for group in batch.images:
            patches = group.patches.to(self._engine.dtype)
            tokens, deepstack = self._engine.network.vision(patches, group.grid)
            places = zip(group.rows.tolist(), group.starts.tolist(), strict=True)
            for index, (row, start) in enumerate(places):
                features[row][start] = ImageFeatures(
                    None, group.grid, tokens[index], tuple(layer[index] for layer in deepstack)
                )
        return [[row[start] for start in sorted(row)] for row in features]
