"""Sessions over a tiny checkpoint with random weights, and what they see."""

import json
from dataclasses import replace

import numpy as np
from training_data import tiny_checkpoint

from wamdiff_ros.decoding.block_diffusion import decode_blocks
from wamdiff_ros.parameters import Parameters
from wamdiff_ros.runtime.session import PlanningSession
from wamdiff_ros.types import CameraFrame, Command, EgoState, Observation


def tiny_model(folder, waypoints='positions'):
    """Make a checkpoint in `folder` that takes three denoising steps for 32 slots."""
    tiny_checkpoint(folder, block_size=32)
    for name, values in (
        ('config.json', {'denoising_steps': 3}),
        ('preprocessor_config.json', {'max_pixels': 320 * 192}),
        ('prompts.json', {'waypoints': waypoints}),
    ):
        file = folder / name
        file.write_text(json.dumps(json.loads(file.read_text()) | values))
    return folder


def load(model_dir, **parameters):
    return PlanningSession.load(
        Parameters.from_mapping({'model_dir': str(model_dir), **parameters})
    )


def speak(patch, session, text_of):
    """Let the tokens of every answer of `session` read as `text_of` them, and the answer end."""

    def decoded(*args, **kwargs):
        return [replace(answer, ended=True) for answer in decode_blocks(*args, **kwargs)]

    patch.setattr(session._tokenizer, 'decode', text_of)
    patch.setattr('wamdiff_ros.runtime.session.decode_blocks', decoded)


def observation(seed=0, t0_ns=10**9, speed=8.0, cameras=1, size=(128, 224)):
    random = np.random.default_rng(seed)
    frames = tuple(
        CameraFrame(f'camera{i}', t0_ns, random.integers(0, 256, (*size, 3), np.uint8))
        for i in range(cameras)
    )
    ego = EgoState(
        t0_ns,
        'odom',
        'base_link',
        (5.0, 2.0, 0.0),
        (0.0, 0.0, 0.0, 1.0),
        (speed, 0.0),
        0.0,
        (0.0, 0.0),
    )
    return Observation(t0_ns, frames, ego, Command.STRAIGHT)
