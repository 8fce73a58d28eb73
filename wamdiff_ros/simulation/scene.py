"""What a camera can see of the driving world: a static scene, and a view of it at one instant.

The contract between the world, which knows no pictures, and the renderer, which knows no traffic
rules. The `map` frame has z up and the ground at z = 0; angles are counter-clockwise from x.
"""

from dataclasses import dataclass
from enum import Enum

import numpy as np

Colour = tuple[int, int, int]  # sRGB, 0 … 255
# Fluorescent, and bright in headlights too.
VESTS: tuple[Colour, ...] = ((205, 255, 50), (235, 255, 30))


class Surface(Enum):
    """What a strip of ground is made of; later ones lie on top of earlier ones."""

    SIDEWALK = 'sidewalk'
    ASPHALT = 'asphalt'
    EDGE_LINE = 'edge_line'  # white, solid
    CENTRE_LINE = 'centre_line'  # yellow; the world makes dashes of several strips
    STOP_LINE = 'stop_line'  # white, across the lane
    CROSSWALK = 'crosswalk'  # one white bar
    ROADWORKS = 'roadworks'  # broken-up ground


@dataclass(frozen=True, eq=False)
class Strip:
    """Ground between two edges of equally many points; both arrays are float64 [N, 2]."""

    surface: Surface
    left_map_m: np.ndarray
    right_map_m: np.ndarray


class PropKind(Enum):
    """Things that never move."""

    BUILDING = 'building'
    TREE = 'tree'
    CONE = 'cone'
    BARRIER = 'barrier'
    SIGN = 'sign'  # roadworks ahead
    LAMP_POST = 'lamp_post'


@dataclass(frozen=True)
class Prop:
    """A thing that never moves: its ground centre, heading, length (along it), width, height."""

    kind: PropKind
    position_map_m: tuple[float, float]
    heading_rad: float
    size_m: tuple[float, float, float]
    colour: Colour


class Light(Enum):
    """State of a traffic light."""

    RED = 'red'
    AMBER = 'amber'
    GREEN = 'green'


@dataclass(frozen=True)
class Signal:
    """A traffic light's place: foot of its mast, and the heading that it faces *towards*."""

    position_map_m: tuple[float, float]
    heading_rad: float
    lamp_height_m: float = 4.2
    arm_left_m: float = 0.0  # how far the lamps hang to the left of the mast, as seen by drivers


class BodyKind(Enum):
    """Road users."""

    CAR = 'car'
    TRUCK = 'truck'
    PEDESTRIAN = 'pedestrian'
    CYCLIST = 'cyclist'


@dataclass(frozen=True)
class Body:
    """A road user at one instant: ground centre of its box, heading, length, width, height."""

    kind: BodyKind
    position_map_m: tuple[float, float]
    heading_rad: float
    size_m: tuple[float, float, float]
    colour: Colour
    braking: bool = False  # vehicles: brake lights are on
    stride: float = 0.0  # pedestrians and cyclists: phase of legs or pedals, 0 … 1


@dataclass(frozen=True)
class Weather:
    """Light and air of a whole route."""

    daylight: float  # 1 noon … 0 dusk
    sun_azimuth_rad: float
    fog_per_m: float  # extinction: 0 clear, 0.02 thick
    rain: float  # 0 none … 1 heavy: streaks and noise in the picture
    ground: Colour  # beside the road
    noise_seed: int


@dataclass(frozen=True, eq=False)
class Scene:
    """What stays as it is over one route."""

    strips: tuple[Strip, ...]
    props: tuple[Prop, ...]
    signals: tuple[Signal, ...]
    weather: Weather


@dataclass(frozen=True, eq=False)
class View:
    """What changes: road users, lights, and where the camera's vehicle is."""

    frame_number: int  # seeds what is random in one picture
    position_map_m: tuple[float, float]  # of the ego vehicle's base_link: centre of its rear axle
    heading_rad: float
    pitch_rad: float  # of the body: positive lifts the nose
    roll_rad: float
    bodies: tuple[Body, ...]
    lights: tuple[Light, ...]  # one per scene.signals
