from dataclasses import fields
from pathlib import Path

import pytest

from wamdiff_ros.parameter_table import markdown_table
from wamdiff_ros.parameter_values import ParameterError
from wamdiff_ros.parameters import Parameters, ros_fields


def test_the_defaults_are_accepted():
    assert Parameters.from_mapping({}).camera_settings[0].topic == 'camera/front/image'


@pytest.mark.parametrize(
    ('values', 'sentence'),
    [
        ({'rate_hz': 0.0}, r'rate_hz: 0.0 is outside 0.1 … 50.0'),
        ({'rate_hz': float('nan')}, 'rate_hz: nan is outside'),
        ({'rate_hz': float('inf')}, 'rate_hz: inf is outside'),
        ({'top_p': 0.0}, 'top_p: 0.0 is outside'),
        ({'rate_hz': 'fast'}, "rate_hz: 'fast' is a str, wanted a float"),
        ({'rate_hz': True}, 'rate_hz: True is a bool, wanted a float'),
        ({'max_new_tokens': 1.5}, 'max_new_tokens: 1.5 is a float, wanted a int'),
        ({'rate_hz': 20.0}, 'deadline_s: 0.08 s is longer than one period'),
        ({'max_plan_age_s': 0.08}, 'max_plan_age_s: 0.08 s is not above deadline_s 0.08 s'),
        ({'fallback': 'hope'}, "fallback: 'hope' is not one of stop, silent"),
        (
            {'fallback_deceleration_mps2': 4.0, 'max_deceleration_mps2': 3.0},
            'fallback_deceleration_mps2: 4.0 m/s.2 is above max_deceleration_mps2 3.0',
        ),
        (
            {'inference_timeout_s': 0.5},
            'inference_timeout_s: 0.5 s is below max_plan_age_s 1.0 s',
        ),
        ({'min_pixels': 9000, 'max_pixels': 4096}, 'min_pixels: 9000 is above max_pixels 4096'),
        (
            {'vision_backend': 'tensorrt', 'vision_quantisation': 'int8_weight_only'},
            "vision_quantisation: 'int8_weight_only' is for vision_backend torch",
        ),
        ({'cameras': []}, 'cameras: the list is empty'),
        ({'cameras': 'front'}, 'is not a list of names'),
        ({'cameras': 5}, 'cameras: 5 is not a list of names'),
        ({'cameras': ['front', 'front']}, 'names a camera twice'),
        ({'cameras': ['front left']}, 'is not a name'),
        ({'camera.rear.topic': '/rear'}, "there is no camera 'rear'"),
        ({'camera.front.topic': ''}, 'camera.front.topic: is empty'),
        ({'camera.front.transport': 'theora'}, 'not one of auto, raw, compressed'),
        ({'camera.front.encoding': 'h264'}, "encoding: 'h264' is not one of rgb8, "),
        ({'camera.front.stamp_offset_s': 3}, 'stamp_offset_s: 3.0 is outside -1 … 1'),
        ({'camera.front.exposure': 3}, 'camera.front.exposure: no such parameter'),
        ({'rate': 10.0}, 'rate: no such parameter'),
        (
            {'cameras': ['a', 'b'], 'camera.a.topic': '/x', 'camera.b.topic': '/x'},
            "two cameras share the topic '/x'",
        ),
    ],
)
def test_a_refused_value_says_which_and_why(values, sentence):
    with pytest.raises(ParameterError, match=sentence):
        Parameters.from_mapping(values)


def test_whole_numbers_are_taken_for_decimal_ones():
    assert Parameters.from_mapping({'rate_hz': 10}).rate_hz == 10.0


def test_parameters_cannot_be_changed_afterwards():
    with pytest.raises(AttributeError):
        Parameters.from_mapping({}).rate_hz = 5.0


def test_every_parameter_has_a_description_and_numbers_have_a_range():
    for spec in ros_fields():
        assert spec.metadata['description'].endswith('.'), spec.name
        if type(spec.default) in (int, float):
            assert spec.metadata['low'] <= spec.default <= spec.metadata['high'], spec.name
    assert len(fields(Parameters)) == len(ros_fields()) + 1


def test_the_documented_table_is_current():
    document = Path(__file__).parents[1] / 'docs' / 'parameters.md'
    assert document.read_text(encoding='utf-8') == markdown_table(), (
        'run: python -m wamdiff_ros.parameter_table > docs/parameters.md'
    )
