"""Drives one route and records what the cameras see with what the expert would do there."""

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image as Picture
from scipy.spatial.transform import Rotation

from ..pinhole import Pinhole
from ..training.conversations import fits_fixed_width
from ..training.records import DrivingRecord
from ..types import CameraFrame, Observation
from .boxes import Box, boxes
from .cameras import CAMERAS
from .disturbance import Disturbances, Push, recovers
from .expert import Expert, ExpertPlan
from .follower import MapTrajectory, follow
from .renderer import Renderer
from .scene import View
from .settings import Settings
from .truth import truth
from .vehicle import Control
from .world import STEP_S, World

if TYPE_CHECKING:  # torch is loaded only where a model drives
    from ..runtime.session import PlanningSession

JPEG_QUALITY = 95
BEFORE_FAULT_S = 4.0  # records this close before a fault of the expert are left out
SEGMENT_S = (1.0, 4.0)  # DAgger: expert or model drive this long in one go
TOO_LATE_S, RESCUE_S = 0.4, 2.0  # it takes over this long before, and for this long
# How the body leans with acceleration [rad per m/s^2], and how it shakes.
PITCH_LEAN, ROLL_LEAN, SHAKE_RAD = 0.006, 0.008, 0.003
# Standard deviations of how a camera is mounted on the vehicle of a route.
MOUNT_M, MOUNT_RAD = 0.05, 0.012
STANDING_M, STRAIGHT_M, STEADY_MPS = 0.5, 0.3, 0.5


@dataclass(frozen=True, eq=False)
class Route:
    """The records of one route; `fault` says what went wrong, if anything."""

    keyed: tuple[tuple[str, DrivingRecord], ...]
    fault: str


def collect(
    seed: int, settings: Settings, backend: str, session: 'PlanningSession | None' = None
) -> Route:
    """Drive the world of `seed` once; equal arguments give equal records.

    With a `session` the model drives a share `settings.beta` of the time, undisturbed.
    """
    random = np.random.default_rng((seed, 1))
    world, expert = World(seed), Expert()
    cameras = {name: _mounted(CAMERAS[name], random) for name in settings.cameras}
    disturbances = Disturbances(random) if settings.disturbances and session is None else None
    model = _Model(session, random, settings.beta) if session else None
    stride = round(settings.every_s / STEP_S)
    step, phase, keyed = 0, int(random.integers(stride)), []
    seen: deque[dict[str, np.ndarray]] = deque(maxlen=settings.frames)  # pictures, oldest first
    renderer = Renderer(world.scene, cameras, backend)
    try:
        while not world.finished and not world.events:
            if disturbances:
                disturbances.push(world, expert)
            control = expert.control(world)
            to_record = (phase - step) % stride
            wanted = False
            if to_record == 0:
                plan = expert.plan(world)
                wanted = random.random() < _share(world, plan, settings)
            is_earlier_frame = settings.frames > 1 and to_record < settings.frames
            if wanted or (model and to_record == 0) or is_earlier_frame:
                view = _leaning(world, random)
                seen.append({name: renderer.render(view, name) for name in cameras})
                if wanted and len(seen) == settings.frames:
                    source = 'dagger' if model else _source(disturbances, world)
                    shown = boxes(world.scene, view, next(iter(cameras.values())))
                    record = _record(seed, world, plan, seen, shown, source, settings)
                    keyed.append((f'{seed:08d}-{step:05d}', record))
                if model:
                    model.see(world, seen[-1], plan=to_record == 0)
            if model:
                control = model.control(world, expert) or control
            if disturbances:
                control = disturbances.disturbed(world, control)
            world.step(control)
            step += 1
    finally:
        renderer.close()
    fault = ''
    if world.events:
        fault = f'route {seed} ended early: {world.events[0].kind} {world.events[0].detail}'
    if fault and model is None:
        last_s = world.time_s - BEFORE_FAULT_S
        keyed = [(key, record) for key, record in keyed if record.time_s < last_s]
    return Route(tuple(keyed), fault)


