import json

from training_data import records, tiny_checkpoint

from wamdiff_ros import cli
from wamdiff_ros.model.config import load_config
from wamdiff_ros.parameters import Parameters
from wamdiff_ros.runtime.session import PlanningSession
from wamdiff_ros.simulation.drive import to_json
from wamdiff_ros.simulation.score import RouteScore
from wamdiff_ros.training import bundle, nano
from wamdiff_ros.training.shards import ShardWriter


def test_the_planner_loads_what_was_bundled_and_the_card_says_what_was_measured(tmp_path):
    checkpoint, out = tiny_checkpoint(tmp_path / 'step_000005', 32), tmp_path / 'models' / 'nano'
    (checkpoint / 'training').mkdir()
    out.mkdir(parents=True)
    (out / 'old.json').touch()
    with ShardWriter(tmp_path / 'data' / 'shard-000000.tar') as writer:
        writer.write('0', records(1)[0])
    args = ['evaluate', str(checkpoint), '--data', str(tmp_path / 'data')]
    assert cli.main([*args, '--out', str(tmp_path / 'evaluation')]) == 0
    (tmp_path / 'drive').mkdir()
    scores = [_score(seed, collisions=seed == 1) for seed in range(4)]
    (tmp_path / 'drive' / 'drive.json').write_text(json.dumps(to_json(scores, 'tiny')))

    args = [
        checkpoint,
        out,
        '--evaluation',
        tmp_path / 'evaluation',
        '--drive',
        tmp_path / 'drive',
    ]
    assert bundle.main([*map(str, args)]) == 0
    assert sorted(path.name for path in out.iterdir()) == [
        'README.md', 'config.json', 'model.safetensors', 'preprocessor_config.json',
        'prompts.json', 'tokenizer.json',
    ]  # fmt: skip
    card = (out / 'README.md').read_text()
    assert '75.0%' in card and '1\ncollisions' in card and 'block size 32' in card
    assert (tmp_path / 'evaluation' / 'evaluation.txt').read_text().strip() in card
    PlanningSession.load(Parameters.from_mapping({'model_dir': str(out)}))


def test_nothing_is_replaced_while_a_result_is_missing(tmp_path, capsys):
    checkpoint, out = tiny_checkpoint(tmp_path / 'step_000005'), tmp_path / 'nano'
    out.mkdir()
    args = [checkpoint, out, '--evaluation', tmp_path, '--drive', tmp_path]
    assert bundle.main([*map(str, args)]) == 1
    assert 'drive.json' in capsys.readouterr().err
    assert list(out.iterdir()) == []


def test_training_starts_from_a_checkpoint_that_the_seed_decides(tmp_path, capsys):
    for name in ('a', 'b'):
        assert nano.main([str(tmp_path / name), '--size', 'tiny', '--seed', '3']) == 0
    weights = [(tmp_path / name / 'model.safetensors').read_bytes() for name in ('a', 'b')]
    assert weights[0] == weights[1]
    assert load_config(tmp_path / 'a').block_size == 1
    assert nano.main([str(tmp_path / 'a')]) == 1
    assert 'is there already' in capsys.readouterr().err


def _score(seed, collisions):
    return RouteScore(
        seed=seed, completed=not collisions, collisions=int(collisions), off_road=0, red_lights=0,
        wrong_way=0, completion=1.0, duration_s=60.0, lane_deviation_m=0.1, progress=1.0,
        time_to_collision=1.0, comfort=1.0, pdms=1.0, not_nominal=0.0, faults=(),
    )  # fmt: skip
