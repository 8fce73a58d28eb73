"""NAVSIM's terms of plans in the simulated world, from what the simulator told of a drive.

Others do what they did (log replay), the road is that of the world's seed. Positions are in the
map, which the simulator's odometry calls `odom`. A plan is taken as it is: no controller follows
it. Whoever touches the ego vehicle from behind is at fault himself, as in `score.py`.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from scipy.spatial import cKDTree

from ..evaluation.footprints import footprint_corners, footprints_overlap
from ..evaluation.navsim import (
    STEP_S,
    TIME_TO_COLLISION_S,
    driving_direction,
    ego_progress,
    lane_keeping,
)
from .ground import half_width_m
from .route import LEAD_IN_M, RUN_OUT_M, STEP_M
from .scene import Light, PropKind
from .score import MOVING_MPS
from .vehicle import VEHICLE
from .world import OFF_ROAD_M, World

WITHIN_NS = 110_000_000  # of the instant that a ground truth stands for
PLANS_AT_ONCE = 128
LOOK_AHEAD_STEPS = range(0, round(TIME_TO_COLLISION_S / STEP_S), 3)  # as NAVSIM does


class GroundTruthError(ValueError):
    """What a recording holds is no ground truth of this world."""


class Worlds:
    """Ground truths in the order of time, as arrays. Raises GroundTruthError."""

    def __init__(self, truths: Sequence[dict[str, Any]]) -> None:
        try:
            self._read(truths)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise GroundTruthError(f'not as docs/interfaces.md says: {error!r}') from error

    def _read(self, truths: Sequence[dict[str, Any]]) -> None:
        by_stamp = {truth['stamp_ns']: truth for truth in truths}
        ordered = [by_stamp[stamp] for stamp in sorted(by_stamp)]
        self.stamps_ns = np.array(sorted(by_stamp), np.int64)
        self.seeds = np.array([truth['seed'] for truth in ordered])
        if self.seeds.dtype.kind != 'i' or (self.seeds < 0).any():
            raise ValueError(f'seeds {self.seeds.tolist()[:3]}')
        self.s_m = np.array([truth['s_m'] for truth in ordered], float)
        if not np.isfinite(self.s_m).all():
            raise ValueError('s_m is not always a number')
        self.lights = [[light == Light.RED.value for light in t['lights']] for t in ordered]
        most = max(len(truth['bodies']) for truth in ordered)
        self.boxes = np.full((len(ordered), most, 5), np.nan)  # of road users, NaN for nobody
        for place, truth in enumerate(ordered):
            for index, body in enumerate(truth['bodies']):
                length, width = body['size_m'][:2]
                box = body['x_m'], body['y_m'], body['heading_rad'], length, width
                self.boxes[place, index] = box

    def at(self, at_ns: np.ndarray) -> np.ndarray:
        """Return the places [...] of the truths nearest to instants [...], -1 for too far."""
        right = np.clip(np.searchsorted(self.stamps_ns, at_ns), 1, len(self.stamps_ns) - 1)
        if len(self.stamps_ns) == 1:
            right = np.zeros(at_ns.shape, int)
        left = np.maximum(right - 1, 0)
        nearer = at_ns - self.stamps_ns[left] <= self.stamps_ns[right] - at_ns
        place = np.where(nearer, left, right)
        return np.where(np.abs(self.stamps_ns[place] - at_ns) <= WITHIN_NS, place, -1)


class Road:
    """The asphalt and the lane of a world, for many points at once."""

    def __init__(self, seed: int) -> None:
        self._world = World(seed)
        self.route = self._world.route
        s_m = np.arange(-LEAD_IN_M, self.route.length_m + RUN_OUT_M, STEP_M)
        self._rows = np.array([self.route.at(value) for value in s_m.tolist()])
        self._s_m, self._tree = s_m, cKDTree(self._rows[:, :2])
        self._half_road_m = half_width_m(self.route)

    @cached_property
    def fixed(self) -> np.ndarray:
        """Boxes [K, 5] of cones and barriers."""
        boxes = [
            (*prop.position_map_m, prop.heading_rad, *prop.size_m[:2])
            for prop in self._world.scene.props
            if prop.kind in (PropKind.CONE, PropKind.BARRIER)
        ]
        return np.array(boxes, float).reshape(-1, 5)

    def along(self, xy_m: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (s, lateral) [...] of points [..., 2]; NaN for NaN."""
        known = np.isfinite(xy_m).all(axis=-1)
        _, nearest = self._tree.query(np.where(known[..., None], xy_m, 0.0))
        x, y, heading, curvature = np.moveaxis(self._rows[nearest], -1, 0)
        dx, dy = xy_m[..., 0] - x, xy_m[..., 1] - y
        ahead = dx * np.cos(heading) + dy * np.sin(heading)
        left = dy * np.cos(heading) - dx * np.sin(heading)
        # One step of Newton's, as in Route.project.
        return self._s_m[nearest] + ahead / np.maximum(1 - curvature * left, 0.3), left

    def in_junction(self, s_m: np.ndarray) -> np.ndarray:
        """Return bool [...]: where on the route a junction's box is."""
        inside = np.zeros(s_m.shape, bool)
        for junction in self.route.junctions:
            inside |= (s_m > junction.start_s - 1) & (s_m < junction.end_s + 1)
        return inside

    def is_road(self, xy_m: np.ndarray) -> np.ndarray:
        """Return bool [...] whether points [..., 2] are on the route's road or in a junction."""
        _, left_m = self.along(xy_m)
        road = np.abs(left_m - self.route.lane_width_m / 2) <= self._half_road_m + OFF_ROAD_M
        for junction in self.route.junctions:
            offset = xy_m - np.array(junction.centre_map_m)
            cos, sin = np.cos(junction.heading_rad), np.sin(junction.heading_rad)
            far = np.maximum(
                np.abs(offset[..., 0] * cos + offset[..., 1] * sin),
                np.abs(offset[..., 1] * cos - offset[..., 0] * sin),
            )
            road |= far <= junction.half_size_m + OFF_ROAD_M
        return road

    def lane_offset(self, s_m: np.ndarray, left_m: np.ndarray) -> np.ndarray:
        """Return how far left [...] of the line that passes what intrudes on the lane."""
        guide = np.interp(s_m, self.route.s_m, self._world.guide.offset_m)
        return left_m - guide


