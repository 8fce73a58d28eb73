"""What there is to say about an instant of the world, derived from its state.

The fields are those of Fast-dDrive's scene descriptions; those that this world lacks are always
no. What counts is near enough to matter, inside the front camera's picture, and not hidden by a
vehicle.
"""

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

from ..training.records import OBJECTS
from ..types import Command
from .expert import Expert, ExpertPlan
from .scene import BodyKind, Light, Signal
from .sight import is_hidden
from .vehicle import VEHICLE
from .world import World

LONGITUDINAL = ('stop', 'decelerate', 'keep_speed', 'accelerate', 'wait')
LATERAL = ('keep_lane', 'shift_left', 'shift_right', 'turn_left', 'turn_right')

VEHICLE_M = 30.0  # how near the middle of a vehicle, a person … is to count
PERSON_M = 35.0
CHEST_M = 1.2  # of people, to be seen over cars
WORKS_M = 35.0
SIGNAL_M = 45.0  # to the stop line
CROSSING_M, BRAKING_M, INTRUDING_M = 40.0, 22.0, 22.0  # of vehicles that conflict with ours
PICTURE_RAD = math.radians(41.0)  # to either side; the camera sees 45 degrees
CAMERA_M = 1.6  # before base_link
DARK, FOGGY_PER_M, RAINY = 0.65, 0.004, 0.1
STANDING_MPS = 0.3
START_M = 1.5  # a plan that starts from rest goes farther than this
CHANGE_MPS = 1.0  # of speed over 2 s
SHIFT_M = 0.35
TURN_RAD = 0.3

EXPLANATIONS = {
    'wait red': (
        'The light is red, so we wait.',
        'We wait at the red light.',
        'We stand and wait until the light turns green.',
    ),
    'red': (
        'The light is red, so we stop at the line.',
        'We brake because the light ahead is red.',
        'A red light ahead makes us stop.',
    ),
    'amber': (
        'The light turns red, so we stop at the line.',
        'We brake because the light ahead is amber.',
        'An amber light ahead makes us stop.',
    ),
    'wait pedestrian': (
        'We wait for the pedestrian to cross.',
        'A pedestrian is crossing, so we wait.',
        'We stand until the pedestrian has crossed.',
    ),
    'pedestrian': (
        'A pedestrian is crossing, so we slow down.',
        'We brake for the pedestrian ahead.',
        'We give way to the pedestrian.',
    ),
    'wait cyclist': (
        'We wait for the cyclist to cross.',
        'A cyclist is crossing, so we wait.',
        'We stand until the cyclist has crossed.',
    ),
    'cyclist': (
        'A cyclist is crossing, so we slow down.',
        'We brake for the cyclist ahead.',
        'We give way to the cyclist.',
    ),
    'wait lead': (
        'The vehicle ahead stands, so we wait.',
        'We wait behind the vehicle ahead.',
        'We stand behind the stopped vehicle.',
    ),
    'lead brakes': (
        'The vehicle ahead brakes, so we brake too.',
        'We slow down because the vehicle ahead brakes.',
        'We keep our distance to the braking vehicle.',
    ),
    'lead': (
        'We follow the vehicle ahead.',
        'We keep a safe distance to the vehicle ahead.',
        'The vehicle ahead sets our speed.',
    ),
    'roadworks': (
        'Roadworks close part of our lane, so we keep left.',
        'We pass the roadworks slowly on the left.',
        'We slow down and make way for the roadworks.',
    ),
    'parked': (
        'A parked car is in our lane, so we keep left.',
        'We pass the parked car with a safe distance.',
        'We make way for the parked car.',
    ),
    'turn left': (
        'We turn left at the junction.',
        'Our route goes left here.',
        'We slow down to turn left.',
    ),
    'turn right': (
        'We turn right at the junction.',
        'Our route goes right here.',
        'We slow down to turn right.',
    ),
    'curve': (
        'The road bends, so we slow down.',
        'We take the bend at a safe speed.',
        'We slow down for the bend.',
    ),
    'green': (
        'The light is green, so we drive on.',
        'We go on because the light is green.',
        'A green light lets us pass.',
    ),
    'accelerate': (
        'The road is clear, so we speed up.',
        'Nothing is in the way, so we accelerate.',
        'We speed up on the free road.',
    ),
    'free': (
        'The road is clear, so we keep our speed.',
        'Nothing is in the way, so we drive on.',
        'We follow our lane on the free road.',
    ),
}
# The field that says that a reason can be seen.
SEEN_AS = {
    'red': 'traffic_element',
    'amber': 'traffic_element',
    'pedestrian': 'pedestrian',
    'cyclist': 'cyclist',
}
# Everything that can be said, for a tokenizer.
WORDINGS = (*LONGITUDINAL, *LATERAL, *(text for kind in EXPLANATIONS.values() for text in kind))


