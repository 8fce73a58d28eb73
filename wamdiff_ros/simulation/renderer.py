"""Pictures of a scene, as the cameras on the vehicle see it; offscreen, without an X server.

    with Renderer(world.scene, CAMERAS) as renderer:
        rgb = renderer.render(world.view(), 'front')

The same scene and view give the same bytes, whatever was rendered before, with the same backend
(and driver) on any day. Knows no traffic rules and no ROS. A process that has rendered must not
be forked; start workers with 'spawn'.
"""

import os
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal

import numpy as np

from ..pinhole import Pinhole
from . import bodies, props
from .meshes import Mesh, merge
from .scene import Scene, Surface, View
from .weather import VERTEX, Lighting, RainOnLens

try:
    # Mesa's rasteriser would start a thread per core; parallel workers are the better use.
    os.environ.setdefault('LP_NUM_THREADS', '1')
    from panda3d import core as panda
except ImportError as error:
    raise ImportError(
        'the renderer needs panda3d: pip install -r requirements/simulation.txt'
    ) from error

Backend = Literal['auto', 'egl', 'software']
PIPES = {
    'egl': ('eglGraphicsPipe', 'p3headlessgl'),  # a GPU, or Mesa's llvmpipe
    'software': ('TinyOffscreenGraphicsPipe', 'p3tinydisplay'),  # inside panda3d itself
}
NEAR_M, FAR_M = 0.3, 900.0
CELL_M = 64.0  # static things are culled by cells of this size
BODY_RANGE_M = 180.0
SKY_RADIUS_M = 100.0  # drawn before and behind everything: any radius will do


class RendererError(RuntimeError):
    """No picture can be made on this machine, or of this scene."""


class Renderer:
    """One scene, ready to be seen from any view."""

    def __init__(
        self, scene: Scene, cameras: Mapping[str, Pinhole], backend: Backend = 'auto'
    ) -> None:
        self.backend, self._screen = _open_screen(backend)
        self.driver: str = self._screen.driver
        self.scene = scene
        self._cameras = dict(cameras)
        self._light = Lighting.of(scene.weather)
        self._rain = RainOnLens(scene.weather)
        self._lamps = [
            {state: props.signal_lamps(signal, state) for state in props.LIT}
            for signal in scene.signals
        ]
        self._root = panda.NodePath('scene')
        self._shadows, self._moving = _MovingMesh('shadows'), _MovingMesh('moving')
        self._lenses = {name: _lens(camera) for name, camera in self._cameras.items()}
        self._eye = self._root.attach_new_node(panda.Camera('eye'))
        self._view: View | None = None
        self._build()

    def __enter__(self) -> 'Renderer':
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the scene's meshes; the graphics engine stays for the next renderer."""
        self._screen.release(self._eye)
        self._root.remove_node()

    def render(self, view: View, camera: str) -> np.ndarray:
        """Return what a camera sees: RGB, uint8 [height, width, 3], top row first."""
        if camera not in self._cameras:
            raise RendererError(f'no camera {camera!r}; there are {sorted(self._cameras)}')
        if view is not self._view:
            self._move(view)
            self._view = view
        pinhole = self._cameras[camera]
        rotation, position = camera_pose(view, pinhole)
        self._eye.node().set_lens(self._lenses[camera])
        self._eye.set_mat(_matrix(rotation, position))
        self._sky.set_pos(*position)
        rgb = self._screen.shoot(self._eye, pinhole.width, pinhole.height)
        return self._rain.apply(rgb, view.frame_number, list(self._cameras).index(camera))

    def _build(self) -> None:
        scene, light = self.scene, self._light
        self._sky = self._root.attach_new_node(_geom_node('sky', [_sky(light)]))
        # The ground is drawn first, layer over layer without depth: nothing hides below it,
        # and layers at one height cannot flicker.
        layers = [('ground', props.ground(scene))]
        layers += [(kind.value, props.surface(scene, kind)) for kind in Surface]
        flat = [self._sky]
        for name, mesh in layers:
            flat.append(self._root.attach_new_node(_static_node(name, mesh, light)))
        flat.append(self._root.attach_new_node(self._shadows.node))
        for order, node in enumerate(flat):
            node.set_bin('background', order)
            node.set_depth_test(False)
            node.set_depth_write(False)
            node.set_two_sided(True)
        standing = [props.prop(item, scene.weather.daylight) for item in scene.props]
        standing += [props.signal_post(signal) for signal in scene.signals]
        self._root.attach_new_node(_static_node('standing', merge(standing), light))
        self._root.attach_new_node(self._moving.node)
        fog = panda.Fog('air')
        fog.set_color(*(float(value) / 255 for value in light.horizon))
        fog.set_exp_density(light.fog_per_m)
        self._root.set_fog(fog)
        self._sky.set_fog_off()

    def _move(self, view: View) -> None:
        if len(view.lights) != len(self._lamps):
            raise RendererError(
                f'the view has {len(view.lights)} lights, the scene {len(self._lamps)} signals'
            )
        x, y = view.position_map_m
        near = [
            item
            for item in view.bodies
            if np.hypot(item.position_map_m[0] - x, item.position_map_m[1] - y) < BODY_RANGE_M
        ]
        meshes = [lamps[state] for lamps, state in zip(self._lamps, view.lights, strict=True)]
        meshes += [bodies.body(item) for item in near]
        self._moving.show(self._light.vertices(merge(meshes)))
        self._shadows.show(self._light.vertices(merge(bodies.shadow(item) for item in near)))


