"""The planner's parameters: one frozen dataclass, the only place where a default is written.

Free of ROS: the node declares them from here (ros/parameter_server.py), the offline tools read
the same YAML file, and docs/parameters.md is generated from here. Every parameter is read once,
in `configure`; `from_mapping` refuses bad values with a sentence that names the parameter, the
value and the remedy.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from .types import Command

TRANSPORTS = ('auto', 'raw', 'compressed')
QUANTISATIONS = ('none', 'int8_weight_only', 'int8_dynamic', 'int4_weight_only', 'w4a8')


class ParameterError(ValueError):
    """A parameter was refused; the message says which, why, and what would be accepted."""


@dataclass(frozen=True)
class Camera:
    """One camera of the list `cameras`, from the parameters `camera.<name>.*`."""

    name: str
    topic: str
    transport: str = 'auto'
    stamp_offset_s: float = 0.0


def _parameter(default: Any, description: str, *, low=None, high=None, choices=None) -> Any:
    """Declare a dataclass field with what a ROS ParameterDescriptor needs to know."""
    return field(
        default=default,
        metadata={'description': description, 'low': low, 'high': high, 'choices': choices},
    )


@dataclass(frozen=True)
class Parameters:
    """All parameters but the per-camera ones; see docs/parameters.md for the table."""

    # -- what is seen -------------------------------------------------------------------------
    cameras: tuple[str, ...] = _parameter(
        ('front',),
        'Names of the cameras, the one that sets t0 first; each has its own parameters '
        'camera.<name>.topic, camera.<name>.transport and camera.<name>.stamp_offset_s.',
    )
    max_frame_age_s: float = _parameter(
        0.25, 'Oldest camera frame that a tick may plan from [s].', low=0.01, high=10.0
    )
    max_camera_skew_s: float = _parameter(
        0.05,
        'Largest difference between the stamps of the cameras of one tick [s].',
        low=0.0,
        high=1.0,
    )
    max_ego_gap_s: float = _parameter(
        0.2,
        'Farthest that odometry may be interpolated across, or extrapolated beyond its '
        'newest message, to reach t0 [s].',
        low=0.001,
        high=1.0,
    )
    max_frozen_m: float = _parameter(
        2.0,
        'Distance after which a camera that still shows the same picture counts as frozen [m]; '
        '0 turns this off.',
        low=0.0,
        high=1000.0,
    )
    max_odometry_jump_m: float = _parameter(
        1.0,
        'How far odometry may be from where its own twist leads; a larger jump clears buffers, '
        'plan and KV cache [m].',
        low=0.1,
        high=1000.0,
    )
    default_command: str = _parameter(
        'straight',
        'Navigation command until one arrives.',
        choices=tuple(command.value for command in Command),
    )
    jump_threshold_s: float = _parameter(
        1.0,
        'A forward jump of the clock larger than this, or any backward jump, clears buffers, '
        'plan and KV cache; a message stamped farther ahead of the clock is refused [s].',
        low=0.1,
        high=60.0,
    )
    # -- when it plans --------------------------------------------------------------------------
    rate_hz: float = _parameter(
        10.0,
        'Rate of the fixed grid on which the node plans and publishes [Hz].',
        low=0.1,
        high=50.0,
    )
    deadline_s: float = _parameter(
        0.08,
        'Time after the grid instant at which the tick is published, with its own plan if '
        'that is ready [s]; at most one period.',
        low=0.001,
        high=10.0,
    )
    max_plan_age_s: float = _parameter(
        1.0, 'Age from which a held plan is replaced by the fallback [s].', low=0.05, high=10.0
    )
    fallback: str = _parameter(
        'stop',
        'What is published when the last plan is too old: a braking trajectory along its '
        'path, or nothing.',
        choices=('stop', 'silent'),
    )
    fallback_deceleration_mps2: float = _parameter(
        2.5, 'Deceleration of the fallback stop [m/s^2].', low=0.1, high=9.0
    )
    # -- what it accepts: docs/checks.md; 0 turns a check off ------------------------------------
    max_start_offset_m: float = _parameter(
        0.5, "Distance of a plan's start from the vehicle [m].", low=0.0, high=100.0
    )
    max_start_speed_error_mps: float = _parameter(
        1.0, "Difference of a plan's first speed from the vehicle's [m/s].", low=0.0, high=100.0
    )
    max_speed_mps: float = _parameter(40.0, 'Speed on a plan [m/s].', low=0.0, high=100.0)
    max_acceleration_mps2: float = _parameter(
        6.0, 'Acceleration along a plan [m/s^2].', low=0.0, high=100.0
    )
    max_deceleration_mps2: float = _parameter(
        9.0, 'Deceleration along a plan [m/s^2].', low=0.0, high=100.0
    )
    max_lateral_acceleration_mps2: float = _parameter(
        7.5, 'Acceleration to the side on a plan [m/s^2].', low=0.0, high=100.0
    )
    max_fold_back_m: float = _parameter(
        0.3,
        'How far a plan may come back along its own path [m]; a vehicle that reverses may have '
        'a plan in reverse.',
        low=0.0,
        high=100.0,
    )
    max_curvature_1pm: float = _parameter(
        0.3, "Curvature of a plan's path, between chords of 2 m [1/m].", low=0.0, high=10.0
    )
    max_jerk_mps3: float = _parameter(
        20.0, 'Jerk on a plan, mean of 0.5 s [m/s^3].', low=0.0, high=1000.0
    )
    max_lateral_shift_m: float = _parameter(
        1.5,
        'How far to the side of the last plan a new one may go within the next second [m].',
        low=0.0,
        high=100.0,
    )
    max_forward_shift_m: float = _parameter(
        2.0,
        'How far ahead of the last plan a new one may go within the next second [m].',
        low=0.0,
        high=100.0,
    )
    shift_patience: int = _parameter(
        3,
        'The plan that is accepted although it is shifted against the last one: the so many-th '
        'in a row of plans that agree with each other.',
        low=1,
        high=100,
    )
    # -- what it publishes ----------------------------------------------------------------------
    trajectory_frame: str = _parameter(
        'fixed',
        "Frame of the trajectories: the odometry's fixed frame, or base_link at t0.",
        choices=('fixed', 'base'),
    )
    waypoint_noise_m: float = _parameter(
        0.1,
        'Standard deviation of the waypoints that a trajectory is smoothed for [m]; 0 leads it '
        'through them.',
        low=0.0,
        high=2.0,
    )
    point_interval_s: float = _parameter(
        0.1, 'Time between trajectory points [s].', low=0.01, high=0.5
    )
    description_period_s: float = _parameter(
        1.0, 'Time between scene descriptions [s]; 0 turns them off.', low=0.0, high=60.0
    )
    description_max_tokens: int = _parameter(
        64, 'Longest scene description [tokens].', low=1, high=1024
    )
    overlay_rate_hz: float = _parameter(
        0.0,
        "Rate of ~/overlay, the plan painted into the first camera's picture [Hz]; 0 turns it "
        'off, 2 is plenty: it takes time from the cores of the planner.',
        low=0.0,
        high=10.0,
    )
    vehicle_length_m: float = _parameter(
        4.6, "Length of the vehicle's footprint, for the pictures [m].", low=0.1, high=50.0
    )
    vehicle_width_m: float = _parameter(
        1.85, "Width of the vehicle's footprint, for the pictures [m].", low=0.1, high=10.0
    )
    vehicle_rear_overhang_m: float = _parameter(
        0.9, 'From the origin of base_link to the rear bumper [m].', low=0.0, high=50.0
    )
    # -- the model ------------------------------------------------------------------------------
    model_dir: str = _parameter(
        '', 'Checkpoint folder in Hugging Face layout; empty takes the bundled nano checkpoint.'
    )
    device: str = _parameter(
        'auto',
        'Where the network runs; auto takes the first CUDA device, or else the CPU.',
        choices=('auto', 'cpu', 'cuda'),
    )
    dtype: str = _parameter(
        'auto',
        'Precision of the network; auto is float32 on a CPU and bfloat16 on a GPU.',
        choices=('auto', 'float32', 'bfloat16', 'float16'),
    )
    language_quantisation: str = _parameter(
        'none',
        'Weights of the language tower in fewer bits; docs/performance.md says what it costs. '
        'Needs requirements/quantisation.txt, but for int8_dynamic on a CPU.',
        choices=QUANTISATIONS,
    )
    vision_quantisation: str = _parameter(
        'none', 'The same for the vision tower.', choices=QUANTISATIONS
    )
    head_quantisation: str = _parameter(
        'none', 'The same for the head, from hidden states to logits.', choices=QUANTISATIONS
    )
    threads: int = _parameter(
        0, 'CPU threads of the network; 0 leaves the choice to torch.', low=0, high=256
    )
    runtime: str = _parameter(
        'auto',
        'How forwards run: one operation after another (eager), or captured or compiled once per '
        'shape (graph); auto takes what was found to be faster on the device.',
        choices=('auto', 'eager', 'graph'),
    )
    attention: str = _parameter(
        'sdpa',
        "Kernels of the language tower's attention: torch's own (sdpa), or FlashInfer's over a "
        'paged KV cache (flashinfer: CUDA, bfloat16 or float16). See docs/gpu.md.',
        choices=('sdpa', 'flashinfer'),
    )
    vision_backend: str = _parameter(
        'torch',
        'What encodes images: the network (torch), or a TensorRT engine, which is built if the '
        'cache has none that fits; wamdiff prebuild does that ahead. See docs/gpu.md.',
        choices=('torch', 'tensorrt'),
    )
    vision_precision: str = _parameter(
        'fp16',
        'Precision of the TensorRT engine; fp8 has to be built ahead, as it is calibrated.',
        choices=('fp16', 'fp8', 'fp32'),
    )
    cache_dir: str = _parameter(
        '', 'Folder for built engines; empty takes wamdiff_ros in the cache folder of the user.'
    )
    min_pixels: int = _parameter(
        0,
        "Smallest image area after resizing [pixels]; 0 takes the checkpoint's own.",
        low=0,
        high=16_777_216,
    )
    max_pixels: int = _parameter(
        0,
        "Largest image area after resizing [pixels]; 0 takes the checkpoint's own.",
        low=0,
        high=16_777_216,
    )
    # -- decoding -------------------------------------------------------------------------------
    max_new_tokens: int = _parameter(
        128, 'Longest trajectory answer [tokens]; rounded up to whole blocks.', low=1, high=4096
    )
    unmasking: str = _parameter(
        'dynamic',
        'Which slots of a block are unmasked per denoising step.',
        choices=('dynamic', 'static', 'sequential'),
    )
    denoising_steps: int = _parameter(
        0,
        "Denoising steps per block; 0 takes the checkpoint's own, or else one per slot.",
        low=0,
        high=1024,
    )
    confidence_threshold: float = _parameter(
        0.9,
        'Confidence from which the dynamic rule unmasks a slot; above 1: one slot a step.',
        low=0.0,
        high=2.0,
    )
    temperature: float = _parameter(0.0, 'Sampling temperature; 0 is greedy.', low=0.0, high=10.0)
    top_p: float = _parameter(1.0, 'Nucleus sampling; 1 is off.', low=0.001, high=1.0)
    top_k: int = _parameter(0, 'Top-k sampling; 0 is off.', low=0, high=100_000)
    seed: int = _parameter(0, 'Seed of the sampling.', low=0, high=2**31 - 1)
    rollouts: int = _parameter(
        1,
        'Trajectories decoded together from one prompt: the first is the plan, the others are '
        'sampled at rollout_temperature, each with its own seed, and published as candidates.',
        low=1,
        high=64,
    )
    rollout_temperature: float = _parameter(
        0.7,
        'Sampling temperature of the further rollouts; 0 makes them all equal.',
        low=0.0,
        high=10.0,
    )

    # Filled from camera.<name>.*, one per name in `cameras`; not a ROS parameter of its own.
    camera_settings: tuple[Camera, ...] = field(default=(), metadata={'ros': False})

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> 'Parameters':
        """Build from flat dotted names (`camera.front.topic`); raises ParameterError."""
        known = {f.name: f for f in ros_fields()}
        plain = {}
        camera_values: dict[str, dict[str, Any]] = {}
        for name, value in values.items():
            if name in known:
                plain[name] = _checked(name, value, known[name])
            elif name.startswith('camera.') and name.count('.') == 2:
                _, camera, key = name.split('.')
                camera_values.setdefault(camera, {})[key] = value
            else:
                raise ParameterError(f'{name}: no such parameter')
        cameras = plain.get('cameras', known['cameras'].default)
        settings = _camera_settings(cameras, camera_values)
        parameters = cls(**plain, camera_settings=settings)
        parameters._check_together()
        return parameters

    @property
    def period_ns(self) -> int:
        """Time between two grid instants."""
        return round(1e9 / self.rate_hz)

    def _check_together(self) -> None:
        if self.deadline_s * self.rate_hz > 1.0 + 1e-9:
            raise ParameterError(
                f'deadline_s: {self.deadline_s} s is longer than one period '
                f'({1 / self.rate_hz:g} s at rate_hz {self.rate_hz:g}); lower one of the two'
            )
        if self.max_plan_age_s <= self.deadline_s:
            raise ParameterError(
                f'max_plan_age_s: {self.max_plan_age_s} s is not above deadline_s '
                f'{self.deadline_s} s, so every plan would be too old when it is published'
            )
        if 0 < self.max_deceleration_mps2 < self.fallback_deceleration_mps2:
            raise ParameterError(
                f'fallback_deceleration_mps2: {self.fallback_deceleration_mps2} m/s^2 is above '
                f'max_deceleration_mps2 {self.max_deceleration_mps2} m/s^2, lower one of the two'
            )
        if self.vision_backend != 'torch' and self.vision_quantisation != 'none':
            raise ParameterError(
                f'vision_quantisation: {self.vision_quantisation!r} is for vision_backend torch; '
                f'{self.vision_backend} has vision_precision, set vision_quantisation to none'
            )
        if self.max_pixels and self.min_pixels > self.max_pixels:
            raise ParameterError(
                f'min_pixels: {self.min_pixels} is above max_pixels {self.max_pixels}'
            )


def ros_fields() -> list:
    """Return the dataclass fields that are ROS parameters, in order."""
    return [f for f in fields(Parameters) if f.metadata.get('ros', True)]


def camera_defaults(name: str) -> dict[str, Any]:
    """Return the per-camera parameters of the camera `name` with their defaults."""
    return {
        f'camera.{name}.topic': f'camera/{name}/image',
        f'camera.{name}.transport': 'auto',
        f'camera.{name}.stamp_offset_s': 0.0,
    }


def markdown_table() -> str:
    """Return docs/parameters.md: `python -m wamdiff_ros.parameters > docs/parameters.md`."""
    lines = [
        '# Parameters',
        '',
        'Generated from `wamdiff_ros/parameters.py`. All of them are read in `configure`; while',
        'the node is configured they cannot be set. Defaults are also in',
        '`config/planner.param.yaml`. The node has one more, `autostart`: configure and activate',
        'without being asked (default false; the launch file sets it to true).',
        '',
        '| parameter | default | accepted | meaning |',
        '|---|---|---|---|',
    ]
    for spec in ros_fields():
        default = list(spec.default) if isinstance(spec.default, tuple) else spec.default
        lines.append(_row(spec.name, default, spec.metadata))
    for name, default in camera_defaults('NAME').items():
        key = name.rsplit('.', 1)[1]
        limits = {
            'transport': {'choices': TRANSPORTS},
            'stamp_offset_s': {'low': -1.0, 'high': 1.0},
        }
        entry = {'description': CAMERA_DESCRIPTIONS[key], **limits.get(key, {})}
        lines.append(_row(name, default, entry))
    return '\n'.join(lines) + '\n'


def _row(name: str, default: Any, entry: Mapping[str, Any]) -> str:
    accepted = ''
    if entry.get('low') is not None:
        accepted = f'{entry["low"]:,} … {entry["high"]:,}'.replace(',', '\u202f')
    elif entry.get('choices'):
        accepted = ', '.join(f'`{choice}`' for choice in entry['choices'])
    shown = 'empty' if default == '' else f'`{default}`'
    return f'| `{name}` | {shown} | {accepted} | {entry["description"]} |'


CAMERA_DESCRIPTIONS = {
    'topic': 'Image topic, sensor_msgs/Image or sensor_msgs/CompressedImage.',
    'transport': 'auto takes the message type that is on the topic, raw and compressed insist.',
    'stamp_offset_s': "Added to the camera's stamps, for a driver that stamps late or early [s].",
}


def _checked(name: str, value: Any, spec) -> Any:
    """Return `value` in the type of the field `spec`, or raise ParameterError."""
    if isinstance(spec.default, tuple):
        return _checked_cameras(name, value)
    wanted = type(spec.default)
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if type(value) is not wanted:
        raise ParameterError(
            f'{name}: {value!r} is a {type(value).__name__}, wanted a {wanted.__name__}'
        )
    low, high, choices = (spec.metadata[key] for key in ('low', 'high', 'choices'))
    # A NaN is outside every range, which `not (low <= value)` says and `value < low` does not.
    if low is not None and not low <= value <= high:
        raise ParameterError(f'{name}: {value!r} is outside {low} … {high}')
    if choices is not None and value not in choices:
        raise ParameterError(f'{name}: {value!r} is not one of {", ".join(choices)}')
    return value


def _checked_cameras(name: str, value: Any) -> tuple[str, ...]:
    is_list = isinstance(value, (list, tuple))
    if not is_list or not all(isinstance(entry, str) for entry in value):
        raise ParameterError(f'{name}: {value!r} is not a list of names, wanted e.g. [front]')
    cameras = tuple(value)
    if not cameras:
        raise ParameterError(f'{name}: the list is empty, name at least one camera')
    for camera in cameras:
        if not camera.isidentifier():
            raise ParameterError(f'{name}: {camera!r} is not a name (letters, digits, _)')
    if len(set(cameras)) < len(cameras):
        raise ParameterError(f'{name}: {list(cameras)} names a camera twice')
    return cameras


def _camera_settings(cameras, values) -> tuple[Camera, ...]:
    for camera in values:
        if camera not in cameras:
            raise ParameterError(
                f'camera.{camera}.*: there is no camera {camera!r} in cameras {list(cameras)}'
            )
    settings = []
    for camera in cameras:
        given = values.get(camera, {})
        for key in given:
            if key not in CAMERA_DESCRIPTIONS:
                raise ParameterError(f'camera.{camera}.{key}: no such parameter')
        prefix = f'camera.{camera}.'
        merged = {k[len(prefix) :]: v for k, v in camera_defaults(camera).items()} | given
        for key, kind in (('topic', str), ('transport', str), ('stamp_offset_s', float)):
            if key == 'stamp_offset_s' and type(merged[key]) is int:
                merged[key] = float(merged[key])
            if type(merged[key]) is not kind:
                raise ParameterError(f'{prefix}{key}: {merged[key]!r} is not a {kind.__name__}')
        if not merged['topic']:
            raise ParameterError(f"{prefix}topic: is empty, name the camera's image topic")
        if merged['transport'] not in TRANSPORTS:
            raise ParameterError(
                f'{prefix}transport: {merged["transport"]!r} is not one of {", ".join(TRANSPORTS)}'
            )
        if not abs(merged['stamp_offset_s']) <= 1.0:
            raise ParameterError(
                f'{prefix}stamp_offset_s: {merged["stamp_offset_s"]} is outside -1 … 1'
            )
        settings.append(Camera(camera, **merged))
    topics = [camera.topic for camera in settings]
    for topic in topics:
        if topics.count(topic) > 1:
            raise ParameterError(f'camera.*.topic: two cameras share the topic {topic!r}')
    return tuple(settings)


if __name__ == '__main__':
    print(markdown_table(), end='')
