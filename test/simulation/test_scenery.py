import dataclasses
import math

import numpy as np
import pytest

from wamdiff_ros.simulation.ground import (
    SHOULDER_M,
    half_width_m,
    parking_lateral_m,
    sidewalk_lateral_m,
)
from wamdiff_ros.simulation.roadside import CLEAR_M, Site
from wamdiff_ros.simulation.route import ARM_LENGTH_M, make_route
from wamdiff_ros.simulation.scene import PropKind, Surface
from wamdiff_ros.simulation.scenery import Features, Roadworks, make_scene
from wamdiff_ros.types import Command

SEEDS = range(12)


def world(seed, features=None):
    rng = np.random.default_rng(seed)
    route = make_route(rng)
    if features is None:
        works = Roadworks(route.length_m - 45, route.length_m - 15, 1.5)
        features = Features((15.0,), ((25.0, 45.0),), (works,))
    return route, make_scene(route, rng, features)


@pytest.fixture(scope='module')
def worlds():
    return [world(seed) for seed in SEEDS]


def inside(strip, point):
    """Whether a point lies on a strip, by the winding number of its outline."""
    outline = np.concatenate([strip.left_map_m, strip.right_map_m[::-1]]) - point
    angle = np.arctan2(outline[:, 1], outline[:, 0])
    turns = np.diff(np.concatenate([angle, angle[:1]]))
    return abs(np.angle(np.exp(1j * turns)).sum()) > math.pi


def on(scene, surface, point):
    return any(inside(strip, point) for strip in scene.strips if strip.surface is surface)


def test_one_seed_gives_one_scene_bit_for_bit():
    (_, first), (_, second), (_, other) = (world(seed) for seed in (3, 3, 4))
    assert first.props == second.props
    assert first.signals == second.signals
    assert first.weather == second.weather
    for one, two in zip(first.strips, second.strips, strict=True):
        assert one.surface is two.surface
        assert one.left_map_m.tobytes() == two.left_map_m.tobytes()
        assert one.right_map_m.tobytes() == two.right_map_m.tobytes()
    assert first.props != other.props


def test_the_whole_way_is_asphalt_in_both_directions(worlds):
    for route, scene in worlds[:6]:
        for s in np.arange(-75, route.length_m + 95, 3.1):
            for lateral in (-route.lane_width_m / 2, 0.0, route.lane_width_m * 1.4):
                # Inside a right turn, the far lane's place is the middle of the box.
                assert on(scene, Surface.ASPHALT, route.pose(s, lateral)[:2]), (s, lateral)


def test_a_car_that_turns_along_the_route_stays_on_asphalt(worlds):
    for route, scene in worlds:
        for junction in route.junctions:
            for s in np.arange(junction.start_s - 3.3, junction.end_s + 2, 1.0):
                x, y, heading = route.pose(s)
                cos, sin = math.cos(heading), math.sin(heading)
                # Front corners, and the inner side between the axles.
                for a, b in ((3.7, 0.93), (3.7, -0.93), (1.4, 0.93), (1.4, -0.93)):
                    assert on(
                        scene, Surface.ASPHALT, (x + a * cos - b * sin, y + a * sin + b * cos)
                    )


def test_side_roads_are_asphalt(worlds):
    for route, scene in worlds:
        for junction in route.junctions:
            for arm in junction.side_arms():
                for incoming in (False, True):
                    for distance in np.arange(0.5, 60, 2.3):
                        point = route.arm_pose(junction, arm, distance, incoming)[:2]
                        assert on(scene, Surface.ASPHALT, point)


def test_the_side_without_an_arm_is_no_road(worlds):
    found = 0
    for route, scene in worlds:
        for junction in route.junctions:
            for arm in set(Command) - set(junction.arms):
                found += 1
                point = route.arm_pose(junction, arm, half_width_m(route) + 1, False)[:2]
                assert not on(scene, Surface.ASPHALT, point)
    assert found


def test_nothing_stands_near_the_middle_of_a_road_except_roadworks(worlds):
    for route, scene in worlds:
        s = np.arange(-80, route.length_m + 100, 1.0)
        middles = [route.pose(v, route.lane_width_m / 2)[:2] for v in s]
        for junction in route.junctions:
            for arm in junction.side_arms():
                heading = junction.arm_heading_rad(arm)
                x, y = junction.centre_map_m
                middles += [
                    (x + a * math.cos(heading), y + a * math.sin(heading))
                    for a in np.arange(0, ARM_LENGTH_M)
                ]
        middles = np.array(middles)
        for prop in scene.props:
            if prop.kind not in (PropKind.BUILDING, PropKind.TREE, PropKind.LAMP_POST):
                continue
            length, width, _ = prop.size_m if prop.kind is PropKind.BUILDING else (0.0, 0.0, 0.0)
            cos, sin = math.cos(prop.heading_rad), math.sin(prop.heading_rad)
            offset = (middles - prop.position_map_m) @ np.array([[cos, -sin], [sin, cos]])
            outside = np.maximum(np.abs(offset) - (length / 2, width / 2), 0)
            assert np.hypot(*outside.T).min() > CLEAR_M - 0.1


def test_buildings_do_not_overlap():
    site = Site(make_route(np.random.default_rng(0)))
    far = (5000.0, 5000.0)
    assert site.take(far, 0.3, 12, 10)
    assert not site.take((far[0] + 9, far[1]), 1.2, 12, 10)
    assert not site.take((far[0] + 0.5, far[1]), 0.3, 4, 4)
    assert site.take((far[0] + 30, far[1]), 1.2, 12, 10)