class _Model:
    """The model at the wheel in turns with the expert, who always says what to learn."""

    def __init__(self, session: 'PlanningSession', random: np.random.Generator, beta: float):
        self._session, self._random, self._beta = session, random, beta
        self._trajectory: MapTrajectory | None = None
        self._turn_ends_s, self._my_turn = 0.0, False
        session.reset()

    def control(self, world: World, expert: Expert) -> Control | None:
        """Return how the model drives, or None when it is the expert's turn.

        The expert takes over while there is still something to rescue.
        """
        if world.time_s >= self._turn_ends_s:
            self._my_turn = self._random.random() < self._beta
            self._turn_ends_s = world.time_s + self._random.uniform(*SEGMENT_S)
        if not self._my_turn or self._trajectory is None:
            return None
        control = follow(self._trajectory, round(world.time_s * 1e9), world.ego)
        if not recovers(world, expert, Push(lasts_s=TOO_LATE_S), control):
            self._my_turn, self._turn_ends_s = False, world.time_s + RESCUE_S
            return None
        return control

    def see(self, world: World, rgb: Mapping[str, np.ndarray], plan: bool) -> None:
        """Look, and plan anew; an answer that is no plan leaves the last one in force."""
        t0_ns = round(world.time_s * 1e9)
        frames = tuple(CameraFrame(name, t0_ns, picture) for name, picture in rgb.items())
        observation = Observation(t0_ns, frames, world.ego_state(t0_ns), world.command())
        if not plan:
            return self._session.show(observation)
        planned = self._session.plan(observation).plan
        if planned is not None:
            self._trajectory = MapTrajectory.of_plan(planned)


def _record(
    seed: int,
    world: World,
    plan: ExpertPlan,
    seen: Sequence[Mapping[str, np.ndarray]],
    shown: tuple[Box, ...],
    source: str,
    settings: Settings,
) -> DrivingRecord:
    ego, said = world.ego_state(round(world.time_s * 1e9)), truth(world, plan)
    images = {
        f'{camera}-{ago}.jpg' if ago else f'{camera}.jpg': _encode(
            seen[-1 - ago][camera], settings.image_size
        )
        for camera in settings.cameras
        for ago in range(settings.frames - 1, -1, -1)
    }
    if list(images) == ['front.jpg']:
        images = {'jpg': images['front.jpg']}
    return DrivingRecord(
        seed=seed,
        time_s=world.time_s,
        source=source,
        command=world.command(),
        velocity_base_mps=ego.velocity_base_mps,
        acceleration_base_mps2=ego.acceleration_base_mps2,
        yaw_rate_radps=ego.yaw_rate_radps,
        waypoints_base_m=plan.waypoints_base_m,
        objects=said.objects,
        explanation=said.explanation,
        longitudinal=said.longitudinal,
        lateral=said.lateral,
        images=images,
        boxes=tuple(astuple(box) for box in shown),
    )


def _share(world: World, plan: ExpertPlan, settings: Settings) -> float:
    """Return the share of such instants to keep: most of driving is standing and cruising.

    None where the expert turns by more than the answer's format can tell, as it may from where a
    push or a model left the vehicle.
    """
    if not fits_fixed_width(plan.waypoints_base_m):
        return 0.0
    end_m = plan.waypoints_base_m[-1]
    if math.hypot(*end_m) < STANDING_M and world.ego.speed_mps < STANDING_M:
        return settings.keep_standing
    is_straight = np.abs(plan.waypoints_base_m[:, 1]).max() < STRAIGHT_M
    is_steady = np.ptp(plan.speed_mps) < STEADY_MPS
    return settings.keep_cruising if is_straight and is_steady else 1.0


def _source(disturbances: Disturbances | None, world: World) -> str:
    return 'perturbed' if disturbances and disturbances.is_recovering(world) else 'expert'


def _leaning(world: World, random: np.random.Generator) -> View:
    """Return the view of a body that leans with acceleration and shakes a little."""
    view, (forward, left) = world.view(), world.ego_state(0).acceleration_base_mps2
    pitch, roll = random.normal(0.0, SHAKE_RAD, 2)
    return replace(
        view,
        pitch_rad=view.pitch_rad + PITCH_LEAN * forward + pitch,
        roll_rad=view.roll_rad + ROLL_LEAN * left + roll,
    )


def _mounted(camera: Pinhole, random: np.random.Generator) -> Pinhole:
    """Return the camera as somebody else would have mounted it."""
    turn = Rotation.from_rotvec(random.normal(0.0, MOUNT_RAD, 3)).as_matrix()
    return replace(
        camera,
        rotation_base=turn @ camera.rotation_base,
        position_base_m=camera.position_base_m + random.normal(0.0, MOUNT_M, 3),
    )


def _encode(rgb: np.ndarray, size: tuple[int, int]) -> bytes:
    """Shrink as model/image_processor.py does, and keep small coloured lights coloured."""
    picture = Picture.fromarray(rgb)
    if picture.size != size:
        picture = picture.resize(size, Picture.Resampling.BICUBIC)
    file = BytesIO()
    picture.save(file, 'JPEG', quality=JPEG_QUALITY, subsampling=0)
    return file.getvalue()
