import json

import pytest
from golden_data import checkpoint

from wamdiff_ros.model.config import CheckpointError, load_config
from wamdiff_ros.model.image_processor import ImageProcessor

# As published with Qwen3-VL, and as transformers writes it with every field.
PUBLISHED = {
    'size': {'longest_edge': 16777216, 'shortest_edge': 65536},
    'patch_size': 16,
    'temporal_patch_size': 2,
    'merge_size': 2,
    'image_mean': [0.5, 0.5, 0.5],
    'image_std': [0.5, 0.5, 0.5],
    'processor_class': 'Qwen3VLProcessor',
    'image_processor_type': 'Qwen2VLImageProcessorFast',
}
WRITTEN_OUT = PUBLISHED | {
    'crop_size': None,
    'data_format': 'channels_first',
    'default_to_square': True,
    'device': None,
    'disable_grouping': None,
    'do_center_crop': None,
    'do_convert_rgb': True,
    'do_normalize': True,
    'do_pad': None,
    'do_rescale': True,
    'do_resize': True,
    'max_pixels': None,
    'min_pixels': None,
    'pad_size': None,
    'resample': 3,
    'rescale_factor': 0.00392156862745098,
    'return_tensors': None,
}


def load(tmp_path, values, name='preprocessor_config.json'):
    folder = checkpoint('A_tied', tmp_path)
    (folder / name).write_text(json.dumps(values))
    return ImageProcessor.load(folder, load_config(folder).vision)


@pytest.mark.parametrize('values', (PUBLISHED, WRITTEN_OUT))
def test_published_files_are_understood(values, tmp_path):
    processor = load(tmp_path, values)
    assert (processor.min_pixels, processor.max_pixels) == (65536, 16777216)
    assert processor.grid(1080, 1920) == (1, 68, 120)


def test_min_and_max_pixels_come_before_size(tmp_path):
    processor = load(tmp_path, PUBLISHED | {'min_pixels': 3136, 'max_pixels': 12845056})
    assert (processor.min_pixels, processor.max_pixels) == (3136, 12845056)


def test_the_newer_place_in_processor_config_is_read_too(tmp_path):
    values = {'image_processor': WRITTEN_OUT, 'processor_class': 'Qwen3VLProcessor'}
    assert load(tmp_path, values, 'processor_config.json').max_pixels == 16777216


@pytest.mark.parametrize(
    ('change', 'named'),
    [
        ({'do_resize': False}, 'do_resize'),
        ({'do_normalize': False}, 'do_normalize'),
        ({'do_center_crop': True}, 'do_center_crop'),
        ({'resample': 2}, 'resample is 2'),
        ({'rescale_factor': 1.0}, 'rescale_factor'),
        ({'patch_size': 16.5}, 'patch_size is 16.5'),
        ({'size': None}, 'min_pixels is missing'),
        ({'size': 448}, 'size'),
        ({'size': {'shortest_edge': 65536}}, 'size.longest_edge is missing'),
        ({'max_pixels': 100}, 'max_pixels 100'),
        ({'image_mean': [0.5]}, 'image_mean'),
        ({'image_mean': [0.5, 0.5, float('nan')]}, 'image_mean'),
        ({'image_std': [0.5, 0.5, 0.0]}, 'image_std'),
    ],
)
def test_preprocessing_that_asks_for_something_else_is_refused_by_name(change, named, tmp_path):
    with pytest.raises(CheckpointError, match=f'preprocessor_config.json: .*{named}'):
        load(tmp_path, PUBLISHED | change)


@pytest.mark.parametrize('values', ([], 'x', None))
def test_a_preprocessor_file_that_is_no_object_is_refused_by_name(values, tmp_path):
    with pytest.raises(CheckpointError, match=r'preprocessor_config\.json'):
        load(tmp_path, values)
