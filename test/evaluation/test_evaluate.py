import json

import pytest
from training_data import records, tiny_checkpoint

from wamdiff_ros import cli
from wamdiff_ros.runtime.int8_linear import Int8Linear
from wamdiff_ros.training.shards import ShardWriter


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp('evaluation')
    tiny_checkpoint(folder / 'one_by_one')
    tiny_checkpoint(folder / 'blocks', block_size=32)
    with ShardWriter(folder / 'shards' / 'shard-000000.tar') as writer:
        for index, record in enumerate(records(4)):
            writer.write(f'{index:08d}', record)
    return folder


def test_autoregressive_and_block_checkpoints_are_compared(folder, tmp_path, capsys):
    args = ['evaluate', str(folder / 'one_by_one'), str(folder / 'blocks')]
    args += ['--data', str(folder / 'shards'), '--count', '2', '--out', str(tmp_path), '--json']
    assert cli.main(args) == 0
    report = json.loads(capsys.readouterr().out)
    assert report == json.loads((tmp_path / 'evaluation.json').read_text())
    assert (report['records'], report['routes']) == (2, 2)
    one, blocks = report['checkpoints']
    # Random weights answer nonsense, which is counted, not dropped.
    assert one['parsed'] + sum(count for _, count in one['refusals']) == 2
    assert one['forwards'] > 0 and blocks['forwards'] > 0
    assert 0 < one['seconds_p50'] <= one['seconds_p95']
    assert [d['name'] for d in report['differences']] == [str(folder / 'blocks')]
    text = (tmp_path / 'evaluation.txt').read_text()
    assert 'against one_by_one' in text and '\nblocks ' in text
    assert (tmp_path / 'errors.png').read_bytes().startswith(b'\x89PNG')


@pytest.mark.parametrize(
    ('checkpoint', 'data', 'said'),
    [('missing', 'shards', 'no such folder'), ('blocks', 'missing', 'there are no shards')],
)
def test_what_is_not_there_is_refused_in_one_line(folder, capsys, checkpoint, data, said):
    args = ['evaluate', str(folder / checkpoint), '--data', str(folder / data)]
    assert cli.main(args) == 1
    assert said in capsys.readouterr().err


@pytest.mark.skipif(not Int8Linear.available(), reason='this CPU has no kernels for int8_dynamic')
def test_a_quantised_checkpoint_is_compared_with_itself(folder, capsys):
    args = ['evaluate', str(folder / 'blocks'), '--data', str(folder / 'shards'), '--json']
    args += ['--count', '1', '--quantisation', 'language=int8_dynamic']
    assert cli.main(args) == 0
    names = [one['name'] for one in json.loads(capsys.readouterr().out)['checkpoints']]
    assert names == [str(folder / 'blocks'), f'{folder / "blocks"} language=int8_dynamic']


def test_a_quantisation_that_is_none_is_refused(folder, capsys):
    args = ['evaluate', str(folder / 'blocks'), '--data', str(folder / 'shards')]
    assert cli.main([*args, '--quantisation', 'int3']) == 1
    assert "'int3' is not one of" in capsys.readouterr().err