@dataclass(frozen=True)
class Truth:
    """What a perfect description of an instant says."""

    objects: dict[str, bool]  # by OBJECTS, in their order
    explanation: str
    longitudinal: str  # one of LONGITUDINAL
    lateral: str  # one of LATERAL
    reason: str  # key of EXPLANATIONS


def truth(world: World, plan: ExpertPlan | None = None) -> Truth:
    """Return the truth about now; `plan` is the expert's, made here where it is not given."""
    plan = plan or Expert().plan(world)
    objects = critical_objects(world, plan.reason)
    longitudinal, lateral = longitudinal_of(plan), lateral_of(world, plan)
    reason = _reason(world, plan, objects, longitudinal, lateral)
    # The same instant is always worded alike.
    words = random.Random(world.seed * 100_003 + round(world.time_s * 10))
    return Truth(objects, words.choice(EXPLANATIONS[reason]), longitudinal, lateral, reason)


def critical_objects(world: World, reason: str = '') -> dict[str, bool]:
    """Return the yes/no fields, in their order; the reason for what the expert does counts."""
    present = {
        'nearby_vehicle': any(_near_vehicles(world)),
        'pedestrian': reason == 'pedestrian' or _gives_way(world, BodyKind.PEDESTRIAN),
        'cyclist': reason == 'cyclist' or _gives_way(world, BodyKind.CYCLIST),
        'construction': any(
            world.s_m + VEHICLE.front_m - works.start_s > -WORKS_M
            and world.s_m + VEHICLE.front_m < works.end_s - 3.0
            for works in world.features.roadworks
        ),
        'traffic_element': reason in ('red', 'amber') or _signal_ahead(world) is not None,
        'weather_condition': _bad_weather(world),
        'conflicting_vehicle': any(_conflicts(world)),
    }
    return {name: present.get(name, False) for name in OBJECTS}


def longitudinal_of(plan: ExpertPlan) -> str:
    """Return what a plan does with the speed; a plan that stops and goes on again stops."""
    speed = plan.speed_mps
    if speed[0] < STANDING_MPS:
        return 'accelerate' if _way_m(plan) > START_M else 'wait'
    if speed.min() < STANDING_MPS:
        return 'stop'
    change = speed[20] - speed[0]
    if change < -CHANGE_MPS:
        return 'decelerate'
    return 'accelerate' if change > CHANGE_MPS else 'keep_speed'


def lateral_of(world: World, plan: ExpertPlan) -> str:
    """Return what a plan does to the side: a turn in a junction, or a shift within the lane."""
    turn = float(plan.heading_rad[-1])
    command = world.command()
    if command is Command.LEFT and turn > TURN_RAD and _reaches_box(world, plan):
        return 'turn_left'
    if command is Command.RIGHT and turn < -TURN_RAD and _reaches_box(world, plan):
        return 'turn_right'
    end_s = world.s_m + _way_m(plan)
    shift = world.guide.at(end_s)[0] - world.lateral_m
    if _way_m(plan) < 3.0 or abs(shift) < SHIFT_M:
        return 'keep_lane'
    return 'shift_left' if shift > 0 else 'shift_right'


def _reason(
    world: World, plan: ExpertPlan, objects: dict[str, bool], longitudinal: str, lateral: str
) -> str:
    """Return the key of the explanation: what limits the speed first, else what is special."""
    reason = plan.reason
    if world.lead is not None and not objects.get(SEEN_AS.get(reason, ''), True):
        reason = 'lead'  # it hides what the expert stops for
    if longitudinal == 'wait':
        if reason == 'amber':
            reason = 'red'
        if f'wait {reason}' in EXPLANATIONS:
            return f'wait {reason}'
    if reason == 'lead' and world.lead is not None:
        braking = world.lead.braking and longitudinal in ('stop', 'decelerate')
        return 'lead brakes' if braking else 'lead'
    if reason in ('red', 'amber', 'pedestrian', 'cyclist'):
        return reason
    if lateral in ('turn_left', 'turn_right'):
        return lateral.replace('_', ' ')
    obstacle = _obstacle_ahead(world)
    if obstacle is not None:
        return obstacle
    if longitudinal == 'decelerate':
        turns = world.command() is not Command.STRAIGHT
        return f'turn {world.command().value}' if turns else 'curve'
    if _signal_ahead(world) is Light.GREEN:
        return 'green'
    return 'accelerate' if longitudinal == 'accelerate' else 'free'


