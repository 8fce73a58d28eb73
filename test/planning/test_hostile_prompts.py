"""Any prompts.json is read or refused with a PromptError."""

import contextlib
import json
from dataclasses import asdict

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mutations import json_mutations

from wamdiff_ros.planning.prompts import PromptError, PromptTemplates, Text, navigation_turn
from wamdiff_ros.types import Command, EgoState, Observation

in_one_folder = settings(
    max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp('prompts')


def ask(folder, content):
    """Load and ask: templates that are accepted have to work."""
    (folder / 'prompts.json').write_bytes(content)
    with contextlib.suppress(PromptError):
        templates = PromptTemplates.load(folder)
        state = EgoState(1, 'odom', 'base_link', (0, 0, 0), (0, 0, 0, 1), (5, 0), 0.0, (0, 0))
        turn = navigation_turn(templates, Observation(1, (), state, Command.LEFT), 0)
        assert all(isinstance(part, Text) for part in turn)


@in_one_folder
@given(mutate=json_mutations())
def test_any_value_in_the_file(folder, mutate):
    document = mutate(asdict(PromptTemplates()))
    ask(folder, json.dumps(document).encode('utf-8', 'surrogatepass'))


@in_one_folder
@given(data=st.binary(max_size=80))
def test_any_bytes_for_the_file(folder, data):
    ask(folder, data)


@in_one_folder
@given(template=st.text(alphabet='{}abcommand.!:r[]0_ ', max_size=40))
def test_any_template_gives_text_or_is_refused(folder, template):
    ask(folder, json.dumps({'navigation': template, 'description': template}).encode())
