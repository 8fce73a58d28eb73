"""What the simulator tells of the world at one instant, as plain JSON values.

docs/interfaces.md lists the fields.
"""

from typing import Any

from .expert import ExpertPlan
from .scene import Body, BodyKind, Light
from .score import describe_faults
from .truth import truth
from .world import World


def ground_truth(world: World, plan: ExpertPlan) -> dict[str, Any]:
    """Return everything that is known now; `plan` is what the expert would do."""
    said, ego, view = truth(world, plan), world.ego, world.view()
    return {
        'seed': world.seed,
        'time_s': round(world.time_s, 3),
        's_m': round(world.s_m, 2),
        'lateral_m': round(world.lateral_m, 3),
        'x_m': round(ego.x_m, 3),
        'y_m': round(ego.y_m, 3),
        'heading_rad': round(ego.heading_rad, 4),
        'speed_mps': round(ego.speed_mps, 3),
        'command': world.command().value,
        'expert_waypoints_base_m': plan.waypoints_base_m.round(2).tolist(),
        'longitudinal': said.longitudinal,
        'lateral': said.lateral,
        'explanation': said.explanation,
        'objects': said.objects,
        'bodies': [_of_body(body) for body in view.bodies],
        'lights': [light.value for light in view.lights],
        'completion': round(world.completion, 4),
        'completed': world.completed,
        'faults': describe_faults(world),
    }


def bodies_of(record: dict[str, Any]) -> list[Body]:
    """Return the road users of a ground truth; colours are not kept."""
    return [
        Body(
            BodyKind(body['kind']), (body['x_m'], body['y_m']), body['heading_rad'],
            tuple(body['size_m']), (0, 0, 0), body['braking'],
        )
        for body in record['bodies']
    ]  # fmt: skip


def lights_of(record: dict[str, Any]) -> list[Light]:
    """Return the states of the traffic lights of a ground truth."""
    return [Light(light) for light in record['lights']]


def _of_body(body: Body) -> dict[str, Any]:
    x_m, y_m = body.position_map_m
    return {
        'kind': body.kind.value,
        'x_m': round(x_m, 2),
        'y_m': round(y_m, 2),
        'heading_rad': round(body.heading_rad, 3),
        'size_m': [round(value, 2) for value in body.size_m],
        'braking': body.braking,
    }
