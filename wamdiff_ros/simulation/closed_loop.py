"""Drive one route of the world in process: picture, plan, control, step; ten times a second.

What is published, held or replaced by a stop is decided as in the planner node, with its
parameters. Planning takes no time here; `ros/simulator_node.py` is the same loop on a clock.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ..parameters import Parameters
from ..planning.publication import Publication, PublicationPolicy
from ..planning.trajectory import trajectory_from_waypoints
from ..types import (
    CameraFrame,
    EgoState,
    InferenceCounts,
    Observation,
    Plan,
    PlanningResult,
    StageTimings,
)
from .cameras import CAMERAS
from .expert import Expert
from .follower import MapTrajectory, follow
from .renderer import Renderer
from .scene import View
from .score import Drive, RouteScore, lost
from .vehicle import Control
from .world import World

CAMERA = 'front'
STEP_NS = 100_000_000
START_NS = 1_000_000_000  # a clock at zero counts as not set
DECIMALS = 2  # of a waypoint in an answer
# Until there is a plan: the brakes hold.
WAIT = Control(acceleration_mps2=-2.0, steering_rad=0.0)


class Planner(Protocol):
    """What drives: a PlanningSession, or the expert in its place."""

    def plan(self, observation: Observation) -> PlanningResult: ...  # noqa: D102
    def reset(self) -> None: ...  # noqa: D102


class ExpertPlanner:
    """Answers with the expert's plan, written as a model would: the ceiling of imitation."""

    def __init__(self, world: World, parameters: Parameters, decimals: int = DECIMALS) -> None:
        self._world, self._expert = world, Expert()
        self._parameters, self._decimals = parameters, decimals

    def plan(self, observation: Observation) -> PlanningResult:
        """Plan from the world itself, not from what is observed of it."""
        waypoints = self._expert.plan(self._world).waypoints_base_m.round(self._decimals)
        ego = observation.ego
        trajectory = trajectory_from_waypoints(
            waypoints,
            ego.velocity_base_mps,
            self._parameters.point_interval_s,
            waypoint_noise_m=self._parameters.waypoint_noise_m,
        )
        plan = Plan(observation.t0_ns, ego, waypoints, trajectory)
        return PlanningResult(plan.t0_ns, plan, '', '', StageTimings(), InferenceCounts())

    def reset(self) -> None:
        """Nothing is kept."""


@dataclass(frozen=True, eq=False)
class Step:
    """One step of a drive, for whoever looks on."""

    frame: CameraFrame
    view: View
    ego: EgoState
    result: PlanningResult
    publication: Publication
    world: World  # as it is now; it moves on after the call


def drive_route(
    world: World,
    planner: Planner,
    parameters: Parameters,
    look_on: Callable[[Step], None] = lambda step: None,
    stop: Callable[[], bool] = lambda: False,
    to_the_end: bool = False,
) -> RouteScore | None:
    """Drive `world` and return the score; None when `stop` said so before.

    A drive that is lost, by a collision, off the road or stuck, ends unless it shall go on
    `to_the_end` of the route or of its time.
    Raises GraphicsError where no pictures can be made.
    """
    planner.reset()
    policy, drive, why_lost = PublicationPolicy(parameters), Drive(), ''
    with Renderer(world.scene, {CAMERA: CAMERAS[CAMERA]}) as renderer:
        tick = 0
        while not (world.finished or why_lost):
            if stop():
                return None
            now_ns = START_NS + tick * STEP_NS
            ego, view = world.ego_state(now_ns), world.view()
            frame = CameraFrame(CAMERA, now_ns, renderer.render(view, CAMERA))
            observation = Observation(now_ns, (frame,), ego, world.command())
            result = planner.plan(observation)
            if result.plan is None:
                policy.reject(result.reason, tick)
            else:
                policy.accept(result.plan, tick)
            publication = policy.decide(tick, now_ns, ego, '')
            look_on(Step(frame, view, ego, result, publication, world))
            control = WAIT
            if publication.plan is not None:
                control = follow(MapTrajectory.of_plan(publication.plan), now_ns, world.ego)
            drive.add(world, publication.status)
            world.step(control)
            tick += 1
            why_lost = '' if to_the_end or world.finished else lost(world)
    return drive.score(world, policy.rejected, why_lost)
