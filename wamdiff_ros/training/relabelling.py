"""Sequence-level distillation: a teacher's own answers in place of the expert's plans.

The expert knows what is hidden, so of one picture many plans can be right; a decoder that writes
many tokens at once cannot know which of them the others follow. One teacher's answers leave one
(Kim and Rush, EMNLP 2016; for decoders of many tokens Gu et al., ICLR 2018).
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from .. import __version__
from ..decoding.autoregressive import decode_tokens
from ..decoding.block_diffusion import BlockSettings, decode_blocks
from ..decoding.sampling import Sampling
from ..model.config import load_config
from ..model.image_processor import ImageProcessor
from ..model.tokenizer import Tokenizer
from ..model.weights import load_network
from ..planning.answer import Waypoints, parse_waypoints
from ..planning.prompts import PromptTemplates
from ..runtime.engine import Engine
from .batches import Example, Examples, group_images
from .on_policy import encode
from .records import DrivingRecord, fits_fixed_width
from .shards import Shards, ShardWriter


class RelabellingError(ValueError):
    """Records cannot be relabelled; the message names the folder or the record."""


@dataclass(frozen=True)
class Relabelled:
    """What became of the records."""

    records: int
    kept: int  # whose answer was no plan: the expert's stays
    moved_m: float  # mean distance between the teacher's waypoints and the expert's


class Teacher:
    """A checkpoint that answers many planning questions at once."""

    def __init__(self, model: Path, image_size: tuple[int, int] | None):
        """image_size (width, height) that pictures are resized to, None as the checkpoint does."""
        self._config = load_config(model)
        if self._config.window_frames > 1:
            raise RelabellingError(f'{model}: is for window mode, which answers one at a time')
        self._tokenizer = Tokenizer.load(model, self._config)
        self._processor = ImageProcessor.load(model, self._config.vision)
        self._templates = PromptTemplates.load(model)
        device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
        dtype = torch.bfloat16 if device.type == 'cuda' else torch.float32
        self._engine = Engine(load_network(model, self._config, dtype=dtype, device=device))
        self._image_size = image_size

    def waypoints(self, records: Sequence[DrivingRecord]) -> list[np.ndarray | None]:
        """Return what it would do, [8, 2] in metres of the base frame; None: no usable plan."""
        examples = Examples(
            records, self._config, self._tokenizer, self._processor, self._templates
        )
        some = [examples.example(i, 'planning', self._image_size) for i in range(len(records))]
        plans = []
        for text in self._answers(some):
            parsed = parse_waypoints(text)
            fine = isinstance(parsed, Waypoints) and fits_fixed_width(parsed.xy_base_m)
            plans.append(parsed.xy_base_m if fine else None)
        return plans

    @torch.inference_mode()
    def _answers(self, examples: Sequence[Example]) -> list[str]:
        engine, config = self._engine, self._config
        longest = max(len(example.answer) for example in examples) + 1
        features = encode(engine, group_images(tuple(examples)), len(examples))
        engine.prefill([example.prompt for example in examples], features, longest)
        if config.block_size == 1:
            answers = decode_tokens(engine, config.eos_token_ids, Sampling(), longest)
        else:
            answers = decode_blocks(engine, BlockSettings.of(config), longest)
        return [self._tokenizer.decode(list(answer.token_ids)) for answer in answers]


def relabel(
    data: Sequence[Path],
    out: Path,
    model: Path,
    image_size: tuple[int, int] | None = None,
    at_once: int = 96,
) -> Relabelled:
    """Copy the shards of `data` to `out`, with the plans of the checkpoint `model`.

    Goes on where it was interrupted. Raises RelabellingError for an `out` that was made
    otherwise, and for records that are no driving records.
    """
    shards = Shards(data)
    _open_manifest(out, shards, model, image_size)
    teacher = Teacher(model, image_size)
    kept, moved_m, first = 0, [], 0
    with tqdm(total=len(shards), desc='relabelling', unit='record', disable=None) as bar:
        for number, count in enumerate(shards.counts):
            places = range(first, first + count)
            first += count
            target = out / f'shard-{number:06d}.tar'
            if target.exists():
                bar.update(count)
                continue
            with ShardWriter(target) as writer:
                for start in range(0, count, at_once):
                    some = places[start : start + at_once]
                    records = [_driving(shards, place) for place in some]
                    plans = teacher.waypoints(records)
                    for place, record, plan in zip(some, records, plans, strict=True):
                        kept += plan is None
                        if plan is not None:
                            away_m = np.linalg.norm(plan - record.waypoints_base_m, axis=1)
                            moved_m.append(away_m.mean())
                            record = replace(record, waypoints_base_m=plan)
                        writer.write(shards.key(place), record)
                    bar.update(len(some))
    return Relabelled(len(shards), kept, float(np.mean(moved_m)) if moved_m else 0.0)


def _driving(shards: Shards, place: int) -> DrivingRecord:
    record = shards[place]
    if not isinstance(record, DrivingRecord):
        raise RelabellingError(
            f'record {shards.key(place)} is a converted conversation without waypoints'
        )
    return record


def _open_manifest(
    out: Path, shards: Shards, model: Path, image_size: tuple[int, int] | None
) -> None:
    path = out / 'manifest.json'
    wanted = {
        'made_with': f'wamdiff_ros {__version__}',
        'relabelled_by': str(model.resolve()),
        'image_size': image_size and list(image_size),
        'data': [str(file.resolve()) for file in shards.paths],
    }
    if path.exists():
        try:
            there = json.loads(path.read_text(encoding='utf-8'))
        except ValueError as error:
            raise RelabellingError(f'{path}: is no manifest: {error}') from error
        if there != wanted:
            raise RelabellingError(f'{out}: was made otherwise, see its manifest.json')
    elif any(out.glob('*.tar')):
        raise RelabellingError(f'{out}: holds shards but no manifest.json; choose a new folder')
    out.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(wanted, indent=1) + '\n', encoding='utf-8')
