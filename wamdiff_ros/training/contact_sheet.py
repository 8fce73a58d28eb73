"""A picture of many records: what the camera saw, where the expert went, and what it was told."""

import textwrap

import numpy as np
from PIL import Image as Picture
from PIL import ImageDraw, ImageFont
from tqdm import tqdm

from ..pinhole import NEAR_M, Pinhole
from .conversations import format_description
from .records import ConversationRecord, DrivingRecord, Record, camera_of, decode_image, frames_ago
from .shards import Shards

PICTURE_PX = (512, 256)
WORDS_PX = 92
MARGIN_PX = 6
LINE_PX, LETTERS = 15, 82  # of a line of words
WAYPOINT_RGB, FIRST_RGB = (255, 60, 200), (255, 220, 0)


def contact_sheet(
    shards: Shards, cameras: dict[str, Pinhole], count: int, columns: int, seed: int, words: str
) -> Picture.Image:
    """Return a sheet of `count` records drawn at random, in the order of their places.

    `cameras` are those that the records were made with; waypoints are drawn into those pictures
    whose camera is among them. Only records that say `words` are drawn.
    """
    chosen = []
    for index in np.random.default_rng(seed).permutation(len(shards)):
        if len(chosen) == count:
            break
        if words in _said(shards[int(index)]):
            chosen.append(int(index))
    chosen.sort()
    if not chosen:
        raise ValueError(f'none of {len(shards)} records says {words!r}')
    width, height = PICTURE_PX[0] + MARGIN_PX, PICTURE_PX[1] + WORDS_PX + MARGIN_PX
    rows = -(-len(chosen) // columns)
    sheet = Picture.new('RGB', (columns * width + MARGIN_PX, rows * height + MARGIN_PX), 'white')
    for place, index in enumerate(tqdm(chosen, 'drawing', unit='record', disable=None)):
        row, column = divmod(place, columns)
        tile = _tile(shards[index], shards.key(index), cameras)
        sheet.paste(tile, (MARGIN_PX + column * width, MARGIN_PX + row * height))
    return sheet


def _tile(record: Record, key: str, cameras: dict[str, Pinhole]) -> Picture.Image:
    tile = Picture.new('RGB', (PICTURE_PX[0], PICTURE_PX[1] + WORDS_PX), 'white')
    if record.images:
        images = [(n, d) for n, d in record.images.items() if not frames_ago(n)]
        name, data = next(iter(images or record.images.items()))
        picture = Picture.fromarray(decode_image(data)).resize(
            PICTURE_PX, Picture.Resampling.BICUBIC
        )
        camera = cameras.get(camera_of(name))
        if isinstance(record, DrivingRecord) and camera is not None:
            _draw_waypoints(picture, record.waypoints_base_m, camera)
        tile.paste(picture, (0, 0))
    draw = ImageDraw.Draw(tile)
    font = ImageFont.load_default(12)
    for number, line in enumerate(_words(record, key)):
        draw.text((2, PICTURE_PX[1] + 1 + LINE_PX * number), line, 'black', font)
    return tile


def _said(record: Record) -> str:
    if isinstance(record, ConversationRecord):
        return f'{record.question}\n{record.answer}'
    return f'{record.source} {record.command.value}\n{format_description(record)}'


def _draw_waypoints(picture: Picture.Image, waypoints_base_m: np.ndarray, camera: Pinhole) -> None:
    ground = np.column_stack([waypoints_base_m, np.zeros(len(waypoints_base_m))])
    pixels, depth = camera.project(ground)
    pixels = pixels * (PICTURE_PX[0] / camera.width, PICTURE_PX[1] / camera.height)
    draw = ImageDraw.Draw(picture)
    for number, ((u, v), ahead) in enumerate(zip(pixels, depth, strict=True)):
        if ahead > NEAR_M:
            colour = WAYPOINT_RGB if number else FIRST_RGB
            draw.ellipse((u - 3, v - 3, u + 3, v + 3), fill=colour, outline='black')


def _words(record: Record, key: str) -> list[str]:
    if isinstance(record, ConversationRecord):
        words = [f'{key}  Q: {record.question}', f'A: {record.answer}']
    else:
        (speed, _), (forward, left) = record.velocity_base_mps, record.acceleration_base_mps2
        x, y = record.waypoints_base_m[-1]
        said = [name for name, is_there in record.objects.items() if is_there]
        words = [
            f'{key}  {record.time_s:.1f} s  {record.source}  '
            f'{record.command.value.upper()}  {record.longitudinal} / {record.lateral}',
            f'{speed:.1f} m/s  a {forward:+.1f} {left:+.1f} m/s2  yaw '
            f'{record.yaw_rate_radps:+.2f} rad/s  last waypoint {x:.1f} {y:+.1f}',
            f'objects: {", ".join(said) or "none"}',
            record.explanation,
        ]
    return [line for text in words for line in textwrap.wrap(text, LETTERS)][: WORDS_PX // LINE_PX]
