"""What a replay is run with: everything that its results depend on but the recordings."""

import hashlib
import json
import platform
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from .. import __version__
from ..parameters import Parameters, ros_fields
from ..recordings.topics import TopicChoice
from ..share import share_path

FORMAT, VERSION = 'wamdiff-replay', 1
VERSIONS_OF = ('torch', 'numpy', 'scipy', 'opencv-python-headless', 'rosbags', 'tokenizers')
CHUNK_BYTES = 1 << 22


@dataclass(frozen=True)
class ReplaySettings:
    """Options of one run; `start_s` and `duration_s` count from the first picture of each bag."""

    parameters: Parameters
    model: str  # name of the checkpoint
    sha256: str  # of its files
    choice: TopicChoice
    start_s: float = 0.0
    duration_s: float | None = None
    with_input: bool = False

    @property
    def digest(self) -> str:
        """Equal for runs whose results may be mixed; where the checkpoint lies does not matter."""
        content = self.to_json()
        del content['parameters']['model_dir']
        text = json.dumps(content, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def to_json(self) -> dict[str, Any]:
        """Return the part of run.json that says what was run."""
        return {
            'format': FORMAT,
            'format_version': VERSION,
            'model': {'name': self.model, 'sha256': self.sha256},
            'parameters': flat_parameters(self.parameters),
            'options': {
                'start_s': self.start_s,
                'duration_s': self.duration_s,
                'remap': dict(self.choice.remap),
                'camera': self.choice.camera,
                'odometry': self.choice.odometry,
                'with_input': self.with_input,
            },
            'versions': _versions(),
        }


def model_dir(parameters: Parameters) -> Path:
    """Return the checkpoint's folder."""
    return Path(parameters.model_dir or share_path('models', 'nano')).expanduser().resolve()


def checkpoint_sha256(folder: Path) -> str:
    """Return one checksum over names and contents of the files of a checkpoint."""
    total = hashlib.sha256()
    for path in sorted(folder.glob('*.json')) + sorted(folder.glob('*.safetensors')):
        total.update(path.name.encode() + b'\0')
        with path.open('rb') as file:
            while chunk := file.read(CHUNK_BYTES):
                total.update(chunk)
    return total.hexdigest()


def flat_parameters(parameters: Parameters) -> dict[str, Any]:
    """Return all parameters by their flat names, as `Parameters.from_mapping` takes them."""
    flat: dict[str, Any] = {}
    for spec in ros_fields():
        value = getattr(parameters, spec.name)
        flat[spec.name] = list(value) if isinstance(value, tuple) else value
    for camera in parameters.camera_settings:
        values = asdict(camera)
        name = values.pop('name')
        flat.update({f'camera.{name}.{key}': value for key, value in values.items()})
    return flat


def _versions() -> dict[str, str]:
    versions = {'wamdiff_ros': __version__, 'python': platform.python_version()}
    for name in VERSIONS_OF:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:  # of the system, under another name
            versions[name] = 'unknown'
    return versions
