"""What was built is used only for what it was built for."""

import json
import os
import stat

import pytest

from wamdiff_ros.runtime import engine_cache
from wamdiff_ros.runtime.engine_cache import (
    CacheMismatch,
    default_cache_dir,
    engine_key,
    insist_on_match,
    write_engine,
    write_key,
)

KEY = {
    'tensorrt': '11.4.0',
    'gpu': 'Orin',
    'compute_capability': (8, 7),
    'onnx_sha256': 'ab' * 32,
    'shapes': {'most_patches': 128, 'sizes': (1, 2)},
    'precision': 'fp16',
}


def test_what_was_written_for_a_key_is_found_for_it(tmp_path):
    file = tmp_path / 'folder' / 'vision.engine'
    write_engine(file, b'engine', engine_key(**KEY))
    insist_on_match(file, engine_key(**KEY))
    assert file.read_bytes() == b'engine'
    assert sorted(p.name for p in file.parent.iterdir()) == [file.name, f'{file.name}.json']
    assert not stat.S_IMODE(file.parent.stat().st_mode) & 0o022, 'others could plant an engine'


@pytest.mark.parametrize(
    ('field', 'value', 'reason'),
    [
        ('tensorrt', '11.5.0', "was made for tensorrt '11.4.0', this is '11.5.0'"),
        ('gpu', 'Thor', "was made for gpu 'Orin', this is 'Thor'"),
        ('compute_capability', (11, 0), "compute_capability '8.7', this is '11.0'"),
        ('onnx_sha256', 'cd' * 32, 'was made for onnx_sha256'),
        ('shapes', {'most_patches': 64}, 'was made for shapes'),
        ('precision', 'fp8', "was made for precision 'fp16', this is 'fp8'"),
    ],
)
def test_every_part_of_the_key_counts(field, value, reason, tmp_path):
    file = tmp_path / 'vision.engine'
    write_engine(file, b'engine', engine_key(**KEY))
    with pytest.raises(CacheMismatch, match='build it again') as caught:
        insist_on_match(file, engine_key(**{**KEY, field: value}))
    assert reason in str(caught.value)


def test_all_differences_are_named(tmp_path):
    file = tmp_path / 'vision.engine'
    write_engine(file, b'engine', engine_key(**KEY))
    other = engine_key(**{**KEY, 'gpu': 'Thor', 'tensorrt': '12'})
    with pytest.raises(CacheMismatch, match='also different: gpu'):
        insist_on_match(file, other)


def test_nothing_there_is_not_a_mismatch(tmp_path):
    file = tmp_path / 'vision.engine'
    with pytest.raises(FileNotFoundError, match='wamdiff prebuild'):
        insist_on_match(file, engine_key(**KEY))
    write_engine(file, b'engine', engine_key(**KEY))
    (tmp_path / 'vision.engine.json').unlink()
    with pytest.raises(FileNotFoundError, match=r'vision\.engine\.json'):
        insist_on_match(file, engine_key(**KEY))


def test_a_changed_file_is_refused(tmp_path):
    file = tmp_path / 'vision.engine'
    write_engine(file, b'engine', engine_key(**KEY))
    file.write_bytes(b'engin')
    with pytest.raises(CacheMismatch, match='is damaged or was changed'):
        insist_on_match(file, engine_key(**KEY))


@pytest.mark.parametrize('content', ['', '[]', '{"tensorrt": "11"}', '{"sha256": 1', 'null', '7'])
def test_a_damaged_key_is_refused(content, tmp_path):
    file = tmp_path / 'vision.engine'
    write_engine(file, b'engine', engine_key(**KEY))
    (tmp_path / 'vision.engine.json').write_text(content)
    with pytest.raises(CacheMismatch, match='cannot be read'):
        insist_on_match(file, engine_key(**KEY))


def test_a_file_of_two_parts_is_whole_only_with_both(tmp_path):
    file, weights = tmp_path / 'a.onnx', tmp_path / 'a.onnx.data'
    file.write_bytes(b'graph')
    weights.write_bytes(b'weights')
    write_key(file, {'precision': 'fp16'}, (weights,))
    insist_on_match(file, {'precision': 'fp16'}, (weights,))
    weights.write_bytes(b'other')
    with pytest.raises(CacheMismatch, match='is damaged'):
        insist_on_match(file, {'precision': 'fp16'}, (weights,))
    weights.unlink()
    with pytest.raises(FileNotFoundError, match=r'a\.onnx\.data'):
        insist_on_match(file, {'precision': 'fp16'}, (weights,))


@pytest.mark.parametrize('fails_at', [1, 2])
def test_an_interrupted_write_leaves_nothing_that_looks_whole(fails_at, tmp_path, monkeypatch):
    """The first rename is the engine's, the second its key's."""
    file = tmp_path / 'vision.engine'
    write_engine(file, b'old', engine_key(**KEY))
    calls, replace = [], os.replace

    def interrupted(source, target):
        calls.append(target)
        if len(calls) == fails_at:
            raise KeyboardInterrupt
        replace(source, target)

    monkeypatch.setattr(engine_cache.os, 'replace', interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_engine(file, b'new', engine_key(**{**KEY, 'gpu': 'Thor'}))
    for gpu in ('Orin', 'Thor'):
        with pytest.raises(FileNotFoundError):
            insist_on_match(file, engine_key(**{**KEY, 'gpu': gpu}))
    assert [p.name for p in tmp_path.iterdir()] == [file.name], 'temporary files are left'


def test_the_key_reads_back_as_it_was_written(tmp_path):
    file = tmp_path / 'vision.engine'
    write_engine(file, b'engine', engine_key(**KEY))
    stored = json.loads((tmp_path / 'vision.engine.json').read_text())
    assert {name: stored[name] for name in engine_key(**KEY)} == engine_key(**KEY)


def test_the_cache_is_in_the_users_cache_folder(monkeypatch, tmp_path):
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
    assert default_cache_dir() == tmp_path / 'wamdiff_ros'
