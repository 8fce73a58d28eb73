"""A plan as shapes in space: the one drawing that RViz, Foxglove, the overlay and the viewer show.

Points are [m] in the frame of the plan's positions, z up. Knows no messages and no pixels:
`ros/markers.py` makes markers of the shapes, `pictures/figure_painter.py` pictures.
"""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np
from scipy.spatial.transform import Rotation

from ..parameters import Parameters
from ..types import EgoState, PlanStatus
from .publication import Publication
from .trajectory import to_fixed

MARKED_TIMES_S = (1.0, 2.0, 3.0, 4.0)
# Speed [m/s] to colour, from standstill to fast.
SPEED_STOPS_MPS = (0.0, 4.0, 9.0, 16.0, 30.0)
SPEED_RGB = ((225, 40, 60), (245, 140, 40), (70, 200, 90), (40, 170, 235), (140, 110, 245))
EDGE_RGB = {
    PlanStatus.NOMINAL: (255, 255, 255),
    PlanStatus.HELD: (255, 176, 32),
    PlanStatus.FALLBACK_STOP: (255, 64, 72),
}
CANDIDATE_RGB = (196, 205, 255)
VEHICLE_RGB = (220, 224, 230)
RIBBON_ALPHA = 0.7
STRIPE_M = 2.0  # a plan that is held is striped
STANDING_MPS = 0.05
RIBBON_LIFT_M, LINE_LIFT_M = 0.02, 0.05  # above the ground, or a grid in it shines through
MARK_SPACING_M = 1.0  # marks nearer to the last one are left out
WORDS_AT_M = (-6.0, 0.0, 1.5)  # behind the vehicle, where they hide nothing
TEXT_COLUMNS, REASON_LINES, DESCRIPTION_LINES = 60, 2, 3


class Kind(Enum):
    """How the points of a shape are taken: three, two, or one at a time."""

    TRIANGLES = 'triangles'
    LINES = 'lines'
    TEXT = 'text'


@dataclass(frozen=True, eq=False)
class Shape:
    """One thing to draw. `layer` is what people switch on and off, `number` is unique in it."""

    layer: str
    number: int
    kind: Kind
    points_m: np.ndarray  # [K, 3], K = 0 where there is nothing to draw
    rgb: np.ndarray  # [K, 3], 0 … 255
    alpha: float = 1.0
    size_m: float = 1.0  # width of lines, height of letters
    text: str = ''


@dataclass(frozen=True)
class Footprint:
    """The vehicle's outline around the origin of the base frame, the middle of the rear axle."""

    length_m: float
    width_m: float
    rear_overhang_m: float

    @classmethod
    def of(cls, parameters: Parameters) -> 'Footprint':
        """Return the footprint that the parameters describe."""
        return cls(
            parameters.vehicle_length_m,
            parameters.vehicle_width_m,
            parameters.vehicle_rear_overhang_m,
        )

    def corners_base_m(self) -> np.ndarray:
        """Return [4, 3]: front left, front right, rear right, rear left, on the ground."""
        rear_m, side_m = -self.rear_overhang_m, self.width_m / 2
        front_m = rear_m + self.length_m
        return np.array(
            [
                [front_m, side_m, 0],
                [front_m, -side_m, 0],
                [rear_m, -side_m, 0],
                [rear_m, side_m, 0],
            ]
        )


COMPACT_CAR = Footprint.of(Parameters())


@dataclass(frozen=True, eq=False)
class DrawnPlan:
    """A published plan in one frame, which the positions and headings are given in."""

    status: PlanStatus
    age_s: float
    time_s: np.ndarray  # [N], from t0
    speed_mps: np.ndarray  # [N]
    positions_m: np.ndarray | None  # [N, 3]; None where nobody knows where it lies
    headings: np.ndarray | None  # [N, 3], unit vectors

    def edges(self, width_m: float) -> tuple[np.ndarray, np.ndarray]:
        """Return the left and right edge of a ribbon of that width, [N, 3] each."""
        side = np.cross([0.0, 0.0, 1.0], self.headings)
        side *= width_m / 2 / np.maximum(np.linalg.norm(side, axis=1, keepdims=True), 1e-9)
        return self.positions_m + side, self.positions_m - side


