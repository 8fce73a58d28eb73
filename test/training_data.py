"""A few driving records and a tiny checkpoint, made in the test."""

from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image as Picture

from wamdiff_ros.training.conversations import corpus
from wamdiff_ros.training.nano import SIZES, TEMPLATES, write_random_weights, write_skeleton
from wamdiff_ros.training.records import OBJECTS, DrivingRecord
from wamdiff_ros.types import Command


def records(count: int, seed: int = 0) -> list[DrivingRecord]:
    """Vehicles that go straight on at speeds that the picture shows as brightness."""
    random = np.random.default_rng(seed)
    made = []
    for index in range(count):
        speed = float(random.integers(1, 20))
        rgb = np.full((64, 128, 3), 10 * speed, np.uint8)
        rgb[:, :, 0] = random.integers(0, 255, (64, 128))
        file = BytesIO()
        Picture.fromarray(rgb).save(file, 'jpeg')
        along = speed * np.arange(0.5, 4.1, 0.5)
        made.append(
            DrivingRecord(
                seed=index,
                time_s=1.0,
                source='expert',
                command=list(Command)[index % 3],
                velocity_base_mps=(speed, 0.0),
                acceleration_base_mps2=(0.0, 0.0),
                yaw_rate_radps=0.0,
                waypoints_base_m=np.stack((along, np.zeros(8)), axis=1),
                objects=dict.fromkeys(OBJECTS, index % 2 == 0),
                explanation='The road is clear.' if index % 2 else 'A car is near, so wait.',
                longitudinal='keep_speed',
                lateral='keep_lane',
                images={'jpg': file.getvalue()},
                boxes=(('red', 0.4, 0.1, 0.6, 0.5),) if index % 2 else (),
            )
        )
    return made


def tiny_checkpoint(folder: Path, block_size: int = 1, seed: int = 0, std: float = 0.02) -> Path:
    words = ['The road is clear.', 'A car is near, so wait.', 'keep_speed', 'keep_lane']
    write_skeleton(folder, SIZES['tiny'], corpus(TEMPLATES, words), block_size)
    write_random_weights(folder, seed, std)
    return folder
