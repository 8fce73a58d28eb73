"""Damaged shards give the records that are whole, or a ShardError."""

import contextlib
import io
import json
import tarfile

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mutations import json_mutations, mutations
from PIL import Image
from training_data import records

from wamdiff_ros.training.records import RecordError, decode_image
from wamdiff_ros.training.shards import ShardError, Shards, ShardWriter

in_one_folder = settings(
    max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(scope='module')
def shard(tmp_path_factory):
    path = tmp_path_factory.mktemp('shards') / 'good.tar'
    with ShardWriter(path) as writer:
        for number, record in enumerate(records(2)):
            writer.write(f'{number:06d}', record)
    return path


def read(path, content):
    damaged = path.with_name('damaged.tar')
    damaged.write_bytes(content)
    damaged.with_suffix('.index.json').unlink(missing_ok=True)
    with contextlib.suppress(ShardError):
        shards = Shards(damaged)
        try:
            for index in range(len(shards)):
                with contextlib.suppress(ShardError):
                    shards[index].to_json()
        finally:
            shards.close()


@in_one_folder
@given(mutate=mutations())
def test_any_damage_to_the_archive(shard, mutate):
    read(shard, mutate(shard.read_bytes()))


@in_one_folder
@given(mutate=json_mutations())
def test_any_value_in_a_record(shard, mutate):
    (record,) = records(1)
    read(shard, archive({'a.jpg': record.images['jpg'], 'a.json': mutate(record.to_json())}))


@settings(max_examples=150)
@given(mutate=mutations(), kind=st.sampled_from(['JPEG', 'PNG', 'WEBP']))
def test_any_damage_to_a_picture(mutate, kind):
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (24, 32, 3), np.uint8)).save(
        file, kind
    )
    with contextlib.suppress(RecordError):
        assert decode_image(mutate(file.getvalue())).ndim == 3


def test_other_formats_are_not_opened():
    file = io.BytesIO()
    Image.new('RGB', (4, 4)).save(file, 'PPM')
    with pytest.raises(RecordError, match='cannot be decoded'):
        decode_image(file.getvalue())


@in_one_folder
@given(number=st.sampled_from([10**400, -(10**400), 1e308, True, '1', None, [], {}]))
def test_any_number_in_a_record(shard, number):
    (record,) = records(1)
    for name in ('seed', 'time_s', 'yaw_rate_radps', 'velocity_base_mps'):
        read(shard, archive({'a.jpg': b'', 'a.json': {**record.to_json(), name: number}}))


@in_one_folder
@given(index=st.one_of(st.binary(max_size=60), json_mutations()))
def test_any_kept_index(shard, index):
    kept = shard.with_suffix('.index.json')
    Shards(shard)
    if callable(index):
        content = json.loads(kept.read_text())
        index = json.dumps(index(content)).encode('utf-8', 'surrogatepass')
    kept.write_bytes(index)
    with contextlib.suppress(ShardError):
        for record in Shards(shard):
            record.to_json()
    kept.unlink()


def test_members_that_point_elsewhere_are_never_opened(shard, tmp_path):
    secret = tmp_path / 'secret.json'
    secret.write_text('{}')
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode='w') as tar:
        for name, kind in (('a.json', tarfile.SYMTYPE), ('b.json', tarfile.LNKTYPE)):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, str(secret)
            tar.addfile(info)
    path = shard.with_name('links.tar')
    path.write_bytes(file.getvalue())
    assert len(Shards(path)) == 0


def archive(members):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode='w', format=tarfile.USTAR_FORMAT) as tar:
        for name, content in members.items():
            if not isinstance(content, bytes):
                content = json.dumps(content).encode('utf-8', 'surrogatepass')
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return file.getvalue()
