"""The exported vision tower computes what the tower computes, at every size."""

import copy

import numpy as np
import pytest
import torch
from golden_data import grid, image_processor, inputs

from wamdiff_ros.model.config import load_config
from wamdiff_ros.model.image_processor import ImageProcessor
from wamdiff_ros.model.weights import load_network
from wamdiff_ros.runtime import onnx_fp8
from wamdiff_ros.runtime.engine_cache import CacheMismatch, insist_on_match
from wamdiff_ros.runtime.onnx_vision import (
    INPUTS,
    PRECISIONS,
    OnnxVision,
    VisionExportError,
    check_vision,
    largest_deviation,
    output_names,
    tower_sha256,
    vision_inputs,
)
from wamdiff_ros.runtime.tensorrt_vision import (
    TensorRtUnavailable,
    VisionShapes,
    profile_shapes,
    unavailable,
)
from wamdiff_ros.runtime.vision_engine import (
    VisionFiles,
    load_vision_engine,
    provide_onnx,
    shapes_of,
)
from wamdiff_ros.share import share_path

onnx = pytest.importorskip('onnx', reason='onnx is not installed (requirements/export.txt)')
pytest.importorskip('onnxscript', reason='onnxscript is not installed (requirements/export.txt)')
pytest.importorskip('onnxruntime', reason='onnxruntime is not installed (requirements/export.txt)')

GRIDS = [(1, 2, 2), (1, 2, 8), (1, 6, 4), (1, 10, 10)]


def noise(tower, grids=GRIDS, seed=0):
    generator = torch.Generator().manual_seed(seed)
    dim = tower.patch_embed.proj.weight[0].numel()
    return [(torch.rand(h * w, dim, generator=generator) * 2 - 1, (1, h, w)) for _, h, w in grids]


@pytest.fixture
def golden(exported):
    tower, _, files = exported
    return tower, files.onnx


def test_one_file_serves_every_grid_and_number_of_images(golden):
    tower, file = golden
    vision = OnnxVision(tower, file, 'fp32')
    assert check_vision(tower, file, 'fp32', noise(tower)) < 1e-5
    (a, size), (b, _) = noise(tower, [(1, 4, 6)]) + noise(tower, [(1, 4, 6)], seed=1)
    tokens, deepstack = vision(torch.stack((a, b)), size)
    wanted, wanted_deepstack = tower(torch.stack((a, b)), size)
    torch.testing.assert_close(tokens, wanted, atol=1e-4, rtol=0)
    for mine, right in zip(deepstack, wanted_deepstack, strict=True):
        torch.testing.assert_close(mine, right, atol=1e-4, rtol=0)


def test_real_images_encode_to_the_golden_features(golden):
    tower, file = golden
    for image in ('img1', 'img2'):
        patches = inputs()[f'{image}.pixel_values']
        tokens, _ = OnnxVision(tower, file, 'fp32')(patches, grid(image))
        torch.testing.assert_close(tokens, tower(patches, grid(image))[0], atol=1e-4, rtol=0)


def test_the_file_has_the_names_and_types_that_engines_ask_for(golden):
    tower, file = golden
    graph = onnx.load(file).graph
    assert tuple(value.name for value in graph.input) == INPUTS
    assert [value.name for value in graph.output] == output_names(tower)
    shapes = profile_shapes(tower, VisionShapes(4, 64, 128, 2))
    for value, (name, *sizes) in zip(graph.input, shapes, strict=True):
        dims = [dim.dim_value or dim.dim_param for dim in value.type.tensor_type.shape.dim]
        for size in sizes:
            assert len(size) == len(dims), name
            fixed = [s for s, dim in zip(size, dims, strict=True) if isinstance(dim, int)]
            assert fixed == [dim for dim in dims if isinstance(dim, int)], name


def test_a_file_that_deviates_is_refused(golden, tmp_path):
    tower, file = golden
    model = onnx.load(file)
    weight = next(t for t in model.graph.initializer if len(t.dims) == 2)
    values = onnx.numpy_helper.to_array(weight) * 1.01
    weight.CopyFrom(onnx.numpy_helper.from_array(values, weight.name))
    onnx.save(model, tmp_path / 'changed.onnx')
    with pytest.raises(VisionExportError, match=r'deviates by .* fp32 may by 1e-05'):
        check_vision(tower, tmp_path / 'changed.onnx', 'fp32', noise(tower))


def test_a_result_that_is_not_a_number_is_no_small_deviation(golden):
    tower, _ = golden
    images = noise(tower, [(1, 2, 2)])

    def broken(patches, size):
        tokens, deepstack = tower(patches, size)
        return tokens * torch.nan, deepstack

    assert largest_deviation(tower, tower, images) < 1e-6
    assert largest_deviation(tower, broken, images) == float('inf')


