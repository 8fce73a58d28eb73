import numpy as np
import pytest
from drawn_plans import EGO, plan, publication

from wamdiff_ros.parameters import Parameters
from wamdiff_ros.planning.figure import (
    COMPACT_CAR,
    SPEED_RGB,
    SPEED_STOPS_MPS,
    Footprint,
    Kind,
    drawn_plan,
    in_base,
    plan_figure,
    speed_rgb,
)
from wamdiff_ros.types import PlanStatus

STATUSES = (PlanStatus.NOMINAL, PlanStatus.HELD, PlanStatus.FALLBACK_STOP)


def figure(status=PlanStatus.NOMINAL, **rest):
    """Return the shapes of a published plan in the fixed frame, by layer and number."""
    shapes = plan_figure(drawn_plan(publication(status), EGO), COMPACT_CAR, **rest)
    return {(shape.layer, shape.number): shape for shape in shapes}


@pytest.mark.parametrize('status', STATUSES)
def test_every_status_has_the_same_shapes_in_the_same_order(status):
    assert list(figure(status)) == list(figure())
    assert len(set(figure(status))) == len(figure(status)) == 11


def test_a_plan_begins_at_the_vehicle_in_the_fixed_frame_and_at_the_origin_in_base():
    fixed = drawn_plan(publication(), EGO)
    assert fixed.positions_m[0].tolist() == pytest.approx(EGO.position_fixed_m)
    base = in_base(fixed, EGO)
    np.testing.assert_allclose(base.positions_m[:, :2], plan().trajectory.xy_base_m, atol=1e-9)
    np.testing.assert_allclose(base.headings[0], [1.0, 0.0, 0.0], atol=1e-9)


def test_the_ribbon_is_as_wide_as_the_vehicle_and_coloured_by_the_speed_at_each_point():
    shape = figure()['ribbon', 0]
    corners = shape.points_m.reshape(-1, 6, 3)
    assert len(corners) == 40
    widths_m = np.linalg.norm(corners[:, 0] - corners[:, 1], axis=1)
    np.testing.assert_allclose(widths_m, COMPACT_CAR.width_m)
    speeds_mps = plan().trajectory.speed_mps
    np.testing.assert_allclose(shape.rgb.reshape(-1, 6, 3)[:, 0], speed_rgb(speeds_mps[:-1]))
    np.testing.assert_allclose(shape.rgb.reshape(-1, 6, 3)[:, 2], speed_rgb(speeds_mps[1:]))


def test_speeds_run_through_the_colours_of_the_table_and_reverse_looks_like_forward():
    np.testing.assert_allclose(speed_rgb(np.array(SPEED_STOPS_MPS)), SPEED_RGB)
    np.testing.assert_allclose(speed_rgb(np.array([-9.0])), [SPEED_RGB[2]])
    np.testing.assert_allclose(speed_rgb(np.array([100.0])), [SPEED_RGB[-1]])


def test_a_held_plan_is_striped_and_its_edges_have_another_colour():
    nominal, held = figure(), figure(PlanStatus.HELD)
    share = len(held['ribbon', 0].points_m) / len(nominal['ribbon', 0].points_m)
    assert 0.3 < share < 0.7
    assert held['edges', 0].rgb[0].tolist() != nominal['edges', 0].rgb[0].tolist()
    np.testing.assert_allclose(held['edges', 0].points_m, nominal['edges', 0].points_m)


def test_a_stop_has_a_bar_across_the_way_where_the_vehicle_will_stand():
    bar = figure(PlanStatus.FALLBACK_STOP)['stop', 0].points_m
    assert np.linalg.norm(bar[0] - bar[1]) == pytest.approx(2 * COMPACT_CAR.width_m)
    stand = drawn_plan(publication(PlanStatus.FALLBACK_STOP), EGO).positions_m[-1]
    np.testing.assert_allclose(bar.mean(axis=0)[:2], stand[:2], atol=0.05)
    assert not len(figure()['stop', 0].points_m)


def test_the_footprint_lies_around_the_start_as_the_parameters_say():
    parameters = Parameters.from_mapping(
        {'vehicle_length_m': 5.0, 'vehicle_width_m': 2.0, 'vehicle_rear_overhang_m': 1.0}
    )
    drawn = in_base(drawn_plan(publication(), EGO), EGO)
    shapes = plan_figure(drawn, Footprint.of(parameters))
    [outline] = [shape.points_m for shape in shapes if shape.layer == 'vehicle']
    assert outline.min(axis=0)[:2].tolist() == pytest.approx([-1.0, -1.0])
    assert outline.max(axis=0)[:2].tolist() == pytest.approx([4.0, 1.0])


def test_horizon_marks_lie_where_the_plan_will_be_at_whole_seconds():
    shapes, drawn = figure(), drawn_plan(publication(), EGO)
    bars = shapes['horizon', 0].points_m.reshape(-1, 2, 3)
    assert len(bars) == 4
    for second, bar in enumerate(bars, start=1):
        np.testing.assert_allclose(bar.mean(axis=0)[:2], drawn.positions_m[10 * second][:2])
        assert shapes['horizon', second].text == f'{second} s'


def test_marks_of_a_plan_that_stands_do_not_lie_on_each_other():
    shapes = figure(PlanStatus.FALLBACK_STOP)
    labelled = [len(shapes['horizon', second].points_m) for second in (1, 2, 3, 4)]
    assert labelled == [1, 1, 0, 0]  # it stands after 2.8 s, 0.8 m behind the mark at 2 s


def test_candidates_are_lines_through_their_positions():
    others = [plan(0.03).trajectory.xy_base_m, plan(0.01).trajectory.xy_base_m]
    shape = figure(candidates_m=[np.pad(xy, ((0, 0), (0, 1))) for xy in others])['candidates', 0]
    assert shape.kind is Kind.LINES
    pieces = shape.points_m.reshape(2, 40, 2, 3)
    np.testing.assert_allclose(pieces[1, :, 0, :2], others[1][:-1])
    np.testing.assert_allclose(pieces[1, :, 1, :2], others[1][1:])
    assert not len(figure()['candidates', 0].points_m)


def test_the_words_tell_status_age_speed_reason_and_what_the_model_says():
    words = figure(PlanStatus.HELD, reason='the camera is late', description='a road ' * 100)[
        'words', 0
    ]
    status, reason, *said = words.text.splitlines()
    assert status == 'HELD   0.38 s old   7.0 m/s'
    assert reason == 'the camera is late'
    assert len(said) == 3 and said[-1].endswith('…')


@pytest.mark.parametrize('points', (0, 1))
@pytest.mark.parametrize('status', STATUSES)
def test_a_plan_without_extent_is_drawn_without_a_ribbon(status, points):
    from dataclasses import replace

    drawn = drawn_plan(publication(status), EGO)
    drawn = replace(
        drawn,
        time_s=drawn.time_s[:points],
        speed_mps=drawn.speed_mps[:points],
        positions_m=drawn.positions_m[:points],
        headings=drawn.headings[:points],
    )
    shapes = {shape.layer: shape for shape in plan_figure(drawn, COMPACT_CAR)}
    assert not len(shapes['ribbon'].points_m)
    assert len(shapes['words'].points_m) == points
