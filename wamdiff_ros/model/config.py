"""A checkpoint's config.json, read strictly: what the network does not understand is refused.

Two families are understood, `wam_diff2` (block diffusion) and `qwen3_vl` (autoregressive, which
is block diffusion with blocks of one token). Not responsible for weights or the tokenizer.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..decoding.unmasking import Unmasking


class CheckpointError(ValueError):
    """A checkpoint was refused; the message names the file, the key and the remedy."""


@dataclass(frozen=True)
class TextConfig:
    """Shape of the language tower (Qwen3 layers with interleaved M-RoPE)."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    rope_theta: float
    mrope_section: tuple[int, int, int]  # frequency pairs for time, height, width
    max_position: int


@dataclass(frozen=True)
class VisionConfig:
    """Shape of the vision tower."""

    depth: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    in_channels: int
    patch_size: int
    temporal_patch_size: int
    spatial_merge_size: int
    out_hidden_size: int
    num_position_embeddings: int
    deepstack_layers: tuple[int, ...]


@dataclass(frozen=True)
class ModelConfig:
    """Everything in config.json and generation_config.json that decides what is computed."""

    family: str  # 'wam_diff2' or 'qwen3_vl'
    text: TextConfig
    vision: VisionConfig
    tied_head: bool
    image_token_id: int
    video_token_id: int
    vision_start_token_id: int
    vision_end_token_id: int
    eos_token_ids: tuple[int, ...]
    block_size: int  # 1 for an autoregressive checkpoint
    mask_token_id: int | None  # None for an autoregressive checkpoint
    denoising_steps: int  # the checkpoint's own, or one per slot
    unmasking: Unmasking = Unmasking.DYNAMIC  # the checkpoint's own or the reference's
    confidence_threshold: float = 0.9  # likewise
    window_frames: int = 1  # of each camera in a prompt; above 1, window mode
    window_interval_s: float = 0.1  # between them

    @property
    def control_ids(self) -> frozenset[int]:
        """Every id that is no text."""
        vision = (self.image_token_id, self.video_token_id)
        brackets = (self.vision_start_token_id, self.vision_end_token_id)
        mask = () if self.mask_token_id is None else (self.mask_token_id,)
        return frozenset((*vision, *brackets, *self.eos_token_ids, *mask))


# Fields that change nothing about inference here: training, bookkeeping, and other libraries'.
_IGNORED = frozenset(
    """
    architectures _name_or_path transformers_version dtype torch_dtype initializer_range
    attention_dropout use_cache bos_token_id pad_token_id output_hidden_states output_attentions
    return_dict chunk_size_feed_forward is_encoder_decoder id2label label2id problem_type
    model_type auto_map _attn_implementation _attn_implementation_autoset
    """.split()  # noqa: SIM905 (a list of 22 quoted words reads worse)
)
_FAMILIES = {'wam_diff2': 'block diffusion', 'qwen3_vl': 'autoregressive'}


