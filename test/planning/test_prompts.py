import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wamdiff_ros.planning.answer import WaypointForm
from wamdiff_ros.planning.prompts import (
    Image,
    PromptError,
    PromptTemplates,
    Text,
    description_turn,
    navigation_turn,
)
from wamdiff_ros.types import CameraFrame, Command, EgoState, Observation


def observation(velocity=(8.314, -0.004), acceleration=(-1.5, 0.25), cameras=1):
    ego = EgoState(
        0, 'odom', 'base_link', (5.0, 6.0, 7.0), (0.0, 0.0, 0.0, 1.0), velocity, 0.1, acceleration
    )
    frames = tuple(CameraFrame(f'camera{i}', 0, None) for i in range(cameras))
    return Observation(0, frames, ego, Command.LEFT)


def text_of(parts):
    return ''.join(part.text for part in parts if isinstance(part, Text))


def test_navigation_turn_holds_command_position_velocity_and_acceleration():
    text = text_of(navigation_turn(PromptTemplates(), observation(), 1))
    assert 'command: left' in text
    assert 'position: (0.00,0.00)' in text
    assert 'Velocity: (8.31,0.00)' in text
    assert 'Acceleration: (-1.50,0.25)' in text
    assert '8 waypoints' in text
    assert '4 seconds' in text


@pytest.mark.parametrize('cameras', [1, 3])
def test_both_turns_share_lead_in_and_images(cameras):
    seen = observation(cameras=cameras)
    navigation = navigation_turn(PromptTemplates(), seen, cameras)
    description = description_turn(PromptTemplates(), seen, cameras)
    assert navigation[: cameras + 1] == description[: cameras + 1]
    assert navigation[1 : cameras + 1] == tuple(Image(i) for i in range(cameras))
    assert len(navigation) == len(description) == cameras + 2
    assert navigation[-1] != description[-1]


def test_the_shared_part_does_not_change_with_the_motion():
    first = navigation_turn(PromptTemplates(), observation(), 1)
    second = navigation_turn(PromptTemplates(), observation(velocity=(0.0, 0.0)), 1)
    assert first[:2] == second[:2]


number = st.floats(allow_nan=False, allow_infinity=False)


@given(st.tuples(number, number), st.tuples(number, number))
def test_any_motion_gives_bounded_ascii_without_negative_zero(velocity, acceleration):
    text = text_of(navigation_turn(PromptTemplates(), observation(velocity, acceleration), 1))
    assert text.isascii()
    assert '-0.00' not in text
    assert len(text) < 500


@pytest.mark.parametrize('bad', [math.nan, math.inf])
def test_motion_that_is_not_finite_is_refused(bad):
    with pytest.raises(ValueError, match='not finite'):
        navigation_turn(PromptTemplates(), observation(velocity=(bad, 0.0)), 1)


def test_defaults_without_a_file(tmp_path):
    assert PromptTemplates.load(tmp_path) == PromptTemplates()


def write(folder, content):
    (folder / 'prompts.json').write_text(content, encoding='utf-8')


def test_the_checkpoint_brings_its_own_words(tmp_path):
    own = {
        'lead_in': 'Literal {braces} are fine here.',
        'navigation': '{{{command}}} v={velocity}',
        'commands': {'straight': 'go straight', 'left': 'turn left', 'right': 'turn right'},
    }
    write(tmp_path, json.dumps(own))
    templates = PromptTemplates.load(tmp_path)
    parts = navigation_turn(templates, observation(), 1)
    assert parts == (Text(own['lead_in']), Image(0), Text('{turn left} v=(8.31,0.00)'))
    assert templates.description == PromptTemplates().description


def test_numbers_can_have_a_fixed_width_without_negative_zero(tmp_path):
    write(tmp_path, '{"navigation": "{velocity} {acceleration}", "number_format": "+05.1f"}')
    templates = PromptTemplates.load(tmp_path)
    turn = navigation_turn(templates, observation((8.31, -0.04), (-11.26, 0.0)), 1)
    assert turn[-1] == Text('(+08.3,+00.0) (-11.3,+00.0)')


def test_the_checkpoint_says_how_it_writes_waypoints(tmp_path):
    assert PromptTemplates.load(tmp_path).waypoint_form is WaypointForm.POSITIONS
    write(tmp_path, '{"waypoints": "displacements"}')
    assert PromptTemplates.load(tmp_path).waypoint_form is WaypointForm.DISPLACEMENTS


@pytest.mark.parametrize(
    ('content', 'words'),
    [
        ('{', 'not JSON'),
        ('[' * 100_000, 'not JSON'),
        ('[]', 'holds a list'),
        ('{"navigatoin": ""}', "unknown field 'navigatoin'"),
        ('{"navigation": 3}', 'navigation is a int'),
        ('{"navigation": "{speed}"}', r'unknown placeholder \{speed\}'),
        ('{"navigation": "{command.name}"}', 'unknown placeholder'),
        ('{"navigation": "{velocity!r}"}', 'unknown placeholder'),
        ('{"navigation": "{velocity:>99999999}"}', 'unknown placeholder'),
        ('{"navigation": "{}"}', 'unknown placeholder'),
        ('{"description": "a { b"}', 'description'),
        ('{"commands": {"left": "l"}}', 'must name exactly'),
        ('{"commands": []}', 'must name exactly'),
        ('{"number_format": ">99999999"}', 'number_format'),
        ('{"number_format": 2}', 'number_format'),
        ('{"waypoints": "speeds"}', "waypoints 'speeds' is none of positions, displacements"),
        ('{"waypoints": []}', 'is none of'),
        ('{"commands": {"left": "", "right": "r", "straight": "s"}}', 'commands.left'),
    ],
)
def test_bad_files_are_refused_by_name(tmp_path, content, words):
    write(tmp_path, content)
    with pytest.raises(PromptError, match=words) as error:
        PromptTemplates.load(tmp_path)
    assert 'prompts.json' in str(error.value)
