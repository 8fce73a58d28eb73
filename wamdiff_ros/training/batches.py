"""Records to training batches: which samples a step takes, how they are noised, and when.

Everything about a step follows from the seed, the step and a sample's place in the step, so runs
resume to the step and do not depend on the number of processes. A thread prepares steps ahead.
"""

import queue
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Protocol

import numpy as np
import torch
from PIL import Image as Picture

from ..model.chat import Prompt, user_prompt
from ..model.config import ModelConfig
from ..model.image_processor import ImageProcessor
from ..model.tokenizer import Tokenizer
from ..planning.prompts import PromptTemplates
from .block_layout import BlockBatch, Layout, fill_answer, lay_out_blocks, lay_out_tokens
from .conversations import conversations_of
from .image_features import ImageFeatures
from .network_forward import ImageGroup
from .noise import Noise, content_tokens, token_texts
from .recipe import RecipeError
from .records import DrivingRecord, Record, decode_image
from .slips import Slips

AHEAD = 3  # steps prepared in advance
FULL_WINDOWS = 0.8  # share of the samples that show all frames of a window


class Records(Protocol):
    """Training records in random access; training/shards.py has them on disk."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Record: ...


@dataclass(frozen=True, eq=False)
class Example:
    """One conversation as the network takes it."""

    record: Record
    prompt: Prompt
    patches: tuple[np.ndarray, ...]  # of each image, [p, dim]
    grids: tuple[tuple[int, int, int], ...]
    answer: tuple[int, ...]  # token ids without the end
    # Of each image, [images, …], instead of their patches.
    features: torch.Tensor | None = None


@dataclass(frozen=True, eq=False)
class TaskBatch:
    """Some of a step's samples, all of one task."""

    task: str
    share: float  # of this process's samples of the step
    examples: tuple[Example, ...]
    images: tuple[ImageGroup, ...]
    layout: BlockBatch

    def to(self, device: torch.device) -> 'TaskBatch':
        """Move the tensors to `device`."""
        if device.type == 'cpu':
            return self
        images = tuple(move(group, device) for group in self.images)
        return replace(self, images=images, layout=move(self.layout, device))


def move(holder, device: torch.device):
    """Return the dataclass `holder` with its tensors on `device`."""
    values = {f.name: getattr(holder, f.name) for f in fields(holder)}
    moved = {
        name: value.to(device, non_blocking=True)
        for name, value in values.items()
        if isinstance(value, torch.Tensor)
    }
    return replace(holder, **moved)


