"""The training loop, for every kind of recipe: batches, loss, optimiser step, checkpoint.

One process, or several under `accelerate launch`. Not responsible for what a batch holds
(batches.py), how it is laid out (block_layout.py) or what the losses are (losses.py).
"""

import math
import signal
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path

import torch
from accelerate import Accelerator
from torch.distributed.checkpoint import state_dict as sharded
from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm

from ..model.config import load_config
from ..model.image_processor import ImageProcessor
from ..model.tokenizer import Tokenizer
from ..model.weights import load_network
from ..planning.prompts import PromptTemplates
from . import checkpoints
from .batches import Batches, Examples, Records, TaskBatch, move
from .block_layout import Layout
from .distillation import Teacher
from .image_features import ImageFeatures
from .losses import macro_average, masked_cross_entropy
from .network_forward import NetworkForward
from .perception import VisionForward, perception_losses, seen
from .recipe import BOOKKEEPING, Recipe, RecipeError
from .schedule import parameter_groups, rate_factor, set_rates
from .shards import Shards

# Also of a model that is spread over processes.
WHOLE = sharded.StateDictOptions(full_state_dict=True, cpu_offload=True)


class Trainer:
    """One run of a recipe."""

    def __init__(self, recipe: Recipe, records: Records | None = None):
        """Load everything; `records` replace those of the recipe's data folders."""
        self.recipe = recipe
        precision = {'bf16': 'bf16', 'fp32': 'no'}[recipe.precision]
        self.accelerator = Accelerator(mixed_precision=precision)
        self.step = 0
        init = recipe.init
        self.config_json = checkpoints.trained_config(
            init,
            recipe.block_size,
            recipe.mask_token_id,
            denoising_steps=recipe.denoising_steps or None,
            confidence_threshold=recipe.confidence_threshold or None,
            unmasking=recipe.unmasking or None,
            window_frames=recipe.window_frames,
        )
        config = load_config(init, self.config_json)
        records = Shards(recipe.data) if records is None else records
        examples = Examples(
            records,
            config,
            Tokenizer.load(init, config),
            ImageProcessor.load(init, config.vision),
            PromptTemplates.load(init),
        )
        device = self.accelerator.device
        network = load_network(init, config, dtype=torch.float32, device=device)
        network.train().requires_grad_(True)
        self.network = network
        if recipe.image_features:
            with self.accelerator.main_process_first():
                examples.features = ImageFeatures(
                    recipe.image_features, records, network, examples, recipe.image_sizes[0]
                )
        fused = device.type != 'cpu'
        if recipe.kind == 'vision':
            torch.manual_seed(recipe.seed)  # of the head
            forward = VisionForward(network, recipe.image_sizes[0], fused).to(device)
        else:
            forward = NetworkForward(network, recipe.vision_learning_rate > 0, fused)
        if recipe.compile:
            forward.compile_layers()
        optimizer = torch.optim.AdamW(
            parameter_groups(forward, recipe), betas=recipe.betas, fused=True
        )
        self.model, self.optimizer = self.accelerator.prepare(forward, optimizer)
        rank = self.accelerator.process_index
        self.teacher = Teacher(recipe, network, device, rank) if recipe.teacher else None
        self.batches = Batches(
            examples,
            Layout(
                recipe.block_size,
                recipe.noisy_copies,
                self.teacher.block_size if self.teacher else None,
                recipe.fully_masked,
                recipe.in_turn,
                recipe.waiting_weight,
                recipe.slip_mps,
                recipe.window_frames,
            ),
            recipe.batch,
            recipe.seed,
            image_sizes=recipe.image_sizes,
            micro_batch=recipe.micro_batch,
            emphasis=recipe.emphasis,
            rank=rank,
            processes=self.accelerator.num_processes,
        )

    def run(self, stop_after: int | None = None) -> Path | None:
        """Train up to step `stop_after` (the recipe's last), and return the newest checkpoint.

        SIGINT and SIGTERM end the run after the step at hand, with a checkpoint.
        """
        recipe, accelerator = self.recipe, self.accelerator
        end = min(recipe.steps, recipe.steps if stop_after is None else stop_after)
        main = accelerator.is_main_process
        writer = SummaryWriter(str(recipe.output / 'log'), purge_step=self.step) if main else None
        sums: dict[str, list[torch.Tensor]] = {}
        saved = None
        with (
            _stop_signals() as stopping,
            closing(self.batches.ahead(range(self.step, end))) as batches,
            tqdm(total=end, initial=self.step, unit='step', disable=not main) as bar,
        ):
            for batch in batches:
                for name, value in self.train_step(batch).items():
                    sums.setdefault(name, []).append(value)
                self.step += 1
                bar.update()
                if self.step % recipe.log_every == 0 or self.step == end:
                    means = {name: torch.stack(values).mean() for name, values in sums.items()}
                    sums = {}
                    means = {
                        name: accelerator.reduce(value, 'mean').item()
                        for name, value in sorted(means.items())
                    }
                    for name, value in means.items():
                        if not math.isfinite(value):
                            raise FloatingPointError(
                                f'{name} is {value} at step {self.step}; go on from the newest '
                                'checkpoint with a lower learning_rate'
                            )
                    if main:
                        means['rate'] = recipe.learning_rate * rate_factor(recipe, self.step - 1)
                        for name, value in means.items():
                            writer.add_scalar(name, value, self.step)
                        bar.set_postfix({n: f'{v:.4g}' for n, v in means.items()})
                stop = self._anywhere(bool(stopping))
                if self.step % recipe.checkpoint_every == 0 or self.step == end or stop:
                    saved = self.save()
                if stop:
                    break
        if writer:
            writer.close()
        return saved

    def _anywhere(self, flag: bool) -> bool:
        """Return whether `flag` is set on any process."""
        if self.accelerator.num_processes == 1:
            return flag
        total = torch.tensor(float(flag), device=self.accelerator.device)
        return self.accelerator.reduce(total, 'sum').item() > 0

    def train_step(self, batches: list[TaskBatch]) -> dict[str, torch.Tensor]:
        """Do one optimiser step; return the losses by name, and the gradient's norm."""
        recipe, accelerator = self.recipe, self.accelerator
        set_rates(self.optimizer, recipe, self.step)
        parts = {}
        for index, batch in enumerate(batches):
            last = index == len(batches) - 1
            with nullcontext() if last else accelerator.no_sync(self.model):
                losses = self.losses(batch.to(accelerator.device))
                # Several processes average their gradients; shares add up to one on each.
                accelerator.backward(sum(losses.values()) * batch.share)
            for name, loss in losses.items():
                parts.setdefault(f'{name}/{batch.task}', []).append(loss.detach())
        norm = accelerator.clip_grad_norm_(self.model.parameters(), recipe.clip_norm)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return {name: torch.stack(p).mean() for name, p in parts.items()} | {'gradient': norm}

    def losses(self, batch: TaskBatch) -> dict[str, torch.Tensor]:
        """Return the loss of a batch in its parts, which add up to what is minimised."""
        if self.teacher is not None:
            return self.teacher.losses(self.model, batch, self.step)
        if self.recipe.kind == 'vision':
            return self._vision_losses(batch)
        layout = batch.layout
        logits = self.model(layout, batch.images)
        noise = layout.noise if self.recipe.weighting == 'inverse_t' else None
        loss = masked_cross_entropy(logits, layout.labels, noise)
        return {'cross_entropy': macro_average(loss, layout.shares)}

    def _vision_losses(self, batch: TaskBatch) -> dict[str, torch.Tensor]:
        model = self.accelerator.unwrap_model(self.model)
        truth = seen([example.record for example in batch.examples], model.rows, model.columns)
        truth = move(truth, self.accelerator.device)
        return perception_losses(self.model(batch.images, truth), truth)

    def save(self) -> Path | None:
        """Write a checkpoint; every process has to call this, the main one returns its path."""
        weights, optimizer = sharded.get_state_dict(
            self.model, self.optimizer.optimizer, options=WHOLE
        )
        self.accelerator.wait_for_everyone()
        if not self.accelerator.is_main_process:
            return None
        return checkpoints.save(
            self.recipe.output,
            self.step,
            self.recipe.init,
            self.config_json,
            {
                name.removeprefix(checkpoints.NETWORK): tensor.contiguous()
                for name, tensor in weights.items()
                if name.startswith(checkpoints.NETWORK)
            },
            {
                name: tensor
                for name, tensor in weights.items()
                if not name.startswith(checkpoints.NETWORK)
            },
            {
                f'{name}/{kind}': tensor
                for name, tensors in optimizer['state'].items()
                for kind, tensor in tensors.items()
            },
            {'recipe': self.recipe.to_json()},
            self.recipe.keep_checkpoints,
        )

    def resume(self) -> None:
        """Go on from the newest checkpoint in the output folder."""
        found = checkpoints.checkpoints(self.recipe.output)
        if not found:
            raise RecipeError(f'{self.recipe.output}: there is no checkpoint to resume from')
        weights, optimizer, state = checkpoints.load_state(found[-1][1])
        _check_same_run(found[-1][1], self.recipe, state['recipe'])
        whole = sharded.get_optimizer_state_dict(
            self.model, self.optimizer.optimizer, options=WHOLE
        )
        for key, tensor in optimizer.items():
            name, kind = key.split('/')
            whole['state'].setdefault(name, {})[kind] = tensor
        sharded.set_state_dict(
            self.model,
            self.optimizer.optimizer,
            model_state_dict=weights,
            optim_state_dict=whole,
            options=WHOLE,
        )
        self.step = state['step']


def _check_same_run(folder: Path, recipe: Recipe, before: dict) -> None:
    for name, value in recipe.to_json().items():
        if name not in BOOKKEEPING and before.get(name) != value:
            raise RecipeError(
                f'{name} is {value!r}, but {folder} was trained with {before.get(name)!r}; put '
                'it back, or begin anew with --fresh'
            )


@contextmanager
def _stop_signals():
    """Collect the signals that ask a run to end; a second one ends it at once."""
    received: list[int] = []

    def note(number, frame):
        received.append(number)
        signal.signal(number, before[number])

    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in numbers}
    for number in numbers:
        signal.signal(number, note)
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
