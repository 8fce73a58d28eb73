"""Pictures of a scene, as the cameras on the vehicle see it.

    with Renderer(world.scene, CAMERAS) as renderer:
        rgb = renderer.render(world.view(), 'front')

The same scene and view give the same bytes, whatever was rendered before, as long as backend and
driver are the same. Knows no traffic rules and no ROS.
"""

from collections.abc import Mapping

import numpy as np
from scipy.spatial.transform import Rotation

from ..pinhole import Pinhole
from . import bodies, props
from .meshes import Mesh, merge
from .scene import Scene, Surface, View
from .screen import Backend, Eye, Layer, in_cells, open_screen, scene_graph
from .weather import Lighting, RainOnLens

BODY_RANGE_M = 200.0  # nearer than this, road users are drawn


class Renderer:
    """One scene, ready to be seen from any view; many may follow one another in a process."""

    def __init__(
        self, scene: Scene, cameras: Mapping[str, Pinhole], backend: Backend = 'auto'
    ) -> None:
        self.scene = scene
        self._cameras = dict(cameras)
        self._screen = open_screen(backend)
        self.backend = self._screen.backend  # what runs: 'egl' or 'software'
        self.driver = self._screen.driver  # and on what
        self._light = light = Lighting.of(scene.weather)
        self._rain = RainOnLens(scene.weather)
        self._lamps = [
            {state: props.signal_lamps(signal, state) for state in props.LIT}
            for signal in scene.signals
        ]
        if self.backend == 'software':  # has no fog of its own
            self._root = scene_graph()
        else:
            self._root = scene_graph(light.horizon, light.fog_per_m)
        self._eye = Eye(self._root)
        self._view: View | None = None
        self._build()

    def __enter__(self) -> 'Renderer':
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the meshes; the graphics library stays ready for the next renderer."""
        self._root.remove_node()

    def render(self, view: View, camera: str) -> np.ndarray:
        """Return what a camera sees: RGB, uint8 [height, width, 3], top row first."""
        if camera not in self._cameras:
            raise ValueError(f'no camera {camera!r}; there are {sorted(self._cameras)}')
        if view is not self._view:
            self._move(view)
            self._view = view
        pinhole = self._cameras[camera]
        axes, position = camera_pose(view, pinhole)
        self._eye.look(pinhole, axes, position)
        self._sky.path.set_pos(*position)
        self._land.path.set_pos(position[0], position[1], 0)
        if self.backend == 'software':
            for layer in self._in_air:
                layer.veil(self._light, axes[:, 2], position)
        rgb = self._screen.shoot(self._eye, pinhole.width, pinhole.height)
        return self._rain.apply(rgb, view.frame_number, list(self._cameras).index(camera))

    def _build(self) -> None:
        scene, light = self.scene, self._light

        def layer(name: str, mesh: Mesh) -> Layer:
            return Layer(name, self._root, in_cells(light.vertices(mesh)))

        self._sky = Layer('sky', self._root, [light.sky_dome()])
        self._sky.path.set_fog_off()
        self._land = Layer('land', self._root, [light.vertices(props.land(scene.weather.ground))])
        self._shadows = Layer('shadows', self._root, [])
        self._moving = Layer('moving', self._root, [])
        ground = [self._land, layer('tufts', props.tufts(scene))]
        ground += [layer(kind.value, props.surface(scene, kind)) for kind in Surface]
        ground += [self._shadows]
        for order, flat in enumerate([self._sky, *ground]):
            flat.lie_flat(order)
        standing = [props.prop(item, scene.weather.daylight) for item in scene.props]
        standing += [props.signal_post(signal) for signal in scene.signals]
        self._in_air = [*ground, layer('standing', merge(standing)), self._moving]

    def _move(self, view: View) -> None:
        """Put road users and lights where the view has them."""
        if len(view.lights) != len(self._lamps):
            raise ValueError(
                f'the view has {len(view.lights)} lights, its scene {len(self._lamps)} signals'
            )
        x, y = view.position_map_m
        near = [
            item
            for item in view.bodies
            if np.hypot(item.position_map_m[0] - x, item.position_map_m[1] - y) < BODY_RANGE_M
        ]
        meshes = [lamps[state] for lamps, state in zip(self._lamps, view.lights, strict=True)]
        meshes += [bodies.body(item) for item in near]
        self._moving.show([self._light.vertices(merge(meshes))])
        self._shadows.show([self._light.vertices(merge(bodies.shadow(item) for item in near))])


def camera_pose(view: View, camera: Pinhole) -> tuple[np.ndarray, np.ndarray]:
    """Return a camera's optical axes [3, 3] (columns) and its position [3] [m] in map.

    The body turns about base_link: by its heading, then its pitch, then its roll.
    """
    angles = [view.heading_rad, -view.pitch_rad, view.roll_rad]
    body = Rotation.from_euler('ZYX', angles).as_matrix()
    position = np.array([*view.position_map_m, 0.0]) + body @ camera.position_base_m
    return body @ camera.rotation_base, position