class Examples:
    """Turns records into examples, as a checkpoint wants them asked."""

    def __init__(
        self,
        records: Records,
        config: ModelConfig,
        tokenizer: Tokenizer,
        processor: ImageProcessor,
        templates: PromptTemplates,
    ):
        self.records = records
        self.config = config
        self._tokenizer = tokenizer
        self._processor = processor
        self._templates = templates
        self.features: ImageFeatures | None = None  # of a tower that is not trained

    def content_tokens(self) -> np.ndarray:
        """Return which tokens of the vocabulary an answer may hinge on, see `Noise`."""
        return content_tokens(self._tokenizer, self.config.text.vocab_size)

    def slips(self, error_mps: float) -> Slips | None:
        """Return numbers' slips of this size in the checkpoint's tokens, see `Slips`."""
        if not error_mps:
            return None
        texts = token_texts(self._tokenizer, self.config.text.vocab_size)
        for token in self.config.eos_token_ids:
            texts[token] = ''
        return Slips(texts, error_mps)

    def pictures(
        self, index: int, size: tuple[int, int] | None
    ) -> list[tuple[np.ndarray, tuple[int, int, int]]]:
        """Return patches and grid of each image of record `index`, resized to `size` (w, h)."""
        return [self._patches(data, size) for data in self.records[index].images.values()]

    def _patches(self, data: bytes, size: tuple[int, int] | None):
        rgb, processor = decode_image(data), self._processor
        if size is not None:
            area = size[0] * size[1]
            processor = processor.with_pixels(min(area, processor.min_pixels), area)
            if rgb.shape[1::-1] != size:
                resized = Picture.fromarray(rgb).resize(size, Picture.Resampling.BICUBIC)
                rgb = np.asarray(resized)
        return processor.patches(rgb)

    def example(
        self,
        index: int,
        task: str,
        size: tuple[int, int] | None,
        frames: int = 1,
    ) -> Example:
        """Return record `index` as an example of `task`, images resized to `size` (w, h).

        It shows the newest so many `frames` of each camera.
        """
        record = self.records[index]
        conversation = conversations_of(record, self._templates, task, frames)
        if self.features is not None:
            features, patches = self.features[index], ()
            if isinstance(record, DrivingRecord):
                features = features[list(record.shown(frames))]
            edge = self.config.vision.patch_size
            grids = ((1, size[1] // edge, size[0] // edge),) * len(features)
        else:
            features = None
            patches, grids = zip(
                *(self._patches(d, size) for d in conversation.images), strict=True
            )
        prompt = user_prompt(conversation.parts, grids, self._tokenizer, self.config)
        answer = self._tokenizer.encode(conversation.answer)
        return Example(record, prompt, tuple(patches), tuple(grids), tuple(answer), features)


class Batches:
    """The batches of one process, by step."""

    def __init__(
        self,
        examples: Examples,
        layout: Layout,
        batch: Mapping[str, int],
        seed: int,
        *,
        image_sizes: tuple[tuple[int, int], ...] = (),
        micro_batch: int = 0,
        emphasis: Mapping[str, int] | None = None,
        rank: int = 0,
        processes: int = 1,
    ):
        for task, count in batch.items():
            if count % processes:
                raise RecipeError(
                    f'batch of {count} {task} samples cannot be shared by {processes} processes; '
                    'choose a multiple'
                )
        if not len(examples.records):
            raise RecipeError('there are no training records in the data folders')
        self.examples, self.layout, self.seed = examples, layout, seed
        self._batch = {task: count for task, count in batch.items() if count}
        self._image_sizes, self._micro_batch = image_sizes, micro_batch
        self._indexes = _emphasised(examples.records, emphasis or {})
        self._rank, self._processes = rank, processes
        if layout.block_size > 1:
            content = examples.content_tokens() if layout.in_turn else None
            slips = examples.slips(layout.slip_mps)
            self._noise = Noise(layout, examples.config.mask_token_id, content, slips)

    def step(self, step: int) -> list[TaskBatch]:
        """Return the batches of `step`, one or more for each task."""
        size = None
        if self._image_sizes:
            which = np.random.default_rng((self.seed, step)).integers(len(self._image_sizes))
            size = self._image_sizes[which]
        total = sum(self._batch.values())
        first = step * total
        batches = []
        for task, count in self._batch.items():
            mine = range(first + self._rank, first + count, self._processes)
            most = self._micro_batch or len(mine)
            for start in range(0, len(mine), most):
                places = mine[start : start + most]
                share = len(places) * self._processes / total
                batches.append(self._batch_of(task, places, share, size))
            first += count
        return batches

    def _batch_of(self, task: str, places: range, share: float, size) -> TaskBatch:
        """Build the batch of samples at `places` in the endless sequence of samples."""
        randoms = [np.random.default_rng((self.seed, 1, place)) for place in places]
        examples = tuple(
            self.examples.example(self.record_at(place), task, size, self._frames(random))
            for place, random in zip(places, randoms, strict=True)
        )
        return TaskBatch(
            task, share, examples, group_images(examples), self._lay_out(examples, randoms)
        )

    def _frames(self, random: np.random.Generator) -> int:
        """Return how many frames to show: all, or fewer, as while the window still fills."""
        most = self.layout.window_frames
        if most == 1 or random.random() < FULL_WINDOWS:
            return most
        return int(random.integers(1, most))

    def _lay_out(self, examples, randoms) -> BlockBatch:
        config, layout = self.examples.config, self.layout
        prompts, eos = [e.prompt for e in examples], config.eos_token_ids[0]
        if layout.block_size == 1:
            return lay_out_tokens(prompts, [e.answer for e in examples], eos)
        answers = [fill_answer(e.answer, eos, layout.block_size) for e in examples]
        noised = (self._noise.add(*pair) for pair in zip(answers, randoms, strict=True))
        noisy, noise, weights, labels = zip(*noised, strict=True)
        return lay_out_blocks(
            prompts,
            answers,
            noisy,
            noise,
            layout.block_size,
            config.mask_token_id,
            layout.teacher_block_size,
            weights,
            labels,
            window=layout.window_frames > 1,
        )

    def record_at(self, place: int) -> int:
        """Return the record at a place in the endless sequence of seeded permutations."""
        count = len(self._indexes)
        return int(self._indexes[_permutation(self.seed, place // count, count)[place % count]])

    def ahead(self, steps: range) -> Iterator[list[TaskBatch]]:
        """Yield the batches of `steps`, which a thread prepares ahead of their use."""
        ready: queue.Queue = queue.Queue(AHEAD)
        ended = threading.Event()

        def put(item) -> None:
            while not ended.is_set():
                try:
                    return ready.put(item, timeout=0.1)
                except queue.Full:
                    continue

        def prepare() -> None:
            for step in steps:
                if ended.is_set():
                    return
                try:
                    put(self.step(step))
                except Exception as error:  # raised where the batch is wanted
                    return put(error)

        thread = threading.Thread(target=prepare, name='batches', daemon=True)
        thread.start()
        try:
            for _ in steps:
                item = ready.get()
                if isinstance(item, Exception):
                    raise item
                yield item
        finally:
            ended.set()
            thread.join()


def _emphasised(records: Records, emphasis: Mapping[str, int]) -> np.ndarray:
    """Return indexes of records, those that hold what is in `emphasis` so many times."""
    times = np.ones(len(records), np.int64)
    for index in range(len(records)) if emphasis else ():
        record = records[index]
        if isinstance(record, DrivingRecord):
            times[index] = max([1, *(n for name, n in emphasis.items() if _holds(record, name))])
    return np.arange(len(records)).repeat(times)


def _holds(record: DrivingRecord, name: str) -> bool:
    """Return whether `name` is a critical object there, or a kind of box in the picture."""
    if name in record.objects:
        return record.objects[name]
    return any(kind == name for kind, *_ in record.boxes)


@lru_cache(maxsize=4)
def _permutation(seed: int, epoch: int, count: int) -> np.ndarray:
    return np.random.default_rng((seed, 2, epoch)).permutation(count)


def group_images(examples: tuple[Example, ...]) -> tuple[ImageGroup, ...]:
    """Collect the images of all examples by their size."""
    groups: dict[tuple[int, int, int], list[tuple[Example, int, int, int]]] = {}
    for row, example in enumerate(examples):
        for index, (grid, (start, _)) in enumerate(
            zip(example.grids, example.prompt.images, strict=True)
        ):
            groups.setdefault(grid, []).append((example, index, row, start))
    return tuple(_image_group(grid, group) for grid, group in groups.items())


def _image_group(grid, group: list[tuple[Example, int, int, int]]) -> ImageGroup:
    seen = group[0][0].features is not None
    return ImageGroup(
        grid,
        None
        if seen
        else torch.from_numpy(np.stack([example.patches[index] for example, index, *_ in group])),
        torch.tensor([row for *_, row, _ in group]),
        torch.tensor([start for *_, start in group]),
        torch.stack([example.features[index] for example, index, *_ in group]) if seen else None,
    )
