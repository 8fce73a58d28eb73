import json
import threading

import pytest
import torch
from golden_data import GOLDEN, checkpoint
from safetensors.torch import load_file, save_file

from wamdiff_ros.model.config import CheckpointError, load_config
from wamdiff_ros.model.weights import LoadCancelled, load_network, save_network

CPU = torch.device('cpu')
NORM = 'model.language_model.norm.weight'


def load(folder, dtype=torch.float32, **options):
    return load_network(folder, load_config(folder), dtype=dtype, device=CPU, **options)


def rewrite(folder, change):
    """Replace the checkpoint's weights by what `change` makes of them."""
    tensors = load_file(folder / 'model.safetensors')
    change(tensors)
    (folder / 'model.safetensors').unlink()
    save_file(tensors, folder / 'model.safetensors')


@pytest.mark.parametrize(
    ('change', 'named'),
    [
        (lambda t: t.pop(NORM), f'{NORM} is missing'),
        (lambda t: t.update(extra=torch.zeros(1)), 'extra belongs to no part'),
        (lambda t: t.update({NORM: torch.zeros(65)}), rf'{NORM} has shape \[65\]'),
        (lambda t: t.update({NORM: torch.zeros(64, dtype=torch.int64)}), f'{NORM} is I64'),
        (lambda t: t.update({NORM: torch.full((64,), torch.nan)}), f'{NORM} holds NaN'),
        (lambda t: t.update({'lm_head.weight': torch.zeros(512, 64)}), 'lm_head.weight differs'),
    ],
)
def test_a_wrong_tensor_is_refused_by_file_and_name(change, named, tmp_path):
    folder = checkpoint('A_tied', tmp_path)
    rewrite(folder, change)
    with pytest.raises(CheckpointError, match=named) as error:
        load(folder)
    assert str(folder) in str(error.value)


@pytest.mark.parametrize('keep', (0, 5, 1000, -4))
def test_a_truncated_file_is_refused_by_name(keep, tmp_path):
    folder = checkpoint('A_tied', tmp_path)
    content = (folder / 'model.safetensors').read_bytes()
    (folder / 'model.safetensors').unlink()
    (folder / 'model.safetensors').write_bytes(content[:keep])
    with pytest.raises(CheckpointError, match=r'model\.safetensors: not a readable'):
        load(folder)


def test_a_header_that_claims_a_huge_size_is_refused_before_it_is_allocated(tmp_path):
    folder = checkpoint('A_tied', tmp_path)
    (folder / 'model.safetensors').unlink()
    (folder / 'model.safetensors').write_bytes((2**62).to_bytes(8, 'little') + b'{}')
    with pytest.raises(CheckpointError, match=r'model\.safetensors'):
        load(folder)


@pytest.mark.parametrize('name', ('pytorch_model.bin', 'model.pt', 'weights.ckpt'))
def test_pickled_weights_are_refused(name, tmp_path):
    folder = checkpoint('A_tied', tmp_path)
    (folder / 'model.safetensors').unlink()
    (folder / name).write_bytes(b'\x80\x04.')
    with pytest.raises(CheckpointError, match=f'{name}.*convert the checkpoint to safetensors'):
        load(folder)


def test_a_folder_without_weights_is_refused(tmp_path):
    folder = checkpoint('A_tied', tmp_path)
    (folder / 'model.safetensors').unlink()
    with pytest.raises(CheckpointError, match='holds neither'):
        load(folder)


def shard(folder):
    """Split the checkpoint into two shards with an index; returns the index."""
    tensors = load_file(folder / 'model.safetensors')
    (folder / 'model.safetensors').unlink()
    names = sorted(tensors)
    files = ('model-1-of-2.safetensors', 'model-2-of-2.safetensors')
    parts = (names[: len(names) // 2], names[len(names) // 2 :])
    weight_map = {}
    for file, part in zip(files, parts, strict=True):
        save_file({name: tensors[name] for name in part}, folder / file)
        weight_map |= dict.fromkeys(part, file)
    return weight_map


def write_index(folder, weight_map):
    index = folder / 'model.safetensors.index.json'
    index.write_text(json.dumps({'metadata': {}, 'weight_map': weight_map}))


def test_shards_load_like_one_file(tmp_path):
    whole = load(checkpoint('B_untied', tmp_path / 'whole')).state_dict()
    folder = checkpoint('B_untied', tmp_path / 'sharded')
    write_index(folder, shard(folder))
    assert all(torch.equal(whole[k], v) for k, v in load(folder).state_dict().items())


@pytest.mark.parametrize(
    ('file', 'reason'),
    [
        ('../outside.safetensors', 'no file name'),
        ('/etc/passwd', 'no file name'),
        ('absent.safetensors', 'no such file'),
        ('model.bin', 'only safetensors'),
        ('model-2-of-2.safetensors', 'in the file but not listed in the index'),
    ],
)
def test_an_index_that_points_elsewhere_is_refused(file, reason, tmp_path):
    folder = checkpoint('B_untied', tmp_path)
    weight_map = shard(folder)
    weight_map[NORM] = file  # it is in the first shard
    write_index(folder, weight_map)
    with pytest.raises(CheckpointError, match=reason):
        load(folder)


@pytest.mark.parametrize('stored', (torch.float32, torch.bfloat16, torch.float16))
@pytest.mark.parametrize('wanted', (torch.float32, torch.bfloat16))
def test_every_stored_precision_loads_in_every_wanted_one(stored, wanted, tmp_path):
    folder = checkpoint('A_tied', tmp_path)
    reference = load(folder).state_dict()
    rewrite(folder, lambda t: t.update({k: v.to(stored) for k, v in t.items()}))
    for name, tensor in load(folder, wanted).state_dict().items():
        assert tensor.dtype == wanted
        assert torch.equal(tensor, reference[name].to(stored).to(wanted))


def test_a_stored_copy_of_a_tied_head_is_accepted(tmp_path):
    folder = checkpoint('A_tied', tmp_path)
    embedding = 'model.language_model.embed_tokens.weight'
    rewrite(folder, lambda t: t.update({'lm_head.weight': t[embedding].clone()}))
    assert load(folder).lm_head is None


def test_what_is_saved_loads_again(tmp_path):
    folder = checkpoint('B_untied', tmp_path)
    network = load(folder)
    (folder / 'model.safetensors').unlink()
    save_network(network, folder / 'model.safetensors', torch.float32)
    golden = load_file(GOLDEN / 'B_untied' / 'model.safetensors')
    mine = load_file(folder / 'model.safetensors')
    assert mine.keys() == golden.keys()
    assert all(torch.equal(mine[name], golden[name]) for name in golden)


def test_loading_stops_between_tensors_when_it_is_cancelled(tmp_path):
    folder = checkpoint('A_tied', tmp_path)
    cancelled = threading.Event()
    cancelled.set()
    with pytest.raises(LoadCancelled):
        load(folder, cancelled=cancelled.is_set)