def test_patches_that_do_not_fill_the_grid_are_refused(golden):
    tower, file = golden
    with pytest.raises(ValueError, match='do not fill a grid'):
        OnnxVision(tower, file, 'fp32')(noise(tower, [(1, 2, 2)])[0][0], (1, 4, 4))


def test_fp8_quantises_every_linear_layer_of_the_blocks_within_its_tolerance(golden, tmp_path):
    tower, file = golden
    images = noise(tower, seed=2)

    def feeds():
        for patches, size in images:
            values = vision_inputs(tower, patches[None], size, torch.float32)
            yield {name: value.numpy() for name, value in zip(INPUTS, values, strict=True)}

    largest = onnx_fp8.measure_inputs(file, feeds())
    assert all(value > 0 for value in largest.values())
    layers = onnx_fp8.quantise(file, tmp_path / 'fp8.onnx', largest)
    # Per block: qkv, proj and two of the MLP; per merger two.
    mergers = 1 + len(tower.deepstack_merger_list)
    assert layers == 4 * len(tower.blocks) + 2 * mergers
    onnx.checker.check_model(tmp_path / 'fp8.onnx', full_check=True)
    vision = OnnxVision(tower, tmp_path / 'fp8.onnx', 'fp32')  # the golden file's own type
    # A tiny tower with random weights averages over few products: twice a real one's tolerance.
    _, limit = PRECISIONS['fp8']
    deviation = largest_deviation(tower, vision, images)
    assert 1e-4 < deviation < 2 * limit, 'quantised, and not by too much'
    with pytest.raises(ValueError, match='no calibration image'):
        onnx_fp8.measure_inputs(file, [])


def test_the_digest_knows_weights_and_not_how_they_are_held(golden):
    tower, _ = golden
    half = copy.deepcopy(tower).to(torch.bfloat16)
    again = copy.deepcopy(half).to(torch.float32)
    assert tower_sha256(half) == tower_sha256(again) != tower_sha256(tower)


@pytest.mark.slow
def test_the_onnx_file_is_made_once_and_again_when_the_tower_changes(golden, tmp_path):
    tower, _ = golden
    files = VisionFiles.of(tower, 'golden', tmp_path, 'fp16')
    said = []
    deviation = provide_onnx(files, tower, image_processor(), progress=said.append)
    assert deviation < PRECISIONS['fp16'][1]
    assert said[0].startswith('exporting')
    said.clear()
    assert provide_onnx(files, tower, image_processor(), progress=said.append) is None
    assert said == []
    left = {path.name for path in files.onnx.parent.iterdir()}
    assert left == {files.onnx.name, files.weights.name, f'{files.onnx.name}.json'}
    with pytest.raises(CacheMismatch, match='was made for tower_sha256'):
        insist_on_match(files.onnx, {**files.key, 'tower_sha256': 'other'}, (files.weights,))


def test_fp8_without_calibration_says_what_it_needs(golden, tmp_path):
    tower, _ = golden
    files = VisionFiles.of(tower, 'golden', tmp_path, 'fp8')
    with pytest.raises(VisionExportError, match='--calibration FOLDER'):
        provide_onnx(files, tower, image_processor())


def test_shapes_cover_every_image_that_the_processor_makes():
    processor = image_processor()
    shapes = shapes_of(processor, 3)
    for height, width in ((1, 1), (1080, 1920), (300, 200), (40, 2000), (5000, 5000)):
        _, rows, columns = processor.grid(height, width)
        assert shapes.least_patches <= rows * columns <= shapes.most_patches
    assert shapes.most_images == 3


def test_without_a_gpu_tensorrt_is_refused_with_the_reason(golden, tmp_path):
    if unavailable('fp16') is None:
        pytest.skip('this machine has a GPU and TensorRT')
    tower, _ = golden
    with pytest.raises(TensorRtUnavailable, match='vision_backend: tensorrt is wanted, but'):
        load_vision_engine(tower, image_processor(), model_name='golden', cache_dir=tmp_path)


# -- the bundled checkpoint -------------------------------------------------------------------


def bundled():
    folder = share_path('models', 'nano')
    config = load_config(folder)
    network = load_network(folder, config, dtype=torch.bfloat16, device=torch.device('cpu'))
    return network.vision, ImageProcessor.load(folder, config.vision)


@pytest.mark.slow
@pytest.mark.parametrize('precision', ['fp32', 'fp16', 'fp8'])
def test_the_bundled_tower_deviates_by_less_than_the_stated_tolerance(precision, tmp_path):
    tower, processor = bundled()
    files = VisionFiles.of(tower, 'nano', tmp_path, precision)
    generator = np.random.default_rng(0)
    frames = [generator.integers(0, 256, (270, 480, 3), dtype=np.uint8) for _ in range(4)]
    calibration = frames if precision == 'fp8' else ()
    deviation = provide_onnx(files, tower, processor, calibration=calibration)
    assert 0 < deviation < PRECISIONS[precision][1]
