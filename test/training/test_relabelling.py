"""A teacher's answers in place of the expert's."""

import json
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image as Picture
from training_data import records, tiny_checkpoint

from wamdiff_ros import cli
from wamdiff_ros.parameters import Parameters
from wamdiff_ros.planning.answer import parse_waypoints
from wamdiff_ros.runtime.session import PlanningSession
from wamdiff_ros.training.records import ConversationRecord
from wamdiff_ros.training.relabelling import RelabellingError, relabel
from wamdiff_ros.training.shards import Shards, ShardWriter

MODELS = Path(__file__).parents[2] / 'models'


def road() -> bytes:
    """Encode a picture of 256 by 128 that the bundled models can make something of."""
    rgb = np.empty((128, 256, 3), np.uint8)
    rgb[:60], rgb[60:] = (150, 180, 220), (90, 90, 95)
    file = BytesIO()
    Picture.fromarray(rgb).save(file, 'jpeg')
    return file.getvalue()


@pytest.fixture
def data(tmp_path):
    """Two shards, of four and of three records."""
    made = [replace(record, images={'jpg': road()}) for record in records(7)]
    for number, part in enumerate((made[:4], made[4:])):
        with ShardWriter(tmp_path / f'data/shard-{number:06d}.tar') as writer:
            for place, record in enumerate(part):
                writer.write(f'{place:06d}', record)
    return tmp_path / 'data'


@pytest.mark.parametrize('model', ('nano_generalist', 'nano'))
def test_the_new_plans_are_what_the_checkpoint_answers_and_nothing_else_changes(
    data, tmp_path, model
):
    done = relabel([data], tmp_path / 'out', MODELS / model, at_once=3)
    before, after = Shards(data), Shards(tmp_path / 'out')
    assert (done.records, len(after), after.counts) == (7, 7, [4, 3])
    session = PlanningSession.load(
        Parameters.from_mapping({'model_dir': str(MODELS / model), 'threads': 1})
    )
    moved = []
    for place, old in enumerate(before):
        new = after[place]
        assert after.key(place) == before.key(place)
        session.reset()
        answer = parse_waypoints(session.plan(old.observation()).answer)
        assert new.waypoints_base_m == pytest.approx(answer.xy_base_m)
        moved.append(np.linalg.norm(new.waypoints_base_m - old.waypoints_base_m, axis=1).mean())
        same = replace(new, waypoints_base_m=old.waypoints_base_m)
        assert same.to_json() == old.to_json() and same.images == old.images
    assert max(moved) > 0.1
    assert (done.kept, done.moved_m) == (0, pytest.approx(np.mean(moved)))


def test_an_interrupted_run_goes_on_with_the_shards_that_are_missing(data, tmp_path):
    out = tmp_path / 'out'
    relabel([data], out, MODELS / 'nano')
    whole = [file.read_bytes() for file in sorted(out.glob('*.tar'))]
    kept = (out / 'shard-000000.tar').stat().st_mtime_ns
    (out / 'shard-000001.tar').unlink()
    relabel([data], out, MODELS / 'nano')
    assert [file.read_bytes() for file in sorted(out.glob('*.tar'))] == whole
    assert (out / 'shard-000000.tar').stat().st_mtime_ns == kept


def test_answers_that_are_no_plans_leave_the_experts_and_are_counted(data, tmp_path, capsys):
    babbler = tiny_checkpoint(tmp_path / 'babbler')  # random weights
    assert cli.main(['data', 'relabel', str(babbler), str(tmp_path / 'out'), str(data)]) == 1
    assert "7 kept the expert's" in capsys.readouterr().err
    for old, new in zip(Shards(data), Shards(tmp_path / 'out'), strict=True):
        assert (new.waypoints_base_m == old.waypoints_base_m).all()


def test_another_teacher_in_the_same_folder_is_refused(data, tmp_path):
    out = tmp_path / 'out'
    relabel([data], out, MODELS / 'nano')
    with pytest.raises(RelabellingError, match='was made otherwise'):
        relabel([data], out, MODELS / 'nano_generalist')
    (out / 'manifest.json').unlink()
    with pytest.raises(RelabellingError, match=r'no manifest\.json'):
        relabel([data], out, MODELS / 'nano')
    (out / 'manifest.json').write_text('[')
    with pytest.raises(RelabellingError, match='is no manifest'):
        relabel([data], out, MODELS / 'nano')


def test_a_conversation_is_refused_by_its_key(tmp_path):
    with ShardWriter(tmp_path / 'talk/shard-000000.tar') as writer:
        writer.write('000007', ConversationRecord('<image>why', 'so', {'jpg': b''}))
    with pytest.raises(RelabellingError, match='000007 is a converted conversation'):
        relabel([tmp_path / 'talk'], tmp_path / 'out', MODELS / 'nano')


def test_the_command_says_what_it_did_and_refuses_what_is_not_there(data, tmp_path, capsys):
    command = ['data', 'relabel', str(MODELS / 'nano'), str(tmp_path / 'out')]
    assert cli.main([*command, str(data), '--image-size', '256x128']) == 0
    assert '7 records; the new plans are' in capsys.readouterr().out
    assert json.loads((tmp_path / 'out/manifest.json').read_text())['image_size'] == [256, 128]
    assert cli.main([*command, str(tmp_path / 'none')]) == 2
    assert 'there are no shards' in capsys.readouterr().err