def _obstacle_ahead(world: World) -> str | None:
    front_s = world.s_m + VEHICLE.front_m
    for works in world.features.roadworks:
        if works.start_s - 25.0 < front_s < works.end_s + 3.0:
            return 'roadworks'
    for obstacle in world.obstacles:
        if obstacle.by_vehicle and obstacle.start_s - 22.0 < front_s < obstacle.end_s + 2.0:
            return 'parked'
    return None


def _near_vehicles(world: World) -> Iterator[bool]:
    for body in (*world.parked, *world.moving_bodies()):
        if body.kind in (BodyKind.CAR, BodyKind.TRUCK):
            yield _in_picture(world, *body.position_map_m, VEHICLE_M)


def _conflicts(world: World) -> Iterator[bool]:
    """Vehicles that cross the junction, brake or stand ahead, or reach into the lane."""
    front_s = world.s_m + VEHICLE.front_m
    for vehicle in world.cross_traffic:
        body = vehicle.body(world.route)
        if body is not None and vehicle.nears_box:
            yield _in_picture(world, *body.position_map_m, CROSSING_M)
    if world.lead is not None and world.lead.braking:
        yield 0.0 < world.lead.rear_s - front_s < BRAKING_M
    for obstacle in world.obstacles:
        if obstacle.by_vehicle:
            yield front_s - 3.0 < obstacle.end_s and obstacle.start_s < front_s + INTRUDING_M


def _gives_way(world: World, kind: BodyKind) -> bool:
    for crossing in world.crossings:
        if crossing.kind is kind and crossing.in_the_way:
            x, y, _ = world.route.pose(crossing.s_m, crossing.lateral_m)
            if _in_picture(world, x, y, PERSON_M) and not is_hidden(world, x, y, CHEST_M):
                return True
    return False


def _signal_ahead(world: World) -> Light | None:
    """Return the light of the next junction, if it is near enough and to be seen."""
    front_s = world.s_m + VEHICLE.front_m
    for junction in world.route.junctions:
        if junction.signal is None or not -1.0 < junction.stop_s - front_s < SIGNAL_M:
            continue
        signal = world.scene.signals[junction.signal]
        x, y = _lamps(signal)
        if _in_picture(world, x, y, 2 * SIGNAL_M) and not is_hidden(
            world, x, y, signal.lamp_height_m
        ):
            return world.lights[junction.signal]
    return None


def _lamps(signal: Signal) -> tuple[float, float]:
    """Return where the lamps hang, left of the mast for the drivers that they face."""
    (x, y), heading = signal.position_map_m, signal.heading_rad
    return x + signal.arm_left_m * math.sin(heading), y - signal.arm_left_m * math.cos(heading)


def _bad_weather(world: World) -> bool:
    weather = world.scene.weather
    return weather.daylight < DARK or weather.fog_per_m > FOGGY_PER_M or weather.rain > RAINY


def _in_picture(world: World, x_m: float, y_m: float, within_m: float) -> bool:
    ego = world.ego
    dx, dy = x_m - ego.x_m, y_m - ego.y_m
    cos, sin = math.cos(ego.heading_rad), math.sin(ego.heading_rad)
    ahead, left = dx * cos + dy * sin - CAMERA_M, dy * cos - dx * sin
    return 0.5 < ahead < within_m and abs(math.atan2(left, ahead)) < PICTURE_RAD


def _reaches_box(world: World, plan: ExpertPlan) -> bool:
    end_s = world.s_m + _way_m(plan)
    return any(j.start_s < end_s and world.s_m < j.end_s for j in world.route.junctions)


def _way_m(plan: ExpertPlan) -> float:
    return float(plan.speed_mps.sum()) * 0.1
