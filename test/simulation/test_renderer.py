import hashlib
import os
import resource
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest

from wamdiff_ros.pinhole import OPTICAL_AXES_BASE, Pinhole

pytest.importorskip('panda3d', reason='panda3d is not installed (requirements/simulation.txt)')

from wamdiff_ros.simulation import screen
from wamdiff_ros.simulation.cameras import CAMERAS, mounted
from wamdiff_ros.simulation.renderer import Renderer
from wamdiff_ros.simulation.scene import (
    VESTS,
    Body,
    BodyKind,
    Light,
    Prop,
    PropKind,
    Scene,
    Signal,
    Strip,
    Surface,
    View,
    Weather,
)
from wamdiff_ros.simulation.traffic import SIZES_M

ROOT = Path(__file__).parents[2]
DAY = Weather(1.0, 0.7, 0.0, 0.0, (104, 128, 70), 7)
DUSK = Weather(0.0, 0.7, 0.0, 0.0, (104, 128, 70), 7)
RAIN = Weather(0.6, 0.7, 0.0, 1.0, (104, 128, 70), 7)
FOG = Weather(0.8, 0.7, 0.02, 0.0, (104, 128, 70), 7)


def works(backend):
    try:
        screen.open_screen(backend)
    except screen.GraphicsError:
        return False
    return True


@pytest.fixture(params=['egl', 'software'])
def backend(request):
    if not works(request.param):
        pytest.skip(f'this machine has no graphics for {request.param}')
    return request.param


def rectangle(surface, x, y):
    (x0, x1), (y0, y1) = x, y
    along = np.array([x0, x1], float)
    return Strip(surface, np.c_[along, [y1, y1]], np.c_[along, [y0, y0]])


def street(weather=DAY):
    strips = (
        rectangle(Surface.SIDEWALK, (-20, 150), (-5, 9)),
        rectangle(Surface.ASPHALT, (-20, 150), (-2, 5.5)),
        rectangle(Surface.EDGE_LINE, (-20, 150), (-1.7, -1.55)),
        rectangle(Surface.CENTRE_LINE, (-20, 150), (1.68, 1.82)),
        rectangle(Surface.CROSSWALK, (20, 23), (-1, 0)),
    )
    kinds = list(PropKind)
    props = tuple(
        Prop(kinds[i % len(kinds)], (8.0 + 6 * i, -9.0), 0.3 * i, (3.0, 2.0, 5.0), (150, 110, 90))
        for i in range(12)
    )
    return Scene(strips, props, (Signal((40.0, -3.0), np.pi, arm_left_m=3.0),), weather)


def view(bodies=(), light=Light.RED, frame_number=0, x=0.0, y=0.0, **pose):
    pose = {'heading_rad': 0.0, 'pitch_rad': 0.0, 'roll_rad': 0.0, **pose}
    return View(frame_number, (x, y), bodies=tuple(bodies), lights=(light,), **pose)


def car(x, braking=False, y=0.0):
    return Body(BodyKind.CAR, (x, y), 0.0, (4.5, 1.85, 1.5), (110, 112, 120), braking)


TRAFFIC = (
    car(14, True),
    car(30, y=3.6),
    Body(BodyKind.TRUCK, (50, 3.6), np.pi, (8.0, 2.5, 3.2), (40, 120, 90)),
    Body(BodyKind.PEDESTRIAN, (10, -3.5), 1.0, (0.5, 0.5, 1.75), (240, 60, 60), stride=0.3),
    Body(BodyKind.CYCLIST, (11, 3.0), np.pi, (1.8, 0.6, 1.75), (30, 160, 200), stride=0.6),
)


def shrunk(rgb):
    return cv2.resize(rgb, (256, 128), interpolation=cv2.INTER_AREA).astype(int)


def to_base(points_map_m, seen):
    """Map to base, written out: undo the position, then heading, pitch and roll."""
    x, y, z = (np.asarray(points_map_m, float) - [*seen.position_map_m, 0.0]).T
    c, s = np.cos(seen.heading_rad), np.sin(seen.heading_rad)
    x, y = c * x + s * y, -s * x + c * y
    c, s = np.cos(seen.pitch_rad), np.sin(seen.pitch_rad)
    x, z = c * x + s * z, -s * x + c * z  # the nose is up: what is level lies below it
    c, s = np.cos(seen.roll_rad), np.sin(seen.roll_rad)
    y, z = c * y + s * z, -s * y + c * z  # the left side is up
    return np.stack([x, y, z], axis=1)


