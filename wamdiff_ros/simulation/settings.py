"""What a generated data set is made with; see generation.py."""

from dataclasses import asdict, dataclass, fields
from typing import Any

from .cameras import CAMERAS

# First route of each split, and how many it can have. The evaluation drives routes 0 … 999.
SPLITS = {'train': (1_000_000, 2**31 - 1_000_000), 'validation': (500_000, 500_000)}
MOST_FRAMES = 16  # in one record


class GenerationError(ValueError):
    """A data set cannot be made so; the message names the setting or the route."""


@dataclass(frozen=True)
class Settings:
    """Everything that decides what the records are, apart from how many there are."""

    split: str = 'train'
    first_route: int = 0  # within the split
    every_s: float = 0.3
    image_size: tuple[int, int] = (256, 128)  # width, height
    cameras: tuple[str, ...] = ('front',)
    frames: int = 1  # of each camera, 0.1 s apart
    keep_standing: float = 1.0
    keep_cruising: float = 0.5
    disturbances: bool = True
    model: str = ''  # DAgger: checkpoint folder that drives
    beta: float = 0.0  # share of the time that it does
    routes_per_shard: int = 8

    def __post_init__(self) -> None:
        if self.split not in SPLITS:
            raise GenerationError(f'split {self.split!r} is none of {list(SPLITS)}')
        if not 0.1 <= self.every_s <= 10.0 or abs(self.every_s * 10 % 1) > 1e-6:
            raise GenerationError(f'every_s {self.every_s} is no multiple of 0.1 s, 0.1 … 10')
        if not 1 <= self.frames <= MOST_FRAMES:
            raise GenerationError(f'frames {self.frames} is outside of 1 … {MOST_FRAMES}')
        unknown = [name for name in self.cameras if name not in CAMERAS]
        if unknown or not self.cameras or len(set(self.cameras)) != len(self.cameras):
            raise GenerationError(f'cameras {self.cameras} are not some of {list(CAMERAS)}')

    def seed_of(self, route: int) -> int:
        """Return the world's seed of the data set's route 0, 1, …; splits never overlap."""
        start, count = SPLITS[self.split]
        place = self.first_route + route
        if not 0 <= place < count:
            raise GenerationError(f'route {place} is outside of {self.split}, 0 … {count - 1}')
        return start + place

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {name: list(v) if type(v) is tuple else v for name, v in asdict(self).items()}

    def differences(self, kept: dict[str, Any]) -> list[str]:
        """Return where kept JSON values differ, as words."""
        mine = self.to_json()
        return [
            f'{f.name} {there!r} there, {mine[f.name]!r} asked for'
            for f in fields(self)
            # Data sets that are older than the field were made with its default.
            if (there := kept.get(f.name, 1 if f.name == 'frames' else None)) != mine[f.name]
        ]
