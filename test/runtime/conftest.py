import pytest


@pytest.fixture(scope='session')
def exported(tmp_path_factory):
    """A golden vision tower, a cache folder with its float32 ONNX file, and its VisionFiles."""
    for module in ('onnx', 'onnxscript', 'onnxruntime'):
        pytest.importorskip(module, reason=f'{module} is not installed (requirements/export.txt)')
    from golden_data import golden_engine

    from wamdiff_ros.runtime.engine_cache import write_key
    from wamdiff_ros.runtime.onnx_vision import export_vision
    from wamdiff_ros.runtime.vision_engine import VisionFiles

    folder = tmp_path_factory.mktemp('exported')
    tower = golden_engine('A_tied', folder).network.vision
    files = VisionFiles.of(tower, 'golden', folder, 'fp32')
    files.onnx.parent.mkdir()
    export_vision(tower, files.onnx, 'fp32')
    write_key(files.onnx, files.key, (files.weights,))
    return tower, folder, files