class Section:
    """One JSON object of a config file; remembers which keys were read so the rest is refused."""

    def __init__(self, file: Path, path: str, values: Any):
        if not isinstance(values, dict):
            raise CheckpointError(f'{file}: {path or "the file"} must be a JSON object')
        self._file, self._path, self._values, self._read = file, path, values, set()

    def where(self, key: str) -> str:
        """Return the file and the dotted key, as errors name them."""
        return f'{self._file}: {self._path}{key}'

    def has(self, key: str) -> bool:
        """Return whether the key is there and not null."""
        return self._values.get(key) is not None

    def take(self, key: str, kind: type, default: Any = None) -> Any:
        """Return the value of `key`, or `default`, or raise if missing or of another kind."""
        self._read.add(key)
        value = self._values.get(key)
        if value is None:
            if default is None:
                raise CheckpointError(f'{self.where(key)} is missing')
            return default
        if kind is float and type(value) is int:
            value = float(value)
        if type(value) is not kind:
            raise CheckpointError(f'{self.where(key)} is {value!r}, wanted a {kind.__name__}')
        if kind is float and not 0 < value < math.inf:
            raise CheckpointError(f'{self.where(key)} is {value}, wanted a finite number above 0')
        return value

    def take_size(self, key: str, default: int | None = None) -> int:
        """Return a positive size that is small enough to be one."""
        value = self.take(key, int, default)
        if not 0 < value <= 1 << 24:
            raise CheckpointError(f'{self.where(key)} is {value}, wanted a size above 0')
        return value

    def take_ids(self, key: str) -> tuple[int, ...]:
        """Return one token id or a list of them as a tuple, () when the key is missing."""
        self._read.add(key)
        value = self._values.get(key)
        ids = () if value is None else tuple(value) if isinstance(value, list) else (value,)
        if not all(type(i) is int and i >= 0 for i in ids):
            raise CheckpointError(f'{self.where(key)} is {value!r}, wanted token ids')
        return ids

    def insist(self, key: str, *accepted: Any) -> None:
        """Refuse a value that asks for another computation than the one implemented."""
        self._read.add(key)
        value = self._values.get(key)
        if value is not None and value not in accepted:
            raise CheckpointError(
                f'{self.where(key)} is {value!r}; this runtime computes only '
                f'{" or ".join(map(repr, accepted))}'
            )

    def section(self, key: str) -> 'Section':
        """Return the object under `key`, or raise if missing."""
        self._read.add(key)
        if key not in self._values:
            raise CheckpointError(f'{self.where(key)} is missing')
        return Section(self._file, f'{self._path}{key}.', self._values[key])

    def refuse_unread(self) -> None:
        """Refuse what nobody asked for, because it may change the computation."""
        for key, value in self._values.items():
            if key not in self._read and key not in _IGNORED and value is not None:
                raise CheckpointError(
                    f'{self.where(key)} = {value!r} is a field that this runtime does not know; '
                    'if it does not change the computation, remove it from the file'
                )


def load_config(model_dir: Path, values: dict[str, Any] | None = None) -> ModelConfig:
    """Read `model_dir`/config.json and generation_config.json; raises CheckpointError.

    `values` take the place of config.json's, for a checkpoint that is about to be made from this.
    """
    file = Path(model_dir) / 'config.json'
    root = Section(file, '', read_json(file) if values is None else values)
    family = root.take('model_type', str)
    if family not in _FAMILIES:
        raise CheckpointError(
            f'{root.where("model_type")} is {family!r}, wanted {" or ".join(_FAMILIES)}'
        )
    generation_file = Path(model_dir) / 'generation_config.json'
    generation = Section(
        generation_file, '', read_json(generation_file) if generation_file.exists() else {}
    )
    text_section = root.section('text_config')
    text = _text_config(text_section)
    vision = _vision_config(root.section('vision_config'), text)
    decoding = _decoding_fields(family, root, generation)
    eos = tuple(
        dict.fromkeys(
            root.take_ids('eos_token_id')
            + text_section.take_ids('eos_token_id')
            + generation.take_ids('eos_token_id')
        )
    )
    if not eos:
        raise CheckpointError(f'{root.where("eos_token_id")} is missing')
    for section in (root, text_section):
        for key in ('dtype', 'torch_dtype'):
            section.insist(key, 'float32', 'bfloat16', 'float16')
    tied = root.take('tie_word_embeddings', bool, False)
    text_section.insist('tie_word_embeddings', True, False)
    config = ModelConfig(
        family=family,
        text=text,
        vision=vision,
        tied_head=tied,
        image_token_id=root.take('image_token_id', int),
        video_token_id=root.take('video_token_id', int),
        vision_start_token_id=root.take('vision_start_token_id', int),
        vision_end_token_id=root.take('vision_end_token_id', int),
        eos_token_ids=eos,
        **_window_fields(root, decoding['block_size']),
        **decoding,
    )
    text_section.refuse_unread()
    root.refuse_unread()
    _check_ids(config, root)
    return config


