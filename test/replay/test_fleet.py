"""Many bags on a Ray cluster: the results of a serial run, whatever happens to a worker."""

import importlib.util
import os
import socket
import sys
from functools import lru_cache
from pathlib import Path

import pytest
from recording import START_NS, image, write
from replaying import CAMERA, DEADLY_GREY, drive, drive_bag, load_fake, settings

from wamdiff_ros.replay.fleet import FleetError, jobs_for, run_on_ray, run_serially

ROOT = Path(__file__).parents[2]
NOT_REPEATED = ('timings.jsonl',)


def contents(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob('*'))
        if path.is_file() and path.name not in NOT_REPEATED
    }


def deadly_bag(path):
    entries = [e for e in drive(1.0) if e[0] != CAMERA]
    picture = image(START_NS + 200_000_000, DEADLY_GREY)
    return write(path, [*entries, (CAMERA, START_NS + 200_000_000, picture)])


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec('ray') is None, reason='needs requirements/fleet.txt')
def test_a_cluster_leaves_what_a_serial_run_leaves(tmp_path, monkeypatch):
    monkeypatch.setenv('PYTHONPATH', os.pathsep.join((str(ROOT), str(ROOT / 'test'))))
    good = [drive_bag(tmp_path / 'bags' / name, 1.0) for name in 'ace']
    bad = write(tmp_path / 'bags' / 'b', drive(0.1)[:1])
    deadly = deadly_bag(tmp_path / 'bags' / 'd')
    chosen = settings()
    jobs = jobs_for([*good, bad, deadly], tmp_path / 'ray')
    results = {r.job.name: r for r in run_on_ray(jobs, chosen, load_fake, 'local', 2)}
    assert {name: result.status for name, result in results.items()} == {
        'a': 'done', 'b': 'failed', 'c': 'done', 'd': 'failed', 'e': 'done',
    }  # fmt: skip
    assert 'no sensor_msgs/msg/Image' in results['b'].reason
    assert results['d'].reason
    serial = jobs_for(good, tmp_path / 'serial')
    assert [r.status for r in run_serially(serial, chosen, lru_cache(load_fake))] == ['done'] * 3
    for name in 'ace':
        assert contents(tmp_path / 'ray' / name) == contents(tmp_path / 'serial' / name)


def test_without_ray_the_remedy_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, 'ray', None)
    jobs = jobs_for([tmp_path / 'bag'], tmp_path)
    with pytest.raises(FleetError, match=r'requirements/fleet\.txt'):
        list(run_on_ray(jobs, settings(), load_fake, 'local', 1))


@pytest.mark.skipif(importlib.util.find_spec('ray') is None, reason='needs requirements/fleet.txt')
@pytest.mark.parametrize('address', ('127.0.0.1:{free}', 'ray://127.0.0.1:{free}', 'nowhere:port'))
def test_an_address_where_nothing_answers_is_refused_at_once(address, tmp_path):
    with socket.socket() as held:  # bound, and listening to nobody
        held.bind(('127.0.0.1', 0))
        address = address.format(free=held.getsockname()[1])
        jobs = jobs_for([tmp_path / 'bag'], tmp_path / 'out')
        with pytest.raises(FleetError, match='nothing answers there'):
            list(run_on_ray(jobs, settings(), load_fake, address, None))
