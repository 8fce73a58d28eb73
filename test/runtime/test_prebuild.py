import pytest
import torch

from wamdiff_ros.cli import main


def prebuild(capsys, *options):
    code = main(['prebuild', *map(str, options)])
    return code, capsys.readouterr()


@pytest.mark.parametrize('options', [('--precision', 'fp8'), ('--calibration', '.')])
def test_fp8_and_its_calibration_go_together(options, capsys):
    code, said = prebuild(capsys, *options)
    assert code == 2
    assert '--precision fp8 and --calibration go together' in said.err


def test_an_engine_that_was_asked_for_and_cannot_be_built_is_a_failure(capsys, tmp_path):
    if torch.cuda.is_available():
        pytest.skip('this machine has a GPU')
    code, said = prebuild(capsys, '--engine', '--cache', tmp_path)
    assert code == 1
    assert 'no engine can be built here: torch finds no CUDA device' in said.err
    assert not any(tmp_path.iterdir())


def test_a_folder_that_is_no_checkpoint_is_refused(capsys, tmp_path):
    code, said = prebuild(capsys, '--model', tmp_path, '--cache', tmp_path / 'cache')
    assert code == 1
    assert 'config.json: no such file' in said.err


def test_calibration_without_a_readable_image_is_refused(capsys, tmp_path):
    code, said = prebuild(capsys, '--precision', 'fp8', '--calibration', tmp_path)
    assert code == 1
    assert 'holds no image' in said.err
    (tmp_path / 'a.png').write_bytes(b'no image')
    code, said = prebuild(capsys, '--precision', 'fp8', '--calibration', tmp_path)
    assert code == 1
    assert 'a.png: cannot be read as an image' in said.err


@pytest.mark.slow
def test_without_a_gpu_the_file_is_made_and_what_is_missing_is_said(capsys, tmp_path):
    if torch.cuda.is_available():
        pytest.skip('this machine has a GPU')
    pytest.importorskip('onnxscript', reason='not installed (requirements/export.txt)')
    code, said = prebuild(capsys, '--cache', tmp_path)
    assert code == 0
    assert 'from torch' in said.out
    assert 'no engine was built: torch finds no CUDA device' in said.out
    code, said = prebuild(capsys, '--cache', tmp_path)
    assert code == 0
    assert 'is there' in said.out
