"""The graphics library: offscreen buffers and triangles in a scene graph. No X server, no window.

The only module that knows panda3d. A process that has drawn must not be forked; start workers
with 'spawn'.
"""

import os
from functools import cache
from typing import Any, Literal

import cv2
import numpy as np

from ..pinhole import Pinhole
from .weather import Lighting

try:
    # Mesa would start a thread per core; several processes side by side use the cores better.
    os.environ.setdefault('LP_NUM_THREADS', '1')
    from panda3d import core as panda
except ImportError as error:
    raise ImportError(
        'rendering needs panda3d: pip install -r requirements/simulation.txt'
    ) from error

Backend = Literal['auto', 'egl', 'software']
PIPES = {
    'egl': ('eglGraphicsPipe', 'p3headlessgl'),  # a GPU, or Mesa on the CPU
    'software': ('TinyOffscreenGraphicsPipe', 'p3tinydisplay'),  # inside panda3d itself
}
SETTINGS = """
window-type offscreen
audio-library-name null
sync-video false
notify-level-egldisplay error
"""
NEAR_M, FAR_M = 0.6, 900.0  # the bonnet alone keeps others further away than that
CELL_M = 64.0  # triangles are culled by cells of the map of this size


class GraphicsError(RuntimeError):
    """No picture can be made on this machine."""


class Layer:
    """Triangles in the scene graph, in parts that are culled one by one."""

    def __init__(self, name: str, root: Any, parts: list[np.ndarray]) -> None:
        self._geoms = panda.GeomNode(name)
        self.path = root.attach_new_node(self._geoms)
        self.show(parts)

    def show(self, parts: list[np.ndarray]) -> None:
        """Replace the triangles: VERTEX [3 T] for each part."""
        self._clear = [part for part in parts if len(part)]
        self._geoms.remove_all_geoms()
        for part in self._clear:
            self._geoms.add_geom(_geom(part), _vertex_colours())

    def lie_flat(self, order: int) -> None:
        """Draw this before all that stands, in this order, without depth.

        For the sky and the ground: nothing hides below it, and layers at one height would flicker.
        """
        self.path.set_bin('background', order)
        self.path.set_depth_test(False)
        self.path.set_depth_write(False)
        self.path.set_two_sided(True)

    def veil(self, light: Lighting, forward: np.ndarray, position: np.ndarray) -> None:
        """Mix fog into the colours of the corners, as seen from here."""
        from_eye = position - np.array(self.path.get_pos(), float)
        for i, clear in enumerate(self._clear):
            depth_m = clear['position'] @ forward.astype(np.float32)
            depth_m -= np.float32(from_eye @ forward)
            if depth_m.max() < NEAR_M:
                continue
            data = self._geoms.modify_geom(i).modify_vertex_data()
            veiled = light.veiled(clear, depth_m)
            data.modify_array_handle(0).copy_data_from(veiled.view(np.uint8))


def in_cells(vertices: np.ndarray) -> list[np.ndarray]:
    """Return triangles, VERTEX [3 T], sorted into cells of the map."""
    corners = vertices.reshape(-1, 3)
    if not len(corners):
        return []
    cells = np.floor(corners['position'][..., :2].mean(axis=1) / CELL_M).astype(np.int64)
    keys = cells[:, 0] * 100_003 + cells[:, 1]
    order = np.argsort(keys, kind='stable')
    starts = np.flatnonzero(np.diff(keys[order])) + 1
    return [part.reshape(-1) for part in np.split(corners[order], starts)]


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


class Eye:
    """A camera in the scene graph, for one Pinhole after the other."""

    def __init__(self, root: Any) -> None:
        self.path = root.attach_new_node(panda.Camera('eye'))

    def look(self, camera: Pinhole, axes: np.ndarray, position: np.ndarray) -> None:
        """Look through a camera whose optical axes [3, 3] and position [3] in map are given."""
        right, down, forward = axes.T
        rows = [(*right, 0.0), (*forward, 0.0), (*(-down), 0.0), (*position, 1.0)]
        self.path.set_mat(panda.LMatrix4(*(float(value) for row in rows for value in row)))
        self.path.node().set_lens(_lens(camera))