def _window_fields(root: Section, block_size: int) -> dict[str, Any]:
    frames = root.take_size('window_frames', 1)
    interval_s = root.take('window_interval_s', float, 0.1)
    if not 0.01 <= interval_s <= 10:
        raise CheckpointError(
            f'{root.where("window_interval_s")} is {interval_s}, wanted 0.01 … 10 seconds'
        )
    if frames > 1 and block_size == 1:
        raise CheckpointError(
            f'{root.where("window_frames")} is {frames}, which an autoregressive checkpoint '
            'cannot have; block_size is 1'
        )
    return {'window_frames': frames, 'window_interval_s': interval_s}


def read_json(file: Path) -> Any:
    """Read one small JSON file of a checkpoint; raises CheckpointError naming it."""
    try:
        return json.loads(Path(file).read_text(encoding='utf-8'))
    except FileNotFoundError:
        raise CheckpointError(
            f'{file}: no such file; a checkpoint folder holds config.json, tokenizer.json and '
            'safetensors'
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f'{file}: cannot be read as JSON: {error}') from None


def _text_config(section: Section) -> TextConfig:
    section.insist('hidden_act', 'silu')
    section.insist('attention_bias', False)
    section.insist('sliding_window', None)
    section.insist('use_sliding_window', False)
    heads = section.take_size('num_attention_heads')
    hidden = section.take_size('hidden_size')
    head_dim = section.take_size('head_dim', hidden // heads)
    # Written as rope_scaling + rope_theta by older files, as rope_parameters by newer ones.
    rope = section.section('rope_parameters' if section.has('rope_parameters') else 'rope_scaling')
    for key in ('rope_type', 'type'):
        rope.insist(key, 'default', 'mrope')
    rope.insist('mrope_interleaved', True)
    sections = rope.take('mrope_section', list)
    counts = len(sections) == 3 and all(type(n) is int and n >= 0 for n in sections)
    if not counts or sum(sections) != head_dim // 2 or head_dim % 2:
        raise CheckpointError(
            f'{rope.where("mrope_section")} is {sections}, wanted three counts that add up to '
            f'half of head_dim {head_dim}'
        )
    theta = rope.take('rope_theta', float) if rope.has('rope_theta') else None
    rope.refuse_unread()
    text = TextConfig(
        vocab_size=section.take_size('vocab_size'),
        hidden_size=hidden,
        intermediate_size=section.take_size('intermediate_size'),
        num_layers=section.take_size('num_hidden_layers'),
        num_heads=heads,
        num_kv_heads=section.take_size('num_key_value_heads', heads),
        head_dim=head_dim,
        rms_norm_eps=section.take('rms_norm_eps', float),
        rope_theta=theta or section.take('rope_theta', float),
        mrope_section=tuple(sections),
        max_position=section.take_size('max_position_embeddings'),
    )
    if text.num_heads % text.num_kv_heads:
        raise CheckpointError(
            f'{section.where("num_key_value_heads")} is {text.num_kv_heads}, which does not '
            f'divide num_attention_heads {text.num_heads}'
        )
    return text


def _vision_config(section: Section, text: TextConfig) -> VisionConfig:
    section.insist('hidden_act', 'gelu_pytorch_tanh')
    if section.has('rope_parameters'):
        rope = section.section('rope_parameters')
        rope.insist('rope_type', 'axial')
        rope.insist('rope_theta', 10000.0)
        rope.refuse_unread()
    layers = tuple(section.take('deepstack_visual_indexes', list))
    vision = VisionConfig(
        depth=section.take_size('depth'),
        hidden_size=section.take_size('hidden_size'),
        intermediate_size=section.take_size('intermediate_size'),
        num_heads=section.take_size('num_heads'),
        in_channels=section.take_size('in_channels', 3),
        patch_size=section.take_size('patch_size'),
        temporal_patch_size=section.take_size('temporal_patch_size'),
        spatial_merge_size=section.take_size('spatial_merge_size'),
        out_hidden_size=section.take_size('out_hidden_size'),
        num_position_embeddings=section.take_size('num_position_embeddings'),
        deepstack_layers=layers,
    )
    section.refuse_unread()
    if vision.out_hidden_size != text.hidden_size:
        raise CheckpointError(
            f'{section.where("out_hidden_size")} is {vision.out_hidden_size}, but the language '
            f'tower has hidden_size {text.hidden_size}'
        )
    if vision.hidden_size % (4 * vision.num_heads):
        raise CheckpointError(
            f'{section.where("num_heads")} is {vision.num_heads}: hidden_size '
            f'{vision.hidden_size} must be a multiple of four times that'
        )
    side = round(vision.num_position_embeddings**0.5)
    if side * side != vision.num_position_embeddings:
        raise CheckpointError(
            f'{section.where("num_position_embeddings")} is {vision.num_position_embeddings}, '
            'wanted a square number'
        )
    if len(layers) > text.num_layers or not all(
        type(i) is int and 0 <= i < vision.depth for i in layers
    ):
        raise CheckpointError(
            f'{section.where("deepstack_visual_indexes")} is {list(layers)}, wanted indexes of '
            f'the {vision.depth} vision layers, at most one per language layer'
        )
    return vision


def _decoding_fields(family: str, root: Section, generation: Section) -> dict[str, Any]:
    """Return block size, mask id and steps; block diffusion has to name the first two."""
    if family == 'qwen3_vl':
        return {'block_size': 1, 'mask_token_id': None, 'denoising_steps': 1}

    def take(key: str, default: int | None) -> int:
        source = root if root.has(key) else generation
        if not source.has(key) and default is None:
            raise CheckpointError(
                f'{root.where(key)} is missing: a block-diffusion checkpoint has to say what it '
                'was trained with; add it to config.json or generation_config.json'
            )
        root.take(key, int, 1)  # marks the key as read where only the other file has it
        return source.take(key, int, default)

    block_size = take('block_size', None)
    if not 1 <= block_size <= 1024:
        raise CheckpointError(f'{root.where("block_size")} is {block_size}, wanted 1 … 1024')
    steps = take('denoising_steps', block_size)
    if steps < 1:
        raise CheckpointError(f'{root.where("denoising_steps")} is {steps}, wanted 1 or more')
    threshold = root.take('confidence_threshold', float, 0.9)
    if not 0 < threshold <= 2:
        raise CheckpointError(
            f'{root.where("confidence_threshold")} is {threshold}, wanted above 0 and at most 2'
        )
    rules = [rule.value for rule in Unmasking]
    unmasking = root.take('unmasking', str, Unmasking.DYNAMIC.value)
    if unmasking not in rules:
        raise CheckpointError(
            f'{root.where("unmasking")} is {unmasking!r}, wanted {" or ".join(rules)}'
        )
    return {
        'block_size': block_size,
        'mask_token_id': take('mask_token_id', None),
        'denoising_steps': steps,
        'unmasking': Unmasking(unmasking),
        'confidence_threshold': threshold,
    }


def _check_ids(config: ModelConfig, root: Section) -> None:
    ids = {
        'image_token_id': config.image_token_id,
        'video_token_id': config.video_token_id,
        'vision_start_token_id': config.vision_start_token_id,
        'vision_end_token_id': config.vision_end_token_id,
        'mask_token_id': config.mask_token_id,
        **{f'eos_token_id[{i}]': value for i, value in enumerate(config.eos_token_ids)},
    }
    roles: dict[int, str] = {}
    for key, value in ids.items():
        if value is None:
            continue
        if not 0 <= value < config.text.vocab_size:
            raise CheckpointError(
                f'{root.where(key)} is {value}, outside the vocabulary of '
                f'{config.text.vocab_size} tokens'
            )
        if value in roles:
            raise CheckpointError(f'{root.where(key)} is {value}, which is also {roles[value]}')
        roles[value] = key