def camera_pose(view: View, camera: Pinhole) -> tuple[np.ndarray, np.ndarray]:
    """Return a camera's optical axes [3, 3] (columns) and its position [3] in map.

    The body turns about base_link: by its heading, then its pitch, then its roll.
    """
    (ch, sh), (cp, sp), (cr, sr) = (
        (np.cos(angle), np.sin(angle))
        for angle in (view.heading_rad, -view.pitch_rad, view.roll_rad)
    )
    heading = np.array([[ch, -sh, 0], [sh, ch, 0], [0, 0, 1]])
    pitch = np.array([[cp, 0, sp], [0, 1, 0], [-sp, 0, cp]])
    roll = np.array([[1, 0, 0], [0, cr, -sr], [0, sr, cr]])
    body = heading @ pitch @ roll
    position = np.array([*view.position_map_m, 0.0]) + body @ camera.position_base_m
    return body @ camera.rotation_base, position


def _matrix(rotation: np.ndarray, position: np.ndarray) -> Any:
    """Return panda's camera matrix (rows: right, forward, up, position)."""
    right, down, forward = rotation.T
    rows = [(*right, 0.0), (*forward, 0.0), (*(-down), 0.0), (*position, 1.0)]
    return panda.LMatrix4(*(float(value) for row in rows for value in row))


def _lens(camera: Pinhole) -> Any:
    """Return panda's lens; pixel centres lie on whole numbers, as in Pinhole."""
    aspect = camera.fx / camera.fy
    lens = panda.PerspectiveLens()
    lens.set_film_size(camera.width, camera.height * aspect)
    lens.set_focal_length(camera.fx)
    lens.set_film_offset(
        (camera.width - 1) / 2 - camera.cx, (camera.cy - (camera.height - 1) / 2) * aspect
    )
    lens.set_near_far(NEAR_M, FAR_M)
    return lens


def _sky(light: Lighting) -> Any:
    """Return a dome of coloured bands around the eye."""
    elevations = np.radians([-4.0, 0.0, 2.0, 5.0, 10.0, 18.0, 30.0, 50.0, 90.0])
    azimuths = np.linspace(0, 2 * np.pi, 25)
    elevation, azimuth = np.meshgrid(elevations, azimuths, indexing='ij')
    directions = np.stack(
        [np.cos(elevation) * np.cos(azimuth), np.cos(elevation) * np.sin(azimuth),
         np.sin(elevation)], axis=-1,
    )  # fmt: skip
    colours = light.sky(elevation, azimuth)

    def corners(values: np.ndarray) -> np.ndarray:
        a, b, c, d = values[:-1, :-1], values[:-1, 1:], values[1:, 1:], values[1:, :-1]
        return np.stack([a, b, c, a, c, d], axis=2).reshape(-1, 3)

    vertices = np.empty(len(corners(directions)), VERTEX)
    vertices['position'] = corners(directions) * SKY_RADIUS_M
    vertices['rgba'][:, :3] = np.rint(np.clip(corners(colours), 0, 255))
    vertices['rgba'][:, 3] = 255
    return _geom(vertices)


def _static_node(name: str, mesh: Mesh, light: Lighting) -> Any:
    """Return a node with one geom per cell of the map, so that what lies behind is culled."""
    cells = np.floor(mesh.corners_m[:, :, :2].mean(axis=1) / CELL_M).astype(np.int64)
    vertices = light.vertices(mesh).reshape(-1, 3)
    if not len(cells):
        return panda.GeomNode(name)
    keys = cells[:, 0] * 100_003 + cells[:, 1]
    order = np.argsort(keys, kind='stable')
    starts = np.flatnonzero(np.diff(keys[order])) + 1
    parts = np.split(vertices[order], starts)
    return _geom_node(name, [_geom(part.reshape(-1)) for part in parts])