def test_a_waiting_driver_sees_the_traffic_light_ahead_over_the_own_lane(worlds):
    found = 0
    for route, scene in worlds:
        assert len(scene.signals) == sum(j.signal is not None for j in route.junctions)
        for junction in route.junctions:
            if junction.signal is None:
                continue
            found += 1
            signal = scene.signals[junction.signal]
            assert not on(scene, Surface.ASPHALT, signal.position_map_m)
            # The front of the vehicle stops at the line, its camera 2 m behind that.
            x, y, heading = route.pose(junction.stop_s - 2.0)
            left = signal.heading_rad - math.pi / 2
            dx = signal.position_map_m[0] + signal.arm_left_m * math.cos(left) - x
            dy = signal.position_map_m[1] + signal.arm_left_m * math.sin(left) - y
            ahead = dx * math.cos(heading) + dy * math.sin(heading)
            aside = dy * math.cos(heading) - dx * math.sin(heading)
            assert 12 < ahead < 26
            assert abs(aside) < 1.0
            assert math.cos(signal.heading_rad - heading) == pytest.approx(-1, abs=0.01)
    assert found


def test_crosswalks_lie_where_the_world_and_the_junctions_have_them(worlds):
    for route, scene in worlds:
        own = [j.crosswalk_s for j in route.junctions if j.crosswalk_s is not None]
        bars = [strip for strip in scene.strips if strip.surface is Surface.CROSSWALK]
        for s in (15.0, *own):
            middle = np.array(route.pose(s, route.lane_width_m / 2)[:2])
            near = [b for b in bars if np.hypot(*(b.left_map_m.mean(0) - middle)) < 5]
            assert len(near) >= 6


def test_stop_lines_lie_before_lights_and_not_where_the_ego_vehicle_has_the_right_of_way(worlds):
    for route, scene in worlds:
        for junction in route.junctions:
            line = on(scene, Surface.STOP_LINE, route.pose(junction.stop_s + 0.2)[:2])
            assert line == (junction.signal is not None)


def test_a_parking_bay_is_asphalt_with_the_sidewalk_beyond_it(worlds):
    for route, scene in worlds:
        junctions = [(j.start_s - 1, j.end_s + 1) for j in route.junctions]
        for s in (26.0, 35.0, 44.0):
            if any(low < s < high for low, high in junctions):
                continue
            assert on(scene, Surface.ASPHALT, route.pose(s, parking_lateral_m(route))[:2])
            lateral = sidewalk_lateral_m(route, -1, beside_bay=True)
            assert on(scene, Surface.SIDEWALK, route.pose(s, lateral)[:2])
            assert on(scene, Surface.SIDEWALK, route.pose(s, sidewalk_lateral_m(route, 1))[:2])


def test_roadworks_close_what_they_say_and_are_announced(worlds):
    for route, scene in worlds:
        start, end = route.length_m - 45, route.length_m - 15
        edge = -route.lane_width_m / 2
        assert on(scene, Surface.ROADWORKS, route.pose(start + 15, edge + 1.3)[:2])
        assert not on(scene, Surface.ROADWORKS, route.pose(start + 15, edge + 1.7)[:2])
        cones = [p for p in scene.props if p.kind is PropKind.CONE]
        assert len(cones) >= 8
        for prop in cones:
            s, lateral = route.project(*prop.position_map_m, near_s=start + 15)
            assert start - 0.5 < s < end + 0.5
            assert edge - SHOULDER_M < lateral < edge + 1.5
        barriers = [p for p in scene.props if p.kind is PropKind.BARRIER]
        assert len(barriers) == 2
        (sign,) = [p for p in scene.props if p.kind is PropKind.SIGN]
        s, lateral = route.project(*sign.position_map_m, near_s=start - 25)
        passed = [j.end_s + 1 for j in route.junctions if j.end_s < start]
        assert s == pytest.approx(max([start - 25, *passed]), abs=0.1)
        assert lateral < edge - SHOULDER_M
        assert not on(scene, Surface.ASPHALT, sign.position_map_m)


def test_without_features_there_are_no_roadworks():
    for seed in SEEDS:
        route, scene = world(seed, Features())
        kinds = {prop.kind for prop in scene.props}
        assert not kinds & {PropKind.CONE, PropKind.BARRIER, PropKind.SIGN}
        surfaces = {strip.surface for strip in scene.strips}
        assert Surface.ROADWORKS not in surfaces
        crosswalks = any(j.crosswalk_s is not None for j in route.junctions)
        assert (Surface.CROSSWALK in surfaces) == crosswalks


def test_weather_stays_in_its_ranges_and_varies(worlds):
    weathers = [scene.weather for _, scene in worlds]
    for weather in weathers:
        assert 0 < weather.daylight <= 1
        assert 0 <= weather.fog_per_m <= 0.02
        assert 0 <= weather.rain <= 1
        assert all(np.isfinite([v for v in dataclasses.astuple(weather)[:4]]))
    assert len({weather.daylight for weather in weathers}) == len(weathers)
    assert any(weather.rain == 0 for weather in weathers)


def test_a_scene_stays_small_enough_to_draw(worlds):
    for _, scene in worlds:
        assert len(scene.strips) < 400
        assert len(scene.props) < 400
        assert all(len(s.left_map_m) == len(s.right_map_m) >= 2 for s in scene.strips)
