"""Put a trained checkpoint where the planner takes it from, with a card of what was measured.

    python -m wamdiff_ros.training.bundle CHECKPOINT OUT --evaluation DIR --drive DIR

The folders are those of `wamdiff evaluate --out` and `wamdiff drive --out`.
"""

import argparse
import json
import os
import shutil
import sys
from pathlib import Path

from ..model.config import CheckpointError, load_config

CARD = """\
# Nano checkpoint: block size {block_size}, for the driving world of `wamdiff drive`

The architecture is the real model's, Qwen3-VL as WAM-Diff2 has it; only the sizes differ
({megabytes:.1f} MB of weights). `scripts/train` makes such checkpoints from nothing. This one went
through:

{stages}

## On held-out routes, closed loop

{routes} routes that training never saw: {successes} without collision, off-road or red-light
fault, {rate:.1%} (95 % interval {low:.1%} to {high:.1%}). {completed} completed, {collisions}
collisions, {off_road} off the road, {red_lights} red lights, {wrong_way} wrong way; mean lane
deviation {lane_deviation_m:.2f} m, PDMS {pdms:.3f}.

## On held-out records

The last checkpoint of the list is this one. Distances are from the expert's plan; times are those
of the machine that trained it.

```
{evaluation}
```

## Limits

It has seen nothing but the rendered world. It must not drive a real vehicle.
"""


def bundle(checkpoint: Path, out: Path, evaluation: Path, drive: Path) -> None:
    """Replace the folder `out` by the checkpoint, without what only training needs.

    Raises CheckpointError, OSError, and ValueError for a drive.json that is none.
    """
    config = load_config(checkpoint)
    score = json.loads((drive / 'drive.json').read_text('utf8'))
    low, high = score['success_interval']
    card = CARD.format(
        block_size=config.block_size,
        megabytes=(checkpoint / 'model.safetensors').stat().st_size / 1e6,
        stages='\n'.join(f'- {stage}' for stage in stages_of(checkpoint)),
        rate=score['success_rate'],
        low=low,
        high=high,
        evaluation=(evaluation / 'evaluation.txt').read_text('utf8').strip(),
        **{
            name: score[name]
            for name in (
                'routes', 'successes', 'completed', 'collisions', 'off_road', 'red_lights',
                'wrong_way', 'lane_deviation_m', 'pdms',
            )
        },
    )  # fmt: skip
    partial = out.with_name(f'.{out.name}.{os.getpid()}.partial')
    partial.mkdir(parents=True)
    for path in sorted(checkpoint.iterdir()):
        if path.is_file():
            shutil.copyfile(path, partial / path.name)
    (partial / 'README.md').write_text(card, 'utf8')
    if out.exists():
        shutil.rmtree(out)
    partial.rename(out)


def stages_of(checkpoint: Path) -> list[str]:
    """Return the runs that led to a checkpoint, the first one first, as far as they are there."""
    stages = []
    while (state := checkpoint / 'training' / 'state.json').is_file():
        values = json.loads(state.read_text('utf8'))
        recipe = values['recipe']
        batch = ' + '.join(f'{count} {task}' for task, count in recipe['batch'].items())
        teacher = f', taught by {Path(recipe["teacher"]).parent.name}' if recipe['teacher'] else ''
        stages.append(
            f'{Path(recipe["output"]).name}: {recipe["kind"]}, block size {recipe["block_size"]}, '
            f'{values["step"]} steps of {batch}{teacher}'
        )
        checkpoint = Path(recipe['init'])
    return stages[::-1]


def main(args: list[str] | None = None) -> int:
    """Bundle; returns 0, or 1 with the reason printed."""
    parser = argparse.ArgumentParser(
        prog='python -m wamdiff_ros.training.bundle', description=__doc__.splitlines()[0]
    )
    parser.add_argument('checkpoint', type=Path, metavar='CHECKPOINT')
    parser.add_argument('out', type=Path, metavar='OUT', help='is replaced')
    for name in ('evaluation', 'drive'):
        parser.add_argument(f'--{name}', type=Path, metavar='DIR', required=True)
    arguments = parser.parse_args(args)
    try:
        bundle(**vars(arguments))
    except (CheckpointError, OSError, ValueError, KeyError) as error:
        print(f'not bundled: {error}', file=sys.stderr)
        return 1
    print(arguments.out)
    return 0


if __name__ == '__main__':
    sys.exit(main())