# Ground rectangles of the street that are white, and views that show them.
POSES = {
    'straight': {},
    'turned': {'x': 3.0, 'y': -0.8, 'heading_rad': 0.2},
    'nose_up': {'pitch_rad': 0.05},
    'left_up': {'roll_rad': 0.08},
    'all': {'x': 5.0, 'y': 1.0, 'heading_rad': -0.1, 'pitch_rad': -0.03, 'roll_rad': -0.05},
}
ODD = Pinhole(
    400, 300, 310.0, 280.0, 180.0, 171.0, OPTICAL_AXES_BASE, np.array([1.2, 0.3, 1.4])
)  # principal point off the centre, pixels not square


@pytest.mark.parametrize(
    'camera', [CAMERAS['front'], ODD, mounted(10.0)], ids=['front', 'odd', 'yaw']
)
@pytest.mark.parametrize('pose', list(POSES))
def test_points_of_the_ground_appear_where_the_pinhole_projects_them(backend, camera, pose):
    seen = view(**POSES[pose])
    road = rectangle(Surface.ASPHALT, (-20, 200), (-30, 30))
    bar = rectangle(Surface.CROSSWALK, (10, 13), (-1, 0.5))
    pictures = []
    for strips in ((road,), (road, bar)):
        scene = Scene(strips, (), (Signal((-40.0, 0.0), 0.0),), DAY)
        with Renderer(scene, {'it': camera}, backend) as renderer:
            pictures.append(renderer.render(seen, 'it').astype(int))
    painted = (pictures[1] - pictures[0]).max(axis=-1) > 40
    assert painted.sum() > 200
    corners = [(10, -1, 0), (13, -1, 0), (13, 0.5, 0), (10, 0.5, 0)]
    polygon, depth = camera.project(to_base(corners, seen))
    assert (depth > 0).all()
    contour = polygon.astype(np.float32).reshape(-1, 1, 2)
    v, u = np.mgrid[: camera.height, : camera.width]
    inside_px = np.array(
        [
            cv2.pointPolygonTest(contour, (float(a), float(b)), True)
            for a, b in zip(u.ravel(), v.ravel(), strict=True)
        ]
    ).reshape(u.shape)
    assert inside_px[painted].min() > -1.0
    assert painted[inside_px > 1.0].all()


@pytest.mark.parametrize('pose', list(POSES))
def test_a_lamp_above_the_ground_appears_where_the_pinhole_projects_it(backend, pose):
    seen = view(**POSES[pose])
    signal = Signal((40.0, -3.0), np.pi, lamp_height_m=4.2, arm_left_m=3.0)
    scene = Scene((), (), (signal,), DAY)
    with Renderer(scene, CAMERAS, backend) as renderer:
        pictures = [
            renderer.render(View(0, seen.position_map_m, seen.heading_rad, seen.pitch_rad,
                                 seen.roll_rad, (), (light,)), 'front').astype(int)
            for light in (Light.AMBER, Light.RED)
        ]  # fmt: skip
    rows, columns = np.nonzero(pictures[0][..., 1] - pictures[1][..., 1] > 90)
    # The middle lamp: arm_left_m to the left of the mast for one who drives along x.
    expected, _ = CAMERAS['front'].project(to_base([(39.7, 0.0, 4.2)], seen))
    assert abs(columns.mean() - expected[0, 0]) < 1
    assert abs(rows.mean() - expected[0, 1]) < 1


def test_top_row_comes_first_and_red_before_blue(backend):
    with Renderer(street(), CAMERAS, backend) as renderer:
        rgb = renderer.render(view(), 'front')
    assert rgb.shape == (256, 512, 3)
    assert rgb.dtype == np.uint8
    red, _, blue = rgb[0].mean(axis=0)
    assert blue > red + 40  # a blue sky