def _geom_node(name: str, geoms: list[Any]) -> Any:
    node = panda.GeomNode(name)
    for geom in geoms:
        node.add_geom(geom, _vertex_colours())
    return node


def _geom(vertices: np.ndarray) -> Any:
    data = panda.GeomVertexData('mesh', panda.GeomVertexFormat.get_v3c4(), panda.Geom.UH_static)
    data.unclean_set_num_rows(len(vertices))
    data.modify_array_handle(0).copy_data_from(vertices.view(np.uint8))
    triangles = panda.GeomTriangles(panda.Geom.UH_static)
    triangles.add_next_vertices(len(vertices))
    geom = panda.Geom(data)
    geom.add_primitive(triangles)
    return geom


@cache
def _vertex_colours() -> Any:
    return panda.RenderState.make(panda.ColorAttrib.make_vertex())


class _MovingMesh:
    """A node whose triangles are new in every view."""

    def __init__(self, name: str) -> None:
        self.node = panda.GeomNode(name)

    def show(self, vertices: np.ndarray) -> None:
        self.node.remove_all_geoms()
        if len(vertices):
            self.node.add_geom(_geom(vertices), _vertex_colours())


class _Screen:
    """The process's graphics: one buffer per picture size, lent to one camera at a time."""

    def __init__(self, pipe: Any) -> None:
        self._pipe = pipe
        self._engine = panda.GraphicsEngine.get_global_ptr()
        self._buffers: dict[tuple[int, int], tuple[Any, Any, Any]] = {}
        first, *_ = self._buffer(64, 64)
        self.driver = str(first.gsg.driver_renderer).strip() or 'panda3d tinydisplay'

    def shoot(self, eye: Any, width: int, height: int) -> np.ndarray:
        buffer, texture, region = self._buffer(width, height)
        region.set_camera(eye)
        buffer.set_active(True)
        self._engine.render_frame()
        buffer.set_active(False)
        image = np.frombuffer(texture.get_ram_image(), np.uint8).reshape(height, width, -1)
        return np.ascontiguousarray(image[::-1, :, 2::-1])

    def release(self, eye: Any) -> None:
        for _, _, region in self._buffers.values():
            if region.camera == eye:
                region.set_camera(panda.NodePath())

    def _buffer(self, width: int, height: int) -> tuple[Any, Any, Any]:
        if (width, height) not in self._buffers:
            self._buffers[width, height] = self._make_buffer(width, height)
        return self._buffers[width, height]

    def _make_buffer(self, width: int, height: int) -> tuple[Any, Any, Any]:
        wanted = panda.FrameBufferProperties()
        wanted.set_rgba_bits(8, 8, 8, 0)
        wanted.set_depth_bits(24)
        buffer = self._engine.make_output(
            self._pipe, f'{width}x{height}', 0, wanted, panda.WindowProperties.size(width, height),
            panda.GraphicsPipe.BF_refuse_window,
        )  # fmt: skip
        if buffer is None:
            raise RendererError(f'no buffer of {width} x {height}')
        texture = panda.Texture()
        buffer.add_render_texture(
            texture, panda.GraphicsOutput.RTM_copy_ram, panda.GraphicsOutput.RTP_color
        )
        buffer.set_clear_color((0, 0, 0, 1))
        buffer.set_active(False)
        return buffer, texture, buffer.make_display_region()


def _open_screen(backend: Backend) -> tuple[str, _Screen]:
    """Return the backend that runs, and its screen; `auto` takes the first that works."""
    if backend != 'auto' and backend not in PIPES:
        raise RendererError(f'backend {backend!r} is none of auto, {", ".join(PIPES)}')
    reasons = []
    for name in PIPES if backend == 'auto' else (backend,):
        try:
            return name, _screen(name)
        except RendererError as error:
            reasons.append(f'{name}: {error}')
    raise RendererError(
        'cannot render offscreen here: ' + '; '.join(reasons) + '. For egl install '
        "Mesa or the GPU's driver (Debian, Ubuntu: apt install libegl1 libgl1-mesa-dri); "
        'software comes with panda3d'
    )


@cache
def _screen(name: str) -> _Screen:
    panda.load_prc_file_data(
        'wamdiff', 'window-type offscreen\naudio-library-name null\nsync-video false\n'
        'notify-level-egldisplay error\n',
    )  # fmt: skip
    kind, library = PIPES[name]
    selection = panda.GraphicsPipeSelection.get_global_ptr()
    pipe = selection.make_pipe(kind, library)
    if pipe is None or not pipe.is_valid():
        raise RendererError(f'{library} finds no usable graphics on this machine')
    return _Screen(pipe)

