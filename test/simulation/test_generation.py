import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from wamdiff_ros import cli
from wamdiff_ros.simulation.generation import generate
from wamdiff_ros.simulation.settings import GenerationError, Settings
from wamdiff_ros.training.shards import Shards

FAST = {'every_s': 2.0, 'image_size': (64, 32), 'routes_per_shard': 1}


@pytest.fixture(scope='module')
def two_routes(tmp_path_factory):
    out = tmp_path_factory.mktemp('data')
    return out, generate(out, Settings(**FAST), routes=2, workers=2)


def test_records_hold_what_the_expert_would_do(two_routes):
    shards = Shards(two_routes[0])
    assert len(shards) == two_routes[1].records == two_routes[1].new_records > 10
    for record in shards:
        frame = record.observation().frames[0]
        assert frame.rgb.shape == (32, 64, 3)
        assert frame.rgb.std() > 5
        assert record.source in ('expert', 'perturbed')
        assert record.explanation
        # Nobody gets away from where the present speed can take them.
        reach_m = np.linalg.norm(record.waypoints_base_m[0])
        assert reach_m <= 0.5 * record.velocity_base_mps[0] + 1.0


def test_the_data_holds_recoveries(two_routes):
    sources = [record.source for record in Shards(two_routes[0])]
    assert 0.2 < sources.count('perturbed') / len(sources) < 0.9


def test_no_data_set_can_hold_the_routes_of_the_evaluation():
    assert Settings().seed_of(0) == 1_000_000
    assert Settings(split='validation').seed_of(499_999) == 999_999
    with pytest.raises(GenerationError, match='validation'):
        Settings(split='validation').seed_of(500_000)
    with pytest.raises(GenerationError, match='-1'):
        Settings(first_route=-1).seed_of(0)


def test_equal_settings_give_equal_shards_whatever_the_workers(two_routes, tmp_path):
    generate(tmp_path, Settings(**FAST), routes=1, workers=1)
    shard = 'shard-000000.tar'
    assert (tmp_path / shard).read_bytes() == (two_routes[0] / shard).read_bytes()


def test_a_run_goes_on_where_it_stopped_and_takes_more_routes(two_routes, tmp_path):
    out = two_routes[0]
    before = (out / 'shard-000000.tar').stat().st_mtime_ns
    whole = (out / 'shard-000001.tar').read_bytes()
    (out / 'shard-000001.tar').unlink()
    again = generate(out, Settings(**FAST), routes=1, workers=1)
    assert again.routes == 2
    assert 0 < again.new_records < again.records
    assert (out / 'shard-000001.tar').read_bytes() == whole
    assert (out / 'shard-000000.tar').stat().st_mtime_ns == before
    assert generate(out, Settings(**FAST), routes=2, workers=1).new_records == 0


def test_other_settings_in_the_same_folder_are_refused(two_routes):
    with pytest.raises(GenerationError, match=r'every_s 2.0 there, 1.0 asked for'):
        generate(two_routes[0], Settings(**{**FAST, 'every_s': 1.0}), routes=2)


def test_a_folder_of_other_shards_is_refused(tmp_path):
    (tmp_path / 'shard-000000.tar').write_bytes(b'')
    with pytest.raises(GenerationError, match='no manifest'):
        generate(tmp_path, Settings(**FAST), routes=1)


def test_a_manifest_that_is_none_is_named(tmp_path):
    (tmp_path / 'manifest.json').write_text('[]')
    with pytest.raises(GenerationError, match='manifest'):
        generate(tmp_path, Settings(**FAST), routes=1)


@pytest.mark.parametrize(
    'setting',
    [{'every_s': 0.25}, {'every_s': 0.0}, {'split': 'test'}, {'cameras': ('rear',)},
     {'cameras': ()}, {'cameras': ('front', 'front')}],
)  # fmt: skip
def test_settings_that_make_no_sense_are_refused(setting):
    with pytest.raises(GenerationError, match=next(iter(setting))):
        Settings(**setting)


def test_the_command_refuses_in_one_line(two_routes, capsys):
    args = ['data', 'generate', str(two_routes[0]), '--routes', '1', '--every', '0.5']
    assert cli.main(args) == 2
    assert 'every_s 2.0 there, 0.5 asked for' in capsys.readouterr().err


def test_a_renderer_that_is_not_there_is_refused_in_one_line(tmp_path, capsys):
    args = ['data', 'generate', str(tmp_path), '--routes', '1', '--renderer', 'crayons']
    assert cli.main(args) == 2
    assert "route 1000000: backend 'crayons'" in capsys.readouterr().err


def test_the_command_draws_a_contact_sheet(two_routes, tmp_path, capsys):
    sheet = tmp_path / 'sheet.png'
    args = ['data', 'show', str(two_routes[0]), '--out', str(sheet), '--count', '4']
    assert cli.main(args) == 0
    assert sheet.read_bytes().startswith(b'\x89PNG')
    assert str(sheet) in capsys.readouterr().out
    assert cli.main([*args, '--saying', 'lateral: keep_lane']) == 0
    assert cli.main([*args, '--saying', 'animal yes']) == 2
    assert "says 'animal yes'" in capsys.readouterr().err


def test_the_manifest_says_what_the_data_was_made_with(two_routes):
    manifest = json.loads((two_routes[0] / 'manifest.json').read_text())
    assert manifest['seeds'] == [1_000_000, 1_000_001]
    assert manifest['settings']['image_size'] == [64, 32]


def test_workers_end_with_the_command_that_started_them(tmp_path):
    command = [sys.executable, '-m', 'wamdiff_ros.cli', 'data', 'generate', str(tmp_path)]
    environment = {**os.environ, 'PYTHONPATH': str(Path(__file__).parents[2])}
    process = subprocess.Popen(
        [*command, '--routes', '50'], env=environment, start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        _until(lambda: _computing(process.pid) >= 2)
        process.terminate()
        assert process.wait() == -signal.SIGTERM
        _until(lambda: _computing(process.pid) == 0, 30.0)
    finally:
        process.kill()
        process.wait()


def _computing(command: int) -> int:
    """Return how many workers of a command have computed for two seconds or more."""
    found = 0
    for folder in Path('/proc').glob('[0-9]*'):
        try:
            fields = (folder / 'stat').read_text().rpartition(')')[2].split()
        except OSError:  # it has ended
            continue
        # state, parent, group, session, …; times are in ticks
        spent_s = (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')
        is_worker = int(fields[3]) == command != int(folder.name) and fields[0] != 'Z'
        found += is_worker and spent_s > 2.0
    return found


def _until(condition, limit_s: float = 240.0) -> None:
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, 'it did not happen'
        time.sleep(0.05)
