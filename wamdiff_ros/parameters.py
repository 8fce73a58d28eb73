"""The planner's parameters: one frozen dataclass, the only place where a default is written.

Free of ROS: the node declares them from here (ros/parameter_server.py), the offline tools read
the same YAML file, and docs/parameters.md is made of them (parameter_table.py). Every parameter
is read once, in `configure`; `from_mapping` refuses bad values with a sentence that names the
parameter, the value and the remedy. What cameras have is in camera_parameters.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from .camera_parameters import Camera, camera_settings
from .parameter_values import ParameterError, checked, parameter
from .types import Command

QUANTISATIONS = ('none', 'int8_weight_only', 'int8_dynamic', 'int4_weight_only', 'w4a8')


@dataclass(frozen=True)
class Parameters:
    """All parameters but the per-camera ones; see docs/parameters.md for the table."""

    # -- what is seen -------------------------------------------------------------------------
    cameras: tuple[str, ...] = parameter(
        ('front',),
        'Names of the cameras, the one that sets t0 first; each has its own parameters '
        'camera.<name>.topic, .transport, .encoding and .stamp_offset_s.',
    )
    max_frame_age_s: float = parameter(
        0.25, 'Oldest camera frame that a tick may plan from [s].', low=0.01, high=10.0
    )
    max_camera_skew_s: float = parameter(
        0.05,
        'Largest difference between the stamps of the cameras of one tick [s].',
        low=0.0,
        high=1.0,
    )
    max_ego_gap_s: float = parameter(
        0.2,
        'Farthest that odometry may be interpolated across, or extrapolated beyond its '
        'newest message, to reach t0 [s].',
        low=0.001,
        high=1.0,
    )
    max_frozen_m: float = parameter(
        2.0,
        'Distance after which a camera that still shows the same picture counts as frozen [m]; '
        '0 turns this off.',
        low=0.0,
        high=1000.0,
    )
    max_odometry_jump_m: float = parameter(
        1.0,
        'How far odometry may be from where its own twist leads; a larger jump clears buffers, '
        'plan and KV cache [m].',
        low=0.1,
        high=1000.0,
    )
    default_command: str = parameter(
        'straight',
        'Navigation command until one arrives.',
        choices=tuple(command.value for command in Command),
    )
    jump_threshold_s: float = parameter(
        1.0,
        'A forward jump of the clock larger than this, or a backward one (simulated time: any; '
        'system time: from 0.05 s on), clears buffers, plan and KV cache; a message stamped '
        'farther ahead of the clock is refused [s].',
        low=0.1,
        high=60.0,
    )
    # -- when it plans --------------------------------------------------------------------------
    rate_hz: float = parameter(
        10.0,
        'Rate of the fixed grid on which the node plans and publishes [Hz].',
        low=0.1,
        high=50.0,
    )
    deadline_s: float = parameter(
        0.08,
        'Time after the grid instant at which the tick is published, with its own plan if '
        'that is ready [s]; at most one period.',
        low=0.001,
        high=10.0,
    )
    max_plan_age_s: float = parameter(
        1.0, 'Age from which a held plan is replaced by the fallback [s].', low=0.05, high=10.0
    )
    fallback: str = parameter(
        'stop',
        'What is published when the last plan is too old: a braking trajectory along its '
        'path, or nothing.',
        choices=('stop', 'silent'),
    )
    fallback_deceleration_mps2: float = parameter(
        2.5, 'Deceleration of the fallback stop [m/s^2].', low=0.1, high=9.0
    )
    inference_timeout_s: float = parameter(
        10.0,
        'Time in which an inference has to return, ten times as long where it captures or '
        'compiles first; after it the process ends with an error, for its supervisor to start it '
        'anew [s]. 0 turns this off.',
        low=0.0,
        high=3600.0,
    )
    max_inference_failures: int = parameter(
        50,
        'Exceptions of inference in a row after which the process ends in the same way; 0 turns '
        'this off. An error that has lost the GPU ends it at once.',
        low=0,
        high=1_000_000,
    )
    # -- what it accepts: docs/checks.md; 0 turns a check off ------------------------------------
    max_start_offset_m: float = parameter(
        0.5, "Distance of a plan's start from the vehicle [m].", low=0.0, high=100.0
    )
    max_start_speed_error_mps: float = parameter(
        1.0, "Difference of a plan's first speed from the vehicle's [m/s].", low=0.0, high=100.0
    )
    max_speed_mps: float = parameter(40.0, 'Speed on a plan [m/s].', low=0.0, high=100.0)
    max_acceleration_mps2: float = parameter(
        6.0, 'Acceleration along a plan [m/s^2].', low=0.0, high=100.0
    )
    max_deceleration_mps2: float = parameter(
        9.0, 'Deceleration along a plan [m/s^2].', low=0.0, high=100.0
    )
    max_lateral_acceleration_mps2: float = parameter(
        7.5, 'Acceleration to the side on a plan [m/s^2].', low=0.0, high=100.0
    )
    max_fold_back_m: float = parameter(
        0.3,
        'How far a plan may come back along its own path [m]; a vehicle that reverses may have '
        'a plan in reverse.',
        low=0.0,
        high=100.0,
    )
    max_curvature_1pm: float = parameter(
        0.3, "Curvature of a plan's path, between chords of 2 m [1/m].", low=0.0, high=10.0
    )
    max_jerk_mps3: float = parameter(
        20.0, 'Jerk on a plan, mean of 0.5 s [m/s^3].', low=0.0, high=1000.0
    )
    max_lateral_shift_m: float = parameter(
        1.5,
        'How far to the side of the last plan a new one may go within the next second [m].',
        low=0.0,
        high=100.0,
    )
    max_forward_shift_m: float = parameter(
        2.0,
        'How far ahead of the last plan a new one may go within the next second [m].',
        low=0.0,
        high=100.0,
    )
    shift_patience: int = parameter(
        3,
        'The plan that is accepted although it is shifted against the last one: the so many-th '
        'in a row of plans that agree with each other.',
        low=1,
        high=100,
    )
    # -- what it publishes ----------------------------------------------------------------------
    trajectory_frame: str = parameter(
        'fixed',
        "Frame of the trajectories: the odometry's fixed frame, or base_link at t0.",
        choices=('fixed', 'base'),
    )
    waypoint_noise_m: float = parameter(
        0.1,
        'Standard deviation of the waypoints that a trajectory is smoothed for [m]; 0 leads it '
        'through them.',
        low=0.0,
        high=2.0,
    )
    point_interval_s: float = parameter(
        0.1, 'Time between trajectory points [s].', low=0.01, high=0.5
    )
    description_period_s: float = parameter(
        1.0, 'Time between scene descriptions [s]; 0 turns them off.', low=0.0, high=60.0
    )
    description_max_tokens: int = parameter(
        64, 'Longest scene description [tokens].', low=1, high=1024
    )
    overlay_rate_hz: float = parameter(
        0.0,
        "Rate of ~/overlay, the plan painted into the first camera's picture [Hz]; 0 turns it "
        'off, and the launch files with `rviz:=true` make 2 of it. That is plenty: it takes time '
        'from the cores of the planner.',
        low=0.0,
        high=10.0,
    )
    vehicle_length_m: float = parameter(
        4.6, "Length of the vehicle's footprint, for the pictures [m].", low=0.1, high=50.0
    )
    vehicle_width_m: float = parameter(
        1.85, "Width of the vehicle's footprint, for the pictures [m].", low=0.1, high=10.0
    )
    vehicle_rear_overhang_m: float = parameter(
        0.9, 'From the origin of base_link to the rear bumper [m].', low=0.0, high=50.0
    )
    # -- the model ------------------------------------------------------------------------------
    model_dir: str = parameter(
        '', 'Checkpoint folder in Hugging Face layout; empty takes the bundled nano checkpoint.'
    )
    device: str = parameter(
        'auto',
        'Where the network runs; auto takes the first CUDA device, or else the CPU.',
        choices=('auto', 'cpu', 'cuda'),
    )
    dtype: str = parameter(
        'auto',
        'Precision of the network; auto is float32 on a CPU and bfloat16 on a GPU.',
        choices=('auto', 'float32', 'bfloat16', 'float16'),
    )
    language_quantisation: str = parameter(
        'none',
        'Weights of the language tower in fewer bits; docs/performance.md says what it costs. '
        'Needs requirements/quantisation.txt, but for int8_dynamic on a CPU.',
        choices=QUANTISATIONS,
    )
    vision_quantisation: str = parameter(
        'none', 'The same for the vision tower.', choices=QUANTISATIONS
    )
    head_quantisation: str = parameter(
        'none', 'The same for the head, from hidden states to logits.', choices=QUANTISATIONS
    )
    threads: int = parameter(
        0, 'CPU threads of the network; 0 leaves the choice to torch.', low=0, high=256
    )
    runtime: str = parameter(
        'auto',
        'How forwards run: one operation after another (eager), or captured or compiled once per '
        'shape (graph); auto takes what was found to be faster on the device.',
        choices=('auto', 'eager', 'graph'),
    )
    attention: str = parameter(
        'sdpa',
        "Kernels of the language tower's attention: torch's own (sdpa), or FlashInfer's over a "
        'paged KV cache (flashinfer: CUDA, bfloat16 or float16). See docs/gpu.md.',
        choices=('sdpa', 'flashinfer'),
    )
    vision_backend: str = parameter(
        'torch',
        'What encodes images: the network (torch), or a TensorRT engine, which is built if the '
        'cache has none that fits; wamdiff prebuild does that ahead. See docs/gpu.md.',
        choices=('torch', 'tensorrt'),
    )
    vision_precision: str = parameter(
        'fp16',
        'Precision of the TensorRT engine; fp8 has to be built ahead, as it is calibrated.',
        choices=('fp16', 'fp8', 'fp32'),
    )
    cache_dir: str = parameter(
        '', 'Folder for built engines; empty takes wamdiff_ros in the cache folder of the user.'
    )
    min_pixels: int = parameter(
        0,
        "Smallest image area after resizing [pixels]; 0 takes the checkpoint's own.",
        low=0,
        high=16_777_216,
    )
    max_pixels: int = parameter(
        0,
        "Largest image area after resizing [pixels]; 0 takes the checkpoint's own.",
        low=0,
        high=16_777_216,
    )
    # -- decoding -------------------------------------------------------------------------------
    max_new_tokens: int = parameter(
        128, 'Longest trajectory answer [tokens]; rounded up to whole blocks.', low=1, high=4096
    )
    unmasking: str = parameter(
        'checkpoint',
        'Which slots of a block are unmasked per denoising step: all that are sure (dynamic), '
        'also digits that follow sure ones (leading), a fixed number, surest first (static) or '
        "from the left (sequential). checkpoint: the checkpoint's own rule, or else dynamic.",
        choices=('checkpoint', 'dynamic', 'leading', 'static', 'sequential'),
    )
    denoising_steps: int = parameter(
        0,
        "Denoising steps per block; 0 takes the checkpoint's own, or else one per slot.",
        low=0,
        high=1024,
    )
    confidence_threshold: float = parameter(
        0.0,
        'Confidence from which a slot is sure; above 1: one slot a step. 0 takes '
        "the checkpoint's own, or else 0.9.",
        low=0.0,
        high=2.0,
    )
    temperature: float = parameter(0.0, 'Sampling temperature; 0 is greedy.', low=0.0, high=10.0)
    top_p: float = parameter(1.0, 'Nucleus sampling; 1 is off.', low=0.001, high=1.0)
    top_k: int = parameter(0, 'Top-k sampling; 0 is off.', low=0, high=100_000)
    seed: int = parameter(0, 'Seed of the sampling.', low=0, high=2**31 - 1)
    rollouts: int = parameter(
        1,
        'Trajectories decoded together from one prompt: the first is the plan, the others are '
        'sampled at rollout_temperature, each with its own seed, and published as candidates.',
        low=1,
        high=64,
    )
    rollout_temperature: float = parameter(
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
                plain[name] = checked(name, value, known[name])
            elif name.startswith('camera.') and name.count('.') == 2:
                _, camera, key = name.split('.')
                camera_values.setdefault(camera, {})[key] = value
            else:
                raise ParameterError(f'{name}: no such parameter')
        cameras = plain.get('cameras', known['cameras'].default)
        settings = camera_settings(cameras, camera_values)
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
        if 0 < self.inference_timeout_s < self.max_plan_age_s:
            raise ParameterError(
                f'inference_timeout_s: {self.inference_timeout_s} s is below max_plan_age_s '
                f'{self.max_plan_age_s} s, so a plan that is only late would end the process; '
                'raise it, or set it to 0.0'
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