def drawn_plan(publication: Publication, pose_of_base: EgoState) -> DrawnPlan:
    """Return the plan of a publication that has one.

    `pose_of_base` is the plan's own ego for the fixed frame, or that ego moved to the origin for
    the base frame.
    """
    trajectory = publication.plan.trajectory
    positions_m, quaternions = to_fixed(trajectory, pose_of_base)
    return DrawnPlan(
        status=publication.status,
        age_s=publication.age_ns / 1e9,
        time_s=trajectory.time_ns / 1e9,
        speed_mps=trajectory.speed_mps,
        positions_m=positions_m,
        headings=Rotation.from_quat(quaternions).apply([1.0, 0.0, 0.0]),
    )


def in_base(plan: DrawnPlan, ego: EgoState) -> DrawnPlan:
    """Return a plan of the fixed frame in the base frame of `ego`."""
    to_base = Rotation.from_quat(ego.orientation_xyzw).inv()
    return replace(
        plan,
        positions_m=to_base.apply(plan.positions_m - np.array(ego.position_fixed_m)),
        headings=to_base.apply(plan.headings),
    )


def speed_rgb(speed_mps: np.ndarray) -> np.ndarray:
    """Return colours [N, 3], 0 … 255, of speeds [N], forward or reverse."""
    channels = np.array(SPEED_RGB, float).T
    return np.stack([np.interp(np.abs(speed_mps), SPEED_STOPS_MPS, c) for c in channels], axis=-1)


def plan_figure(
    plan: DrawnPlan,
    footprint: Footprint,
    candidates_m: Sequence[np.ndarray] = (),
    reason: str = '',
    description: str = '',
) -> tuple[Shape, ...]:
    """Return the shapes of a plan in the order of painting; always the same ones, some empty.

    `candidates_m` are the positions [N, 3] of the tick's other plans, in the same frame.
    """
    bars, labels = _horizon(plan, footprint)
    return (
        _candidates(candidates_m),
        _ribbon(plan, footprint),
        _edges(plan, footprint),
        bars,
        _stop_bar(plan, footprint),
        _vehicle(plan, footprint),
        *labels,
        _words(plan, reason, description),
    )


def _candidates(candidates_m: Sequence[np.ndarray]) -> Shape:
    pieces = [_pieces(positions_m) for positions_m in candidates_m]
    points = np.concatenate([np.zeros((0, 3)), *pieces])
    return _lines('candidates', points, CANDIDATE_RGB, 0.12)


def _ribbon(plan: DrawnPlan, footprint: Footprint) -> Shape:
    left, right = plan.edges(footprint.width_m)
    rgb = speed_rgb(plan.speed_mps)
    corners = _quads(left[:-1], right[:-1], left[1:], right[1:])
    colours = _quads(rgb[:-1], rgb[:-1], rgb[1:], rgb[1:])
    if plan.status is PlanStatus.HELD:
        steps_m = np.linalg.norm(np.diff(plan.positions_m, axis=0), axis=1)
        middles_m = np.cumsum(steps_m) - steps_m / 2
        kept = middles_m // STRIPE_M % 2 == 0
        corners, colours = corners[kept], colours[kept]
    points = _lifted(corners.reshape(-1, 3), RIBBON_LIFT_M)
    return Shape('ribbon', 0, Kind.TRIANGLES, points, colours.reshape(-1, 3), RIBBON_ALPHA)


def _edges(plan: DrawnPlan, footprint: Footprint) -> Shape:
    pieces = [_pieces(edge) for edge in plan.edges(footprint.width_m)]
    return _lines('edges', np.concatenate(pieces), EDGE_RGB[plan.status], 0.06)


def horizon_bars(plan: DrawnPlan, width_m: float) -> list[tuple[float, np.ndarray]]:
    """Return (time [s], left and right end [2, 3]) of the marks across a ribbon of that width."""
    edges, bars = plan.edges(width_m), []
    for time_s in MARKED_TIMES_S:
        if not len(plan.time_s) or time_s > plan.time_s[-1]:
            break
        bar = np.array([[np.interp(time_s, plan.time_s, axis) for axis in e.T] for e in edges])
        if not bars or np.linalg.norm((bar - bars[-1][1]).mean(axis=0)) >= MARK_SPACING_M:
            bars.append((time_s, bar))
    return bars


