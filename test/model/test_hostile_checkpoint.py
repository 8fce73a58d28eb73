"""Damaged checkpoint files are refused with a CheckpointError, whatever the damage is.

Never another exception, never memory for what a header only claims.
"""

import contextlib
import json
import resource
from pathlib import Path

import pytest
import torch
from golden_data import checkpoint
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mutations import json_mutations, mutations

from wamdiff_ros.model.config import CheckpointError, load_config
from wamdiff_ros.model.image_processor import ImageProcessor
from wamdiff_ros.model.tokenizer import Tokenizer
from wamdiff_ros.model.weights import find_shards, load_network
from wamdiff_ros.training.nano import SIZES, write_random_weights, write_skeleton

CPU = torch.device('cpu')
# A folder for all examples of a test: each writes the one file that it damages.
in_one_folder = settings(
    max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp('checkpoint')
    write_skeleton(folder, SIZES['tiny'], ['The road is clear.'], 4)
    write_random_weights(folder, 0, 0.02)
    return folder


@contextlib.contextmanager
def replaced(file, content):
    good = file.read_bytes()
    file.write_bytes(content)
    try:
        yield
    finally:
        file.write_bytes(good)


@in_one_folder
@given(mutate=mutations())
def test_any_damage_to_the_header_of_the_weights(folder, mutate):
    config, file = load_config(folder), folder / 'model.safetensors'
    content = file.read_bytes()
    header_size = 8 + int.from_bytes(content[:8], 'little')
    damaged = mutate(content[:header_size]) + content[header_size:]
    with replaced(file, damaged), contextlib.suppress(CheckpointError):
        load_network(folder, config, dtype=torch.float32, device=CPU)


@pytest.mark.parametrize('shape', [[2**40, 2**20], [2**62], [0], [2**31, 2**31, 4], [-1, 4]])
def test_a_tensor_that_claims_a_huge_shape_takes_no_memory(folder, shape):
    config, file = load_config(folder), folder / 'model.safetensors'
    content = file.read_bytes()
    size = int.from_bytes(content[:8], 'little')
    header = json.loads(content[8 : 8 + size])
    name = next(key for key in header if key != '__metadata__')
    header[name]['shape'] = shape
    text = json.dumps(header).encode()
    damaged = len(text).to_bytes(8, 'little') + text + content[8 + size :]
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with replaced(file, damaged), pytest.raises(CheckpointError, match=r'model\.safetensors'):
        load_network(folder, config, dtype=torch.float32, device=CPU)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < 100_000


def load(name, folder):
    config = load_config(folder)
    if name == 'tokenizer.json':
        Tokenizer.load(folder, config)
    elif name == 'preprocessor_config.json':
        ImageProcessor.load(folder, config.vision)


@pytest.mark.parametrize('name', ['config.json', 'tokenizer.json', 'preprocessor_config.json'])
@in_one_folder
@given(mutate=json_mutations())
def test_any_value_in_a_json_file(folder, name, mutate):
    document = json.loads((folder / name).read_text())
    damaged = json.dumps(mutate(document)).encode('utf-8', 'surrogatepass')
    with replaced(folder / name, damaged), contextlib.suppress(CheckpointError):
        load(name, folder)


@pytest.mark.parametrize('name', ['config.json', 'tokenizer.json', 'preprocessor_config.json'])
@in_one_folder
@given(data=st.one_of(st.binary(max_size=60), st.sampled_from([b'[' * 10**5, b'1' * 10**5])))
def test_any_bytes_for_a_json_file(folder, name, data):
    with replaced(folder / name, data), contextlib.suppress(CheckpointError):
        load(name, folder)


@in_one_folder
@given(
    names=st.lists(
        st.one_of(
            st.text(max_size=30),
            st.sampled_from(
                ['../a.safetensors', '/etc/passwd', '..', '.', 'a/../b.safetensors', 'x\0y']
            ),
        ),
        min_size=1,
        max_size=3,
    )
)
def test_an_index_never_leads_out_of_its_folder(folder, names):
    index = folder / 'model.safetensors.index.json'
    index.write_text(json.dumps({'weight_map': {f't{i}': n for i, n in enumerate(names)}}))
    try:
        with contextlib.suppress(CheckpointError):
            for file in find_shards(folder):
                assert Path(file).parent == folder
    finally:
        index.unlink()


def test_the_golden_checkpoint_is_still_read(tmp_path):
    golden = checkpoint('A_tied', tmp_path)
    load_network(golden, load_config(golden), dtype=torch.float32, device=CPU)
