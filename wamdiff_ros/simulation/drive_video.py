"""The film of one drive: the camera, the plan in it, the scene from above, faults in words."""

import math
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

from ..pictures.overlay_painter import Instant, OverlayPainter, video_camera
from ..pictures.video import VideoWriter
from ..planning.figure import DrawnPlan
from ..planning.publication import Publication
from ..planning.trajectory import to_fixed
from .cameras import CAMERAS
from .closed_loop import CAMERA, STEP_NS, Step
from .scene import View
from .score import RouteScore, describe_faults
from .top_view import TopView
from .vehicle import VehicleState
from .world import World

JPEG_QUALITY = 92
DRIVEN_STEPS = 40


@dataclass(frozen=True, eq=False)
class _Shot:
    jpeg: np.ndarray  # the picture takes a tenth of the memory
    view: View
    ego: VehicleState
    publication: Publication
    words: str
    command: str
    faults: tuple[str, ...]


class DriveFilm:
    """Keeps the steps of a drive until it is known whether the film is wanted."""

    def __init__(self) -> None:
        self._shots: list[_Shot] = []

    def add(self, step: Step) -> None:
        """Keep this step."""
        bgr = cv2.cvtColor(step.frame.rgb, cv2.COLOR_RGB2BGR)
        _, jpeg = cv2.imencode('.jpg', bgr, [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])
        words = step.result.answer or step.result.reason
        self._shots.append(
            _Shot(
                jpeg,
                step.view,
                step.world.ego,
                step.publication,
                words,
                step.world.command().value,
                tuple(describe_faults(step.world)),
            )
        )

    def write(self, path: Path, world: World, score: RouteScore) -> None:
        """Write the mp4 file. Raises VideoError."""
        camera = CAMERAS[CAMERA]
        note = f'route {score.seed}: ' + ('success' if score.success else 'failed')
        above = TopView(world.scene)
        painter = OverlayPainter(video_camera(camera, camera.width, camera.height), note)
        with VideoWriter(path, *painter.frame_size, 1e9 / STEP_NS) as video:
            for index, shot in enumerate(self._shots):
                driven = self._shots[index : index + DRIVEN_STEPS]
                picture = painter.paint(_instant(above, shot, driven))
                video.add(picture, index * STEP_NS / 1e9)


def _instant(above: TopView, shot: _Shot, driven: list[_Shot]) -> Instant:
    rgb = cv2.cvtColor(cv2.imdecode(shot.jpeg, cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB)
    ego = shot.ego
    way_m = _to_base(np.array([(s.ego.x_m, s.ego.y_m) for s in driven]), ego)
    return Instant(
        rgb=rgb,
        speed_mps=ego.speed_mps,
        plan=_plan(shot),
        driven_base_m=np.pad(way_m, ((0, 0), (0, 1))),
        description=shot.words,
        chips=(f'go {shot.command}',),
        faults=shot.faults,
        shapes_base_m=above.shapes(
            shot.view.bodies, shot.view.lights, (ego.x_m, ego.y_m), ego.heading_rad
        ),
    )


def _plan(shot: _Shot) -> DrawnPlan | None:
    plan = shot.publication.plan
    if plan is None:
        return None
    positions_m, quaternions = to_fixed(plan.trajectory, plan.ego)
    z, w = quaternions[:, 2], quaternions[:, 3]
    heading_rad = 2 * np.arctan2(z, w) - shot.ego.heading_rad
    return DrawnPlan(
        status=shot.publication.status,
        age_s=shot.publication.age_ns / 1e9,
        time_s=plan.trajectory.time_ns / 1e9,
        speed_mps=plan.trajectory.speed_mps,
        positions_m=np.pad(_to_base(positions_m[:, :2], shot.ego), ((0, 0), (0, 1))),
        headings=np.stack([np.cos(heading_rad), np.sin(heading_rad), 0 * heading_rad], axis=1),
    )


def _to_base(xy_map_m: np.ndarray, ego: VehicleState) -> np.ndarray:
    cos, sin = math.cos(ego.heading_rad), math.sin(ego.heading_rad)
    return (xy_map_m - [ego.x_m, ego.y_m]) @ np.array([[cos, -sin], [sin, cos]])
