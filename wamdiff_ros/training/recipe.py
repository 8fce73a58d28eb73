"""A training recipe: one YAML file that says everything about a run, read strictly."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, get_type_hints

import yaml

from ..decoding.unmasking import Unmasking
from ..simulation.boxes import KINDS as BOX_KINDS
from .records import OBJECTS

TASKS = ('planning', 'description')
KINDS = ('vision', 'autoregressive', 'block', 'distillation')
WEIGHTINGS = ('inverse_t', 'none')
DIVERGENCES = ('jensen_shannon', 'forward_kl', 'reverse_kl')
PRECISIONS = ('bf16', 'fp32')
# May differ between a run and its resumption, since they change no weight.
BOOKKEEPING = (
    'output',
    'image_features',
    'checkpoint_every',
    'keep_checkpoints',
    'log_every',
    'compile',
)


class RecipeError(ValueError):
    """A recipe was refused; the message names the file, the field and the remedy."""


@dataclass(frozen=True)
class Recipe:
    """Everything that decides a run. Paths in the file count from the file's folder.

    The steps of a batch and the noise in it follow from `seed` and the step alone, whatever the
    number of processes; sizes of batches are those of all processes together.
    """

    kind: str  # of KINDS; 'vision' trains the vision tower alone, 'autoregressive' block size 1
    init: Path  # checkpoint folder to start from, wam_diff2 or qwen3_vl
    output: Path  # folder for checkpoints and logs
    data: tuple[Path, ...]  # folders of shards, or shards
    steps: int
    batch: Mapping[str, int]  # samples per step of each of TASKS
    learning_rate: float  # peak, of the language tower and the mergers

    block_size: int = 1
    mask_token_id: int | None = None  # None: the checkpoint's own
    denoising_steps: int = 0  # per block, written into the checkpoint's config; 0: its default
    confidence_threshold: float = 0.0  # from which a slot is sure, likewise
    unmasking: str = ''  # a rule of decoding/unmasking.py, likewise
    # Frames of each camera that the checkpoint will be shown, above 1 for window mode, which wants
    # records with as many (`wamdiff data generate --frames`).
    window_frames: int = 1
    noisy_copies: int = 1  # per clean answer
    # Share of noisy blocks without any token to see. Decoding in few steps begins every block so,
    # and evenly spread noise hardly ever does.
    fully_masked: float = 0.0
    # Share masked as the rule `leading` leaves them after none to two steps, instead of evenly.
    in_turn: float = 0.0
    # What slots there count for in the loss that decoding would not unmask next.
    waiting_weight: float = 1.0
    # There some numbers begin wrongly, see slips.py: standard deviation in m per second ahead.
    slip_mps: float = 0.0
    weighting: str = 'inverse_t'  # of WEIGHTINGS: cross-entropy times 1/t as in the paper, or not
    # How many times as often records are drawn that hold a critical object, or show a thing of a
    # kind of simulation/boxes.py, by its name: {cyclist: 4, amber: 3}.
    emphasis: Mapping[str, int] = field(default_factory=dict)
    # [width, height] in pixels that all cameras are resized to; each step draws one. None: as the
    # checkpoint's preprocessor resizes.
    image_sizes: tuple[tuple[int, int], ...] = ()

    vision_learning_rate: float = 0.0  # peak, of the vision tower; 0 freezes it
    # Folder for what the frozen tower says of all images, computed once: stages that share a
    # tower can share it. None: computed in every step.
    image_features: Path | None = None
    warm_up_steps: int = 100
    warm_up_from: float = 0.1  # share of the peak at the first step
    decay_to: float = 0.05  # share of the peak at the last step, reached along a cosine
    weight_decay: float = 0.05
    betas: tuple[float, float] = (0.9, 0.95)
    clip_norm: float = 1.0

    # Distillation (stage II: teacher of a smaller block size; stage III: a larger teacher).
    teacher: Path | None = None  # its block size is in its config.json
    distillation_share: float = 1.0  # r in (1 - r) * cross-entropy + r * divergence
    divergence: str = 'jensen_shannon'  # of DIVERGENCES
    beta: float = 0.5  # the teacher's part in the Jensen-Shannon mixture
    temperature: float = 1.0
    on_policy_every: int = 0  # every so many steps the student's own answers; 0: never
    on_policy_steps: int = 0  # denoising steps per block there; 0: the student's own number

    seed: int = 0
    precision: str = 'bf16'  # of PRECISIONS; weights and optimiser are float32 in both
    compile: bool = False  # torch.compile both towers: minutes at first, faster steps
    micro_batch: int = 0  # samples per forward on a process, to save memory; 0: all of a task
    checkpoint_every: int = 500
    keep_checkpoints: int = 2
    log_every: int = 10

    def __post_init__(self):
        for name, choices in (
            ('kind', KINDS),
            ('weighting', WEIGHTINGS),
            ('divergence', DIVERGENCES),
            ('precision', PRECISIONS),
            ('unmasking', ('', *(rule.value for rule in Unmasking))),
        ):
            value = getattr(self, name)
            if value not in choices:
                raise RecipeError(f'{name} is {value!r}, wanted {" or ".join(choices)}')
        for name in (
            'steps',
            'block_size',
            'window_frames',
            'noisy_copies',
            'checkpoint_every',
            'log_every',
        ):
            self._insist(name, getattr(self, name) >= 1, '1 or more')
        for name in ('learning_rate', 'clip_norm', 'temperature'):
            self._insist(name, 0 < getattr(self, name) < math.inf, 'a number above 0')
        for name in (
            'vision_learning_rate', 'weight_decay', 'warm_up_steps', 'micro_batch', 'slip_mps',
        ):  # fmt: skip
            self._insist(name, 0 <= getattr(self, name) < math.inf, '0 or more')
        for name in (
            'denoising_steps', 'on_policy_every', 'on_policy_steps', 'seed', 'keep_checkpoints',
        ):  # fmt: skip
            self._insist(name, getattr(self, name) >= 0, '0 or more')
        for name in (
            'confidence_threshold', 'fully_masked', 'in_turn', 'waiting_weight', 'warm_up_from',
            'decay_to', 'distillation_share', 'beta',
        ):  # fmt: skip
            self._insist(name, 0 <= getattr(self, name) <= 1, '0 … 1')
        self._insist(
            'in_turn', self.fully_masked + self.in_turn <= 1, '1 or less with fully_masked'
        )
        self._insist('betas', all(0 <= b < 1 for b in self.betas), 'two numbers in 0 … 1')
        self._insist('data', bool(self.data), 'one shard folder at least')
        unknown = sorted(set(self.batch) - set(TASKS))
        self._insist('batch', not unknown, f'tasks of {", ".join(TASKS)}')
        known = dict.fromkeys((*OBJECTS, *BOX_KINDS))
        unknown = sorted(set(self.emphasis) - set(known))
        self._insist('emphasis', not unknown, f'names of {", ".join(known)}')
        self._insist('emphasis', min(self.emphasis.values(), default=1) >= 1, '1 or more for each')
        counts = list(self.batch.values())
        self._insist('batch', min(counts, default=0) >= 0 and any(counts), 'sample counts')
        self._insist(
            'image_sizes',
            all(len(size) == 2 and min(size) > 0 for size in self.image_sizes),
            'a list of [width, height]',
        )
        if (self.kind == 'distillation') != (self.teacher is not None):
            raise RecipeError(
                f'teacher is {self.teacher} and kind {self.kind!r}; a teacher belongs to kind '
                '"distillation" and only there'
            )
        if (self.kind in ('vision', 'autoregressive')) != (self.block_size == 1):
            raise RecipeError(
                f'block_size is {self.block_size} and kind {self.kind!r}; kinds "vision" and '
                '"autoregressive" have block_size 1, the others more'
            )
        if self.kind == 'vision' and not (
            self.vision_learning_rate
            and len(self.image_sizes) == 1
            and not self.batch.get('description')
        ):
            raise RecipeError(
                'kind "vision" wants a vision_learning_rate above 0, one size in image_sizes and '
                f'a batch of planning samples alone; it has {self.vision_learning_rate}, '
                f'{list(self.image_sizes)} and {dict(self.batch)}'
            )
        if self.image_features and (
            self.vision_learning_rate or len(self.image_sizes) != 1 or self.teacher
        ):
            raise RecipeError(
                'image_features wants a frozen vision tower (vision_learning_rate 0), one size in '
                'image_sizes and no teacher, who sees with its own'
            )
        if self.window_frames > 1 and self.kind != 'block':
            raise RecipeError(
                f'window_frames is {self.window_frames} and kind {self.kind!r}; window mode is '
                'for kind "block"'
            )
        if self.on_policy_every and self.kind != 'distillation':
            raise RecipeError('on_policy_every needs a teacher; it is for kind "distillation"')

    def _insist(self, name: str, fine: bool, wanted: str) -> None:
        if not fine:
            raise RecipeError(f'{name} is {getattr(self, name)!r}, wanted {wanted}')

    @classmethod
    def load(cls, file: Path, **overrides: Any) -> 'Recipe':
        """Read a YAML file; `overrides` replace its fields. Raises RecipeError."""
        file = Path(file)
        try:
            values = yaml.safe_load(file.read_text(encoding='utf-8'))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise RecipeError(f'{file}: cannot be read as YAML: {error}') from None
        if not isinstance(values, dict):
            raise RecipeError(f'{file}: holds a {type(values).__name__}, wanted fields')
        known = [f.name for f in fields(cls)]
        for name in values:
            if name not in known:
                raise RecipeError(
                    f'{file}: unknown field {name!r}; take it out, known are {", ".join(known)}'
                )
        required = [
            f.name
            for f in fields(cls)
            if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
        ]
        missing = [n for n in required if n not in values and n not in overrides]
        if missing:
            raise RecipeError(f'{file}: {", ".join(missing)} must be given')
        hints = get_type_hints(cls)
        try:
            read = {n: _read(n, hints[n], v, file.parent) for n, v in values.items()}
            return cls(**{**read, **overrides})
        except RecipeError as error:
            raise RecipeError(f'{file}: {error}') from None

    def to_json(self) -> dict[str, Any]:
        """Return the fields as plain JSON values, paths as text."""
        return {f.name: _plain(getattr(self, f.name)) for f in fields(self)}


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, tuple):
        return [_plain(v) for v in value]
    return dict(value) if isinstance(value, Mapping) else value


def _read(name: str, kind: Any, value: Any, folder: Path) -> Any:
    """Return a YAML value as the field's type, or raise RecipeError."""

    def refuse(wanted: str):
        raise RecipeError(f'{name} is {value!r}, wanted {wanted}')

    def number(v: Any, whole: bool) -> bool:
        return type(v) is int or (not whole and type(v) is float)

    if value is None and name in ('teacher', 'mask_token_id', 'image_features'):
        return None
    if name in ('init', 'output', 'teacher', 'image_features'):
        return folder / value if isinstance(value, str) else refuse('a path')
    if name == 'data':
        paths = [value] if isinstance(value, str) else value
        if not isinstance(paths, list) or not all(isinstance(p, str) for p in paths):
            refuse('a path or a list of paths')
        return tuple(folder / path for path in paths)
    if name == 'batch':
        if not isinstance(value, dict) or not all(number(v, True) for v in value.values()):
            refuse(f'a number of samples for each of {", ".join(TASKS)}')
        return dict(value)
    if name == 'emphasis':
        if not isinstance(value, dict) or not all(number(v, True) for v in value.values()):
            refuse('a whole number for each object')
        return dict(value)
    if name == 'image_sizes':
        sizes = value if isinstance(value, list) else refuse('a list of [width, height]')
        if not all(isinstance(s, list) and all(number(v, True) for v in s) for s in sizes):
            refuse('a list of [width, height]')
        return tuple(tuple(size) for size in sizes)
    if name == 'betas':
        if (
            not isinstance(value, list)
            or len(value) != 2
            or not all(number(v, False) for v in value)
        ):
            refuse('two numbers')
        return tuple(map(float, value))
    if kind is bool:
        return value if type(value) is bool else refuse('true or false')
    if kind is str:
        return value if type(value) is str else refuse('a word')
    if kind is float:
        if type(value) is str:  # YAML reads 1e-3 as text
            try:
                value = float(value)
            except ValueError:
                refuse('a number')
        return float(value) if number(value, False) else refuse('a number')
    return value if number(value, True) else refuse('a whole number')
