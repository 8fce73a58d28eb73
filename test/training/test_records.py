import json
import re
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image as Picture

from wamdiff_ros.model.config import load_config
from wamdiff_ros.model.tokenizer import Tokenizer
from wamdiff_ros.planning.answer import WaypointForm, parse_description, parse_waypoints
from wamdiff_ros.planning.prompts import PromptTemplates, navigation_turn
from wamdiff_ros.training.conversations import (
    conversations_of,
    corpus,
    format_description,
    read_description,
    write_displacements,
)
from wamdiff_ros.training.records import (
    OBJECTS,
    ConversationRecord,
    DrivingRecord,
    RecordError,
    read_record,
)
from wamdiff_ros.types import Command


def jpeg(shade=90):
    file = BytesIO()
    Picture.new('RGB', (64, 32), (shade, 0, 0)).save(file, 'JPEG', quality=95)
    return file.getvalue()


def driving_record(**changes):
    record = DrivingRecord(
        seed=1_000_003,
        time_s=2.4,
        source='expert',
        command=Command.LEFT,
        velocity_base_mps=(6.25, -0.01),
        acceleration_base_mps2=(-0.5, 0.2),
        yaw_rate_radps=0.031,
        waypoints_base_m=np.stack((np.linspace(3, 24, 8), np.linspace(0, -1.4, 8)), axis=1),
        objects={name: number % 3 == 0 for number, name in enumerate(OBJECTS)},
        explanation='The light ahead is red, so I stop: no hurry.',
        longitudinal='stop',
        lateral='turn_left',
        images={'jpg': jpeg()},
    )
    return replace(record, **changes)


def test_a_record_survives_json():
    record = driving_record()
    read = read_record(json.loads(json.dumps(record.to_json())), record.images)
    assert read.to_json() == record.to_json()
    assert read.command is Command.LEFT
    assert read.images == record.images
    assert np.abs(read.waypoints_base_m - record.waypoints_base_m).max() <= 5e-4


@pytest.mark.parametrize(
    ('field', 'value'),
    [
        ('command', 'up'),
        ('source', 'luck'),
        ('waypoints_base_m', [[1, 2]] * 7),
        ('waypoints_base_m', [[1, float('nan')]] * 8),
        ('waypoints_base_m', [[1]] * 4 + [[2, 3]] * 4),
        ('velocity_base_mps', 'fast'),
        ('seed', True),
        ('objects', {'pedestrian': True}),
        ('objects', dict.fromkeys(OBJECTS, 1)),
        ('images', ['jpg', 'left.jpg']),
        ('explanation', None),
    ],
)
def test_a_wrong_field_is_named(field, value):
    values = {**driving_record().to_json(), field: value}
    with pytest.raises(RecordError, match=field):
        read_record(values, {'jpg': b''})
    del values[field]
    with pytest.raises(RecordError, match=field):
        read_record(values, {'jpg': b''})


def test_a_description_reads_back_as_it_was_written():
    record = driving_record()
    description = read_description(format_description(record))
    assert description.objects == dict(record.objects)
    assert description.longitudinal == record.longitudinal
    assert description.lateral == record.lateral
    assert description.explanation == record.explanation


def test_the_planner_node_takes_a_description_apart_into_sections():
    sections = dict(parse_description(format_description(driving_record()))[1])
    assert list(sections) == ['critical_objects', 'longitudinal', 'lateral', 'explanation']
    assert sections['critical_objects'].startswith('nearby_vehicle yes, pedestrian no, ')


@pytest.mark.parametrize(
    'spoil',
    [
        lambda text: '',
        lambda text: text[:40],
        lambda text: text.replace('pedestrian no', 'pedestrian maybe'),
        lambda text: text.replace('pedestrian no, ', ''),
        lambda text: text.replace('pedestrian', 'cyclist'),
        lambda text: text.replace('lateral: turn_left\n', ''),
        lambda text: '\n'.join(reversed(text.split('\n'))),
    ],
)
def test_a_spoilt_description_is_none(spoil):
    assert read_description(spoil(format_description(driving_record()))) is None


def test_planning_is_asked_as_the_node_asks_and_answered_with_the_waypoints():
    record, templates = driving_record(), PromptTemplates()
    conversation = conversations_of(record, templates, 'planning')
    turn = navigation_turn(templates, record.observation(), 1)
    assert conversation.parts == (turn[0].text, 0, turn[2].text)
    assert 'Navigation command: left.' in turn[2].text
    assert 'Velocity: (6.25,-0.01)' in turn[2].text
    answered = parse_waypoints(conversation.answer).xy_base_m
    assert np.abs(answered - record.waypoints_base_m).max() <= 0.051
    assert conversation.images == (record.images['jpg'],)