def _horizon(plan: DrawnPlan, footprint: Footprint) -> tuple[Shape, list[Shape]]:
    """Return one shape of all bars, and one label per time that may be marked."""
    bars = dict(horizon_bars(plan, footprint.width_m))
    labels = []
    for number, time_s in enumerate(MARKED_TIMES_S, start=1):
        place = _lifted(bars[time_s][1:], 0.6) if time_s in bars else np.zeros((0, 3))
        rgb = np.full((len(place), 3), 255.0)
        labels.append(Shape('horizon', number, Kind.TEXT, place, rgb, 1.0, 0.6, f'{time_s:g} s'))
    ends = np.concatenate([np.zeros((0, 3)), *bars.values()])
    return _lines('horizon', ends, (255, 255, 255), 0.12), labels


def _stop_bar(plan: DrawnPlan, footprint: Footprint) -> Shape:
    """Return a bar where a stop comes to stand, twice as wide as the ribbon."""
    ends = np.zeros((0, 3))
    standing = np.flatnonzero(np.abs(plan.speed_mps) < STANDING_MPS)
    if plan.status is PlanStatus.FALLBACK_STOP and len(standing):
        ends = np.array([edge[standing[0]] for edge in plan.edges(2 * footprint.width_m)])
    return _lines('stop', ends, EDGE_RGB[PlanStatus.FALLBACK_STOP], 0.4)


def _vehicle(plan: DrawnPlan, footprint: Footprint) -> Shape:
    """Return the outline of the vehicle where the plan begins, with a nose."""
    outline = np.zeros((0, 3))
    if len(plan.time_s):
        corners = footprint.corners_base_m()
        front = corners[:2].mean(axis=0)
        nose = np.array([corners[0] - [0.8, 0, 0], front, corners[1] - [0.8, 0, 0]])
        outline = np.concatenate([_pieces(np.vstack([corners, corners[:1]])), _pieces(nose)])
        outline = _from_start(plan, outline)
    return _lines('vehicle', outline, VEHICLE_RGB, 0.08)


def _words(plan: DrawnPlan, reason: str, description: str) -> Shape:
    """Return status, age, speed, the reason and the newest description."""
    lines = [f'{plan.status.name.replace("_", " ")}   {plan.age_s:.2f} s old']
    place = np.zeros((0, 3))
    if len(plan.time_s):
        lines[0] += f'   {plan.speed_mps[0]:.1f} m/s'
        place = _from_start(plan, np.array([WORDS_AT_M]))
    for words, count in ((reason, REASON_LINES), (description, DESCRIPTION_LINES)):
        lines += textwrap.wrap(words, TEXT_COLUMNS, max_lines=count, placeholder=' …')
    rgb = np.array([EDGE_RGB[plan.status]] * len(place), float).reshape(-1, 3)
    return Shape('words', 0, Kind.TEXT, place, rgb, 1.0, 0.4, '\n'.join(lines))


def _from_start(plan: DrawnPlan, points_m: np.ndarray) -> np.ndarray:
    """Return points [K, 3] of the vehicle's own axes where the plan begins in the plan's frame."""
    forward = plan.headings[0]
    left = np.cross([0.0, 0.0, 1.0], forward)
    left /= max(np.linalg.norm(left), 1e-9)
    return points_m @ np.stack([forward, left, np.cross(forward, left)]) + plan.positions_m[0]


def _lines(layer: str, ends_m: np.ndarray, rgb, width_m: float) -> Shape:
    colours = np.tile(np.array(rgb, float), (len(ends_m), 1))
    lifted = _lifted(ends_m, LINE_LIFT_M)
    return Shape(layer, 0, Kind.LINES, lifted, colours, 1.0, width_m)


def _pieces(points: np.ndarray) -> np.ndarray:
    """Return both ends of every piece of a polyline: [N, 3] to [2 (N - 1), 3]."""
    return np.repeat(points, 2, axis=0)[1:-1]


def _quads(left0, right0, left1, right1) -> np.ndarray:
    """Return the corners of two triangles per quad, [M, 6, 3], of its four corners [M, 3]."""
    return np.stack([left0, right0, left1, left1, right0, right1], axis=1)


def _lifted(points: np.ndarray, by_m: float) -> np.ndarray:
    return points + np.array([0.0, 0.0, by_m])
