"""Train a checkpoint as a recipe says.

    wamdiff train recipe.yaml
    wamdiff train recipe.yaml --resume
    accelerate launch --num_processes 2 -m wamdiff_ros.cli train recipe.yaml

Checkpoints appear in the recipe's output folder and load into the planner; `latest` links to the
newest. On a CPU, OMP_WAIT_POLICY=PASSIVE leaves the cores to the preparation of batches. See
docs/training.md.
"""

import argparse
import sys
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `wamdiff train`."""
    parser.add_argument('recipe', type=Path, help='YAML file, see config/training')
    parser.add_argument(
        '--steps', type=int, metavar='N', help="end after step N; the schedule stays the recipe's"
    )
    parser.add_argument('--out', type=Path, metavar='DIR', help="in place of the recipe's output")
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument(
        '--resume', action='store_true', help='go on from the newest checkpoint in the output'
    )
    choice.add_argument(
        '--fresh', action='store_true', help='delete the checkpoints in the output and begin anew'
    )
    parser.add_argument(
        '--threads', type=int, default=0, metavar='N', help="of torch (default: torch's own)"
    )


def run(args: argparse.Namespace) -> int:
    """Train; returns 0, 1 where the recipe or a checkpoint is refused, 130 when interrupted."""
    try:
        import accelerate  # noqa: F401
        import tensorboard  # noqa: F401
    except ImportError as error:
        print(f'{error}; training needs: pip install -r requirements/train.txt', file=sys.stderr)
        return 1
    import shutil

    import torch

    from ..model.config import CheckpointError
    from ..planning.prompts import PromptError
    from .checkpoints import checkpoints
    from .recipe import Recipe, RecipeError
    from .records import RecordError
    from .shards import ShardError
    from .trainer import Trainer

    if args.threads:
        torch.set_num_threads(args.threads)
    try:
        recipe = Recipe.load(args.recipe, **({'output': args.out} if args.out else {}))
        found = checkpoints(recipe.output)
        if found and not (args.resume or args.fresh):
            raise RecipeError(
                f'{recipe.output} holds a run of {found[-1][0]} steps already; choose --resume '
                'or --fresh, or another --out'
            )
        trainer = Trainer(recipe)
        if args.resume:
            trainer.resume()
        elif trainer.accelerator.is_main_process:
            for _, folder in found:
                shutil.rmtree(folder)
        trainer.accelerator.wait_for_everyone()
        saved = trainer.run(args.steps)
    except (
        RecipeError, RecordError, CheckpointError, PromptError, ShardError, FloatingPointError,
    ) as error:  # fmt: skip
        print(error, file=sys.stderr)
        return 1
    if saved is not None:
        print(f'step {trainer.step}: {saved}')
    wanted = recipe.steps if args.steps is None else min(args.steps, recipe.steps)
    return 0 if trainer.step >= wanted else 130