def test_displacements_come_back_without_errors_that_add_up():
    random = np.random.default_rng(0)
    templates = PromptTemplates(waypoints='displacements')
    for _ in range(50):
        steps = random.uniform((0, -2), (8, 2), (8, 2))
        record = driving_record(waypoints_base_m=steps.cumsum(axis=0))
        answer = conversations_of(record, templates, 'planning').answer
        assert re.fullmatch(r'[0-9]{3}(,[+-][0-9]{3}){15}', answer)
        read = parse_waypoints(answer, form=WaypointForm.DISPLACEMENTS).xy_base_m
        assert np.abs(read - record.waypoints_base_m).max() <= 0.051


def test_displacements_say_nothing_of_reversing_and_stand_where_they_round_to_it():
    standing = np.full((8, 2), (-0.2, 0.0))
    assert write_displacements(standing) == ','.join(['+000'] * 16)[1:]
    turned = np.stack((np.array([2, 3, 3, 2, 1, 0, -1, -2]), np.arange(8)), axis=1)
    assert write_displacements(turned).split(',')[6] == '-010'
    for far in (-0.6, 100.0):
        with pytest.raises(ValueError, match='does not fit'):
            write_displacements(np.full((8, 2), (far, 0.0)))


def test_an_answer_of_displacements_fills_two_blocks_of_the_nano_models():
    model = Path(__file__).parents[2] / 'models/nano'
    tokenizer = Tokenizer.load(model, load_config(model))
    steps = np.full((8, 2), (5.2, -0.1)).cumsum(axis=0)
    tokens = tokenizer.encode(write_displacements(steps))
    assert len(tokens) + 1 == 64
    # Each block has its own waypoints.
    assert tokenizer.decode(tokens[32:]) == ',+'.join(['052,-001'] * 4)


def test_the_description_is_asked_after_the_same_beginning():
    record, templates = driving_record(), PromptTemplates()
    conversation = conversations_of(record, templates, 'description')
    assert conversation.parts == (templates.lead_in, 0, templates.description)
    assert conversation.answer == format_description(record)


def test_several_cameras_keep_their_order_and_names():
    record = driving_record(images={'left.jpg': jpeg(1), 'front.jpg': jpeg(2)})
    conversation = conversations_of(record, PromptTemplates(), 'planning')
    assert [part for part in conversation.parts if isinstance(part, int)] == [0, 1]
    assert conversation.images == (jpeg(1), jpeg(2))
    assert [f.camera for f in record.observation().frames] == ['left', 'front']
    assert [f.camera for f in driving_record().observation().frames] == ['front']


def test_an_observation_holds_the_decoded_pictures():
    frame = driving_record().observation().frames[0]
    assert frame.rgb.shape == (32, 64, 3)
    assert frame.rgb.dtype == np.uint8
    with pytest.raises(RecordError, match='4 bytes'):
        driving_record(images={'jpg': b'what'}).observation()


def test_a_converted_question_keeps_the_places_of_its_images():
    record = ConversationRecord('<image>\nand <image>?', 'yes', {'0.png': b'a', '1.png': b'b'})
    conversation = conversations_of(record, PromptTemplates(), 'planning')
    assert conversation.parts == (0, '\nand ', 1, '?')
    assert conversation.answer == 'yes'
    assert read_record(record.to_json(), record.images).to_json() == record.to_json()


@pytest.mark.parametrize(
    ('turns', 'said'),
    [
        ([{'from': 'human', 'value': '<image>?'}], 'one question'),
        ([{'from': 'gpt', 'value': '<image>?'}, {'from': 'gpt', 'value': ''}], 'one question'),
        ([{'from': 'human', 'value': '?'}, {'from': 'gpt', 'value': ''}], '0 times <image> for 1'),
        ([{'from': 'human', 'value': 3}, {'from': 'gpt', 'value': ''}], 'value 3'),
        ('?', 'one question'),
    ],
)
def test_a_conversation_that_is_not_one_question_and_answer_is_refused(turns, said):
    with pytest.raises(RecordError, match=said):
        read_record({'images': ['jpg'], 'conversations': turns}, {'jpg': b''})


def test_the_corpus_holds_all_fixed_words_of_answers():
    text = ' '.join(corpus(PromptTemplates(), ['turn_left']))
    for yes in (True, False):
        record = driving_record(objects=dict.fromkeys(OBJECTS, yes))
        assert format_description(record).split('\n')[0] in text
    assert 'turn_left' in text
