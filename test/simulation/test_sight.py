from types import SimpleNamespace

import pytest

from wamdiff_ros.simulation.scene import Body, BodyKind
from wamdiff_ros.simulation.sight import is_hidden
from wamdiff_ros.simulation.vehicle import VehicleState

# The camera sits 1.6 m before the origin, 1.5 m high.


def world(*bodies):
    ego = VehicleState(0.0, 0.0, 0.0)
    return SimpleNamespace(ego=ego, parked=bodies, moving_bodies=lambda: [])


def vehicle(x, y, height, kind=BodyKind.TRUCK, heading_rad=0.0):
    return Body(kind, (x, y), heading_rad, (6.0, 2.4, height), (0, 0, 0))


@pytest.mark.parametrize(
    ('bodies', 'hidden'),
    [
        ((), False),
        ((vehicle(15, 0, 3.2),), True),
        ((vehicle(15, 0, 1.3),), False),  # looked over: the chest is at 1.2 m, 14 m beyond
        ((vehicle(15, 3, 3.2),), False),
        ((vehicle(15, 3, 3.2, heading_rad=1.57),), True),  # it stands across
        ((vehicle(40, 0, 3.2),), False),  # behind the point
        ((vehicle(-10, 0, 3.2),), False),  # behind the camera
        ((vehicle(15, 0, 3.2, BodyKind.CYCLIST),), False),
        ((vehicle(15, 5, 3.2), vehicle(20, 0, 3.2)), True),
    ],
)
def test_a_point_is_hidden_behind_a_vehicle_in_between(bodies, hidden):
    assert is_hidden(world(*bodies), 30.0, 0.0, 1.4) is hidden


def test_lamps_are_seen_over_a_car_but_not_over_a_truck_that_is_near():
    assert not is_hidden(world(vehicle(10, 0, 1.5, BodyKind.CAR)), 30.0, 0.0, 4.2)
    assert is_hidden(world(vehicle(10, 0, 3.2)), 30.0, 0.0, 4.2)
    assert not is_hidden(world(vehicle(27, 0, 3.2)), 32.0, 0.0, 4.2)


def test_the_near_side_of_a_vehicle_is_not_hidden_by_itself():
    assert not is_hidden(world(vehicle(15, 0, 3.2)), 15.0, 0.0, 1.0)
