"""What is around TensorRT: order of calls, shapes, cache; on a GPU, that it computes the same."""

import json
import threading

import pytest
import torch
from golden_data import grid, image_processor, inputs

from wamdiff_ros.model.config import load_config
from wamdiff_ros.model.image_processor import ImageProcessor
from wamdiff_ros.model.weights import LoadCancelled, load_network
from wamdiff_ros.runtime.onnx_vision import PRECISIONS, largest_deviation
from wamdiff_ros.runtime.tensorrt_vision import TensorRtError, VisionShapes, unavailable
from wamdiff_ros.runtime.vision_engine import (
    VisionFiles,
    load_vision_engine,
    provide_engine,
    sample_images,
    shapes_of,
)
from wamdiff_ros.share import share_path

for module in ('onnx', 'onnxscript', 'onnxruntime'):
    pytest.importorskip(module, reason=f'{module} is not installed (requirements/export.txt)')
import fake_tensorrt  # noqa: E402 - needs onnxruntime

PROCESSOR = image_processor().with_pixels(1024, 65536)  # 4 to 256 patches


def vision_of(exported, said=None, **options):
    tower, folder, _ = exported
    options = {
        'model_name': 'golden', 'cache_dir': folder, 'precision': 'fp32',
        'progress': (said if said is not None else []).append, **options,
    }  # fmt: skip
    return load_vision_engine(tower, PROCESSOR, **options)


@pytest.fixture
def fake(monkeypatch, exported):
    fake_tensorrt.install(monkeypatch)
    for path in exported[1].rglob('*.engine*'):
        path.unlink()


def test_the_engine_takes_the_place_of_the_tower(fake, exported):
    tower, *_ = exported
    vision = vision_of(exported, images=2)
    assert vision.name == 'tensorrt fp32'
    for image in ('img1', 'img2'):
        patches = inputs()[f'{image}.pixel_values']
        wanted, mine = tower(patches, grid(image)), vision(patches, grid(image))
        torch.testing.assert_close(mine[0], wanted[0], atol=1e-4, rtol=0)
        for a, b in zip(mine[1], wanted[1], strict=True):
            torch.testing.assert_close(a, b, atol=1e-4, rtol=0)
    both = torch.stack((patches, patches.flip(0)))
    torch.testing.assert_close(
        vision(both, grid(image))[0], tower(both, grid(image))[0], atol=1e-4, rtol=0
    )


def test_an_engine_is_built_once_and_again_only_for_another_machine(fake, exported, monkeypatch):
    said = []
    vision_of(exported, said)
    assert any('TensorRT builds' in line for line in said)
    said.clear()
    vision_of(exported, said)
    assert said == ['warming up the vision engine']
    monkeypatch.setattr(torch.cuda, 'get_device_name', lambda: 'Other')
    vision_of(exported, said)
    assert any("was made for gpu 'Fake', this is 'Other'" in line for line in said)
    assert len(fake_tensorrt.engines) == 2
    key = json.loads((exported[2].engine.parent / 'vision_fp32.engine.json').read_text())
    assert (key['gpu'], key['tensorrt']) == ('Other', fake_tensorrt.__version__)


def test_images_that_the_engine_was_not_built_for_are_refused_by_name(fake, exported):
    vision = vision_of(exported)
    patches = torch.zeros(1, 400, 1536)
    with pytest.raises(ValueError, match='1 images of 400 patches: the vision engine was built'):
        vision(patches, (1, 20, 20))
    with pytest.raises(ValueError, match='2 images of 24 patches'):
        vision(torch.zeros(2, 24, 1536), (1, 4, 6))


def test_another_thread_is_refused(fake, exported):
    vision = vision_of(exported)
    errors = []

    def call():
        try:
            vision(torch.zeros(24, 1536), (1, 4, 6))
        except TensorRtError as error:
            errors.append(str(error))

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    assert errors == ['the vision engine belongs to the thread that loaded it']


def test_a_build_ends_when_the_process_does(fake, exported):
    tower, _, files = exported
    shapes = shapes_of(PROCESSOR, 1)
    with pytest.raises(LoadCancelled):
        provide_engine(files, tower, shapes, cancelled=lambda: True)
    assert not files.engine.exists()


def test_what_tensorrt_cannot_read_is_said_with_its_reason(fake, exported, tmp_path):
    tower, *_ = exported
    files = VisionFiles.of(tower, 'broken', tmp_path, 'fp32')
    files.onnx.parent.mkdir()
    files.onnx.write_bytes(b'no onnx')
    files.weights.write_bytes(b'')
    with pytest.raises(TensorRtError, match=r'TensorRT .* cannot read it'):
        provide_engine(files, tower, VisionShapes(4, 64, 64, 1))


@pytest.mark.parametrize(
    ('version', 'precision', 'reason'),
    [
        ('8.6.2', 'fp16', 'TensorRT is 8.6.2, wanted 10.3 or newer'),
        ('11.4.0', 'fp8', 'FP8 needs compute capability 8.9, this GPU has 8.7'),
        ('10.3.0', 'fp16', None),
    ],
)
def test_old_versions_and_gpus_without_fp8_are_refused(
    version, precision, reason, fake, monkeypatch
):
    monkeypatch.setattr(fake_tensorrt, '__version__', version)
    assert unavailable(precision) == reason


# -- on a GPU ---------------------------------------------------------------------------------


def bundled():
    folder = share_path('models', 'nano')
    config = load_config(folder)
    network = load_network(folder, config, dtype=torch.bfloat16, device=torch.device('cuda'))
    return network.vision, ImageProcessor.load(folder, config.vision)


@pytest.mark.gpu
@pytest.mark.parametrize('precision', ['fp32', 'fp16'])
def test_tensorrt_equals_torch(precision, tmp_path):
    reason = unavailable(precision)
    if reason is not None:
        pytest.skip(reason)
    tower, processor = bundled()
    options = {'model_name': 'nano', 'cache_dir': tmp_path, 'precision': precision}
    vision = load_vision_engine(tower, processor, **options)

    def on_gpu(patches, size):
        return vision(patches.cuda(), size)

    limit = max(PRECISIONS[precision][1], 2e-3)  # TensorRT may take TF32 for float32
    assert largest_deviation(tower, on_gpu, list(sample_images(tower, processor))) < limit
    said = []
    load_vision_engine(tower, processor, **options, progress=said.append)
    assert said == ['warming up the vision engine'], 'the second start finds the engine'