def _lens(camera: Pinhole) -> Any:
    """Return panda's lens; pixel centres lie on whole numbers, as in Pinhole."""
    square = camera.fx / camera.fy
    lens = panda.PerspectiveLens()
    lens.set_film_size(camera.width, camera.height * square)
    lens.set_focal_length(camera.fx)
    lens.set_film_offset(
        (camera.width - 1) / 2 - camera.cx, (camera.cy - (camera.height - 1) / 2) * square
    )
    lens.set_near_far(NEAR_M, FAR_M)
    return lens


def scene_graph(fog_colour: np.ndarray | None = None, fog_per_m: float = 0.0) -> Any:
    """Return the root of an empty scene graph, with fog of a colour 0 … 255 if one is given."""
    root = panda.NodePath('scene')
    if fog_colour is not None:
        fog = panda.Fog('air')
        fog.set_color(*(float(value) / 255 for value in fog_colour))
        fog.set_exp_density(fog_per_m)
        root.set_fog(fog)
    return root


class Screen:
    """The process's graphics: one buffer per picture size, lent to one eye at a time."""

    def __init__(self, backend: str) -> None:
        self.backend = backend
        panda.load_prc_file_data('wamdiff', SETTINGS)
        kind, library = PIPES[backend]
        self._pipe = panda.GraphicsPipeSelection.get_global_ptr().make_pipe(kind, library)
        if self._pipe is None or not self._pipe.is_valid():
            raise GraphicsError(f'{library} finds no graphics that it can use')
        self._engine = panda.GraphicsEngine.get_global_ptr()
        self._buffers: dict[tuple[int, int], tuple[Any, Any, Any]] = {}
        buffer, _, _ = self._buffer(64, 64)
        self.driver = str(buffer.gsg.driver_renderer).strip() or "panda3d's tinydisplay"

    def shoot(self, eye: Eye, width: int, height: int) -> np.ndarray:
        """Return what the eye sees: RGB, uint8 [height, width, 3], top row first."""
        buffer, texture, region = self._buffer(width, height)
        region.set_camera(eye.path)
        buffer.set_active(True)
        self._engine.render_frame()
        buffer.set_active(False)
        region.set_camera(panda.NodePath())  # or the scene would outlive its renderer
        bgr = np.frombuffer(texture.get_ram_image(), np.uint8).reshape(height, width, -1)
        return cv2.cvtColor(cv2.flip(bgr, 0), cv2.COLOR_BGR2RGB)  # panda's first row is the last

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
            raise GraphicsError(f'{self.backend} makes no buffer of {width} x {height}')
        texture = panda.Texture()
        buffer.add_render_texture(
            texture, panda.GraphicsOutput.RTM_copy_ram, panda.GraphicsOutput.RTP_color
        )
        buffer.set_active(False)
        return buffer, texture, buffer.make_display_region()


def open_screen(backend: Backend) -> Screen:
    """Return the process's screen of a backend; 'auto' takes the first that works.

    Raise GraphicsError with every reason when none does.
    """
    if backend != 'auto' and backend not in PIPES:
        raise GraphicsError(f'backend {backend!r} is none of auto, {", ".join(PIPES)}')
    reasons = []
    for name in PIPES if backend == 'auto' else (backend,):
        try:
            return _screen(name)
        except GraphicsError as error:
            reasons.append(f'{name}: {error}')
    raise GraphicsError(
        'cannot render offscreen on this machine: ' + '; '.join(reasons) + '. egl needs Mesa or '
        "a GPU's driver (Debian, Ubuntu: apt install libegl1 libgl1-mesa-dri); software needs "
        'nothing but panda3d'
    )


_screen = cache(Screen)