def plan_terms(
    truths: Sequence[dict[str, Any]],
    t0_ns: np.ndarray,
    xy_map_m: np.ndarray,
    heading_rad: np.ndarray,
    speed_mps: np.ndarray,
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Judge N plans of T steps of 0.1 s from t0 on: rear axle [N, T, 2], heading, speed [N, T].

    Returns the terms {name: [N]}, NaN for plans that cannot be judged, and bool [N] whether ground
    truths of one world cover an instant's T steps. A plan that begins in a collision cannot be
    judged on collisions. Raises GroundTruthError.
    """
    worlds, steps = Worlds(truths), speed_mps.shape[1]
    after_ns = np.round(np.arange(steps) * STEP_S * 1e9).astype(np.int64)
    at = worlds.at(t0_ns[:, None] + after_ns)
    seeds = worlds.seeds[at]
    covered = (at >= 0).all(axis=1) & (seeds == seeds[:, :1]).all(axis=1)
    whole = np.isfinite(xy_map_m).all(axis=(1, 2)) & np.isfinite(speed_mps).all(axis=1)
    names = ('no_collision', 'on_road', 'direction', 'lights', 'progress', 'time_to_collision')
    terms = {name: np.full(len(t0_ns), np.nan) for name in (*names, 'lane_keeping')}
    judged = np.flatnonzero(covered & whole)
    for seed in np.unique(seeds[judged, 0]).tolist():
        road = Road(seed)
        mine = judged[seeds[judged, 0] == seed]
        for chosen in np.array_split(mine, -(-len(mine) // PLANS_AT_ONCE)):
            found = _terms(
                worlds, road, at[chosen], xy_map_m[chosen], heading_rad[chosen], speed_mps[chosen]
            )
            for name, value in found.items():
                terms[name][chosen] = value
    return terms, covered


def _terms(
    worlds: Worlds, road: Road, at: np.ndarray, xy_m: np.ndarray, heading: np.ndarray,
    speed: np.ndarray,
) -> dict[str, np.ndarray]:  # fmt: skip
    ahead = np.stack((np.cos(heading), np.sin(heading)), axis=-1)
    middle = xy_m + VEHICLE.centre_m * ahead
    size = np.broadcast_to((VEHICLE.length_m, VEHICLE.width_m), middle.shape)
    ego = np.concatenate([middle, heading[..., None], size], axis=-1)  # [N, T, 5]
    s_m, left_m = road.along(middle)
    offset_m, inside = road.lane_offset(s_m, left_m), road.in_junction(s_m)
    way_m = np.linalg.norm(np.diff(middle, axis=1, prepend=middle[:, :1]), axis=2)
    oncoming = (offset_m > road.route.lane_width_m / 2) & ~inside
    reference_m = worlds.s_m[at[:, -1]] - worlds.s_m[at[:, 0]]
    return {
        **_collisions(worlds, road, at, ego, speed),
        'on_road': road.is_road(footprint_corners(ego)).all(axis=(1, 2)).astype(float),
        'direction': driving_direction(np.where(oncoming, way_m, 0.0)),
        'lights': _lights(worlds, road, at, road.along(xy_m)[0] + VEHICLE.front_m),
        'progress': ego_progress(s_m[:, -1] - s_m[:, 0], reference_m),
        'lane_keeping': lane_keeping(offset_m, inside),
    }


def _collisions(
    worlds: Worlds, road: Road, at: np.ndarray, ego: np.ndarray, speed: np.ndarray
) -> dict[str, np.ndarray]:
    users, moving = worlds.boxes[at], speed >= MOVING_MPS  # [N, T, K, 5]
    hit = _hits(ego, users) & moving
    things = _hits(ego, np.broadcast_to(road.fixed, (*ego.shape[:2], *road.fixed.shape))) & moving
    collision = np.where(hit.any(axis=1), 0.0, np.where(things.any(axis=1), 0.5, 1.0))
    clear = np.ones(len(ego), bool)
    steps = ego.shape[1] - LOOK_AHEAD_STEPS[-1]
    for offset in LOOK_AHEAD_STEPS:
        later = ego[:, :steps].copy()
        reach_m = (speed[:, :steps] * offset * STEP_S)[..., None]
        later[..., :2] += reach_m * np.stack(
            (np.cos(later[..., 2]), np.sin(later[..., 2])), axis=-1
        )
        clear &= ~(_hits(later, users[:, offset : offset + steps]) & moving[:, :steps]).any(axis=1)
    begins = hit[:, 0] | things[:, 0]
    return {
        'no_collision': np.where(begins, np.nan, collision),
        'time_to_collision': np.where(begins, np.nan, clear.astype(float)),
    }


def _hits(ego: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return bool [N, T] whether boxes [N, T, 5] touch one of [N, T, K, 5] that is not behind."""
    ego = ego[:, :, None]
    away = others[..., :2] - ego[..., :2]
    before = away[..., 0] * np.cos(ego[..., 2]) + away[..., 1] * np.sin(ego[..., 2]) >= 0
    return (footprints_overlap(ego, others) & before).any(axis=2)


def _lights(worlds: Worlds, road: Road, at: np.ndarray, front_s: np.ndarray) -> np.ndarray:
    """Return 0 [N] where the front bumper [N, T] crosses a stop line while its light is red."""
    kept = np.ones(len(at))
    for junction in road.route.junctions:
        if junction.signal is None:
            continue
        if any(len(lights) <= junction.signal for lights in worlds.lights):
            raise GroundTruthError(f'there is no traffic light {junction.signal}')
        red = np.array([lights[junction.signal] for lights in worlds.lights], bool)[at]
        crosses = (front_s[:, :-1] < junction.stop_s) & (junction.stop_s <= front_s[:, 1:])
        kept[(crosses & red[:, 1:]).any(axis=1)] = 0.0
    return kept