@pytest.mark.parametrize('weather', [DAY, RAIN, FOG], ids=['day', 'rain', 'fog'])
def test_the_same_view_gives_the_same_bytes_whatever_was_rendered_before(backend, weather):
    with Renderer(street(weather), CAMERAS, backend) as renderer:
        first = renderer.render(view(TRAFFIC), 'front')
        other = renderer.render(view((), Light.GREEN, 1, x=9.0), 'left')
        again = renderer.render(view(TRAFFIC), 'front')
    with Renderer(street(weather), CAMERAS, backend) as renderer:
        renderer.render(view((), Light.GREEN, 1, x=4.0), 'right')
        anew = renderer.render(view(TRAFFIC), 'front')
    assert (first == again).all()
    assert (first == anew).all()
    assert (first != other).any()


def test_a_new_process_gives_the_same_bytes(backend):
    with Renderer(street(RAIN), CAMERAS, backend) as renderer:
        mine = renderer.render(view(TRAFFIC), 'front')
    program = (
        'import hashlib, sys; sys.path.insert(0, "test/simulation"); import test_renderer as t\n'
        f'with t.Renderer(t.street(t.RAIN), t.CAMERAS, "{backend}") as renderer:\n'
        '    picture = renderer.render(t.view(t.TRAFFIC), "front")\n'
        'print(hashlib.sha256(picture.tobytes()).hexdigest())\n'
    )
    theirs = subprocess.run(
        [sys.executable, '-c', program], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()[-1]
    assert theirs == hashlib.sha256(mine.tobytes()).hexdigest()


def test_rain_changes_from_frame_to_frame_and_a_dry_picture_does_not(backend):
    for weather, changes in ((RAIN, True), (DAY, False)):
        with Renderer(street(weather), CAMERAS, backend) as renderer:
            one, two = (renderer.render(view(frame_number=n), 'front') for n in (1, 2))
        assert (one != two).any() == changes


@pytest.mark.parametrize('weather', [DAY, DUSK, RAIN, FOG], ids=['day', 'dusk', 'rain', 'fog'])
def test_lights_can_be_told_apart_at_25_m_in_a_small_picture(backend, weather):
    scene = street(weather)
    camera = CAMERAS['front']
    x = 40.0 - camera.position_base_m[0] - 25.0
    seen = {}
    with Renderer(scene, CAMERAS, backend) as renderer:
        for light in Light:
            picture = shrunk(renderer.render(view(light=light, x=x), 'front'))
            (u, v), _ = (a[0] for a in camera.project(to_base([(39.7, 0, 4.2)], view(x=x))))
            column, row = int(u / 2), int(v / 2)
            lamps = picture[row - 6 : row + 8, column - 3 : column + 5].reshape(-1, 3)
            seen[light] = lamps[np.argmax(lamps.max(axis=1))]
    red, amber, green = (seen[light] for light in Light)
    assert red[0] > red[1] + 80
    assert green[1] > green[0] + 80
    assert amber[0] > amber[2] + 80
    assert amber[1] > amber[2] + 50


@pytest.mark.parametrize('weather', [DAY, DUSK, RAIN], ids=['day', 'dusk', 'rain'])
def test_a_braking_car_shows_at_40_m_in_a_small_picture(backend, weather):
    def redness(braking):
        rgb = shrunk(renderer.render(view([car(44.0, braking)]), 'front'))
        road = rgb[55:75, 112:144]
        return (road[..., 0] - road[..., 1:].max(axis=-1)).max()

    scene = Scene(street().strips, (), (Signal((-40.0, 0.0), 0.0),), weather)
    with Renderer(scene, CAMERAS, backend) as renderer:
        assert redness(True) > redness(False) + 60


@pytest.mark.parametrize('kind', [BodyKind.PEDESTRIAN, BodyKind.CYCLIST])
@pytest.mark.parametrize('weather', [DAY, DUSK, RAIN], ids=['day', 'dusk', 'rain'])
def test_who_crosses_shows_at_30_m_in_a_small_picture(backend, weather, kind):
    def vividness(colour):
        body = Body(kind, (33.0, -3.0), np.pi / 2, SIZES_M[kind], colour)
        rgb = shrunk(renderer.render(view([body]), 'front'))
        return (rgb[..., :2].min(axis=-1) - rgb[..., 2]).max()

    scene = Scene(street().strips, (), (Signal((-40.0, 0.0), 0.0),), weather)
    with Renderer(scene, CAMERAS, backend) as renderer:
        assert min(vividness(vest) for vest in VESTS) > 80


@pytest.mark.parametrize('kind', list(BodyKind))
def test_road_users_hide_what_is_behind_them_and_nothing_in_front(backend, kind):
    sizes = {BodyKind.TRUCK: (8.0, 2.5, 3.2), BodyKind.CAR: (4.5, 1.85, 1.5)}
    size = sizes.get(kind, (0.6, 0.6, 1.75))
    near, far = (Body(kind, (x, 0.0), 0.0, size, (250, 60, 200)) for x in (14.0, 30.0))
    with Renderer(street(), CAMERAS, backend) as renderer:
        empty, alone, both = (
            renderer.render(view(bodies), 'front') for bodies in ([], [near], [far, near])
        )
    covered = (alone != empty).any(axis=-1)
    assert covered.sum() > 60
    assert (both[covered] == alone[covered]).mean() > 0.97  # a gap between legs is no cover


def test_fog_hides_the_distance_and_spares_what_is_near(backend):
    def contrast(weather, distance_m):
        with Renderer(street(weather), CAMERAS, backend) as renderer:
            empty, full = (
                renderer.render(view(bodies), 'front').astype(int)
                for bodies in ([], [car(distance_m)])
            )
        return np.abs(full - empty).max()

    assert contrast(FOG, 12.0) > 0.5 * contrast(DAY, 12.0)
    assert 0 < contrast(FOG, 90.0) < 0.35 * contrast(DAY, 90.0)


@pytest.mark.parametrize('weather', [DAY, DUSK, FOG], ids=['day', 'dusk', 'fog'])
def test_both_backends_show_the_same(weather):
    if not works('egl'):
        pytest.skip('this machine has no graphics for egl')
    pictures = []
    for backend in ('egl', 'software'):
        with Renderer(street(weather), CAMERAS, backend) as renderer:
            pictures.append(shrunk(renderer.render(view(TRAFFIC), 'front')))
    assert np.abs(pictures[0] - pictures[1]).mean() < 4


def test_hundreds_of_scenes_one_after_the_other_leave_nothing_behind(backend):
    def worlds(count):
        for _ in range(count):
            with Renderer(scene, CAMERAS, backend) as renderer:
                renderer.render(view(TRAFFIC), 'front')
        pages = int(Path('/proc/self/statm').read_text().split()[1])
        return pages * resource.getpagesize() / 2**20

    scene = street()
    before = worlds(40)
    assert worlds(200) - before < 12  # MiB; one scene's vertices are about a third of one


def test_an_unknown_camera_is_named_with_those_that_exist():
    with (
        Renderer(street(), CAMERAS, 'software') as renderer,
        pytest.raises(ValueError, match=r"'rear'.*front.*left.*right"),
    ):
        renderer.render(view(), 'rear')


def test_a_view_of_another_scene_is_refused():
    seen = View(0, (0.0, 0.0), 0.0, 0.0, 0.0, (), (Light.RED, Light.RED))
    with (
        Renderer(street(), CAMERAS, 'software') as renderer,
        pytest.raises(ValueError, match='2 lights, its scene 1'),
    ):
        renderer.render(seen, 'front')


def test_an_unknown_backend_is_named_with_those_that_exist():
    with pytest.raises(screen.GraphicsError, match=r"'vulkan'.*egl.*software"):
        Renderer(street(), CAMERAS, 'vulkan')


def test_the_software_backend_takes_over_where_egl_is_missing_and_says_so():
    program = (
        'from wamdiff_ros.simulation.screen import open_screen\n'
        'screen = open_screen("auto")\nprint(screen.backend, screen.driver)\n'
        'try:\n    open_screen("egl")\nexcept Exception as error:\n    print(error)\n'
    )
    environment = {**os.environ, '__EGL_VENDOR_LIBRARY_FILENAMES': '/nonexistent.json'}
    lines = subprocess.run(
        [sys.executable, '-c', program],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    assert "software panda3d's tinydisplay" in lines
    assert 'apt install' in lines[-1]


def test_without_any_backend_the_error_gives_every_reason(monkeypatch):
    monkeypatch.setattr(
        screen, 'PIPES', {'egl': ('noPipe', 'p3nothing'), 'software': ('noPipe', 'p3nothing')}
    )
    monkeypatch.setattr(screen, '_screen', screen.Screen)
    with pytest.raises(screen.GraphicsError, match=r'egl: p3nothing.*software: p3nothing.*apt'):
        screen.open_screen('auto')
