import json

import numpy as np
import pytest
from replay_runs import dump, straight, write_run

from wamdiff_ros.replay.replay_run import TRUTH_PLACES, ReplayError, read_bag, read_run


def test_a_run_is_read_as_it_was_written(tmp_path):
    path = write_run(tmp_path / 'run', {'monday': straight(60, refused=(3,)), 'bad': 'no camera'})
    run = read_run(path)
    assert (run.name, run.failed) == ('run', (('bad', 'no camera'),))
    assert (list(run.bags), run.backend) == (['monday'], 'sdpa cpu float32')
    bag = read_bag(path / 'monday')
    assert (bag.name, len(bag.tick), bag.own.sum()) == ('monday', 60, 59)
    assert bag.duration_s == pytest.approx(5.9)
    assert bag.reasons[3] == 'no number'
    assert np.isnan(bag.plan_xy_m[3]).all() and np.isnan(bag.age_ms[3])
    assert bag.plan_xy_m[0, 40] == pytest.approx([40.0, 0.0])
    assert np.isnan(bag.plan_xy_m[0, 41:]).all()  # plans of 4 s
    assert bag.plan_xy_m[0, TRUTH_PLACES][7] == pytest.approx([40.0, 0.0])
    assert bag.truth_m[0, :, 0] == pytest.approx(np.arange(1, 11) * 5.0)
    assert np.isnan(bag.truth_m[-1]).all()
    assert bag.ego[5] == pytest.approx([5.0, 0.0, 0.0, 10.0, 0.0])
    assert bag.stages_s[0]['decode'] == pytest.approx(0.025)
    assert bag.camera().width == 512
    assert bag.thumbnail(0) is None


@pytest.mark.parametrize(
    ('changes', 'said'),
    [
        ({'format': 'other'}, 'is not of `wamdiff replay`'),
        ({'format_version': 2}, 'format version 2, this reads 1'),
        ({'bags': [{'name': '../x', 'status': 'done'}]}, "'../x' is no name of a folder"),
        ({'bags': [{'name': 'lost', 'status': 'done'}]}, 'lost/bag.json: cannot be read'),
    ],
)
def test_what_is_not_a_run_is_refused_by_name(tmp_path, changes, said):
    path = write_run(tmp_path / 'run', {'monday': straight(3)})
    dump(path / 'run.json', {**json.loads((path / 'run.json').read_text()), **changes})
    with pytest.raises(ReplayError, match=said):
        read_run(path)


def test_a_broken_line_is_named(tmp_path):
    path = write_run(tmp_path / 'run', {'monday': straight(3)})
    ticks = path / 'monday' / 'ticks.jsonl'
    ticks.write_text(ticks.read_text() + '{"tick": 3')
    with pytest.raises(ReplayError, match=r'ticks\.jsonl:4: is no JSON'):
        read_bag(path / 'monday')
    ticks.write_text('{"tick": 3}\n')
    with pytest.raises(ReplayError, match=r'does not hold what docs/replay\.md says'):
        read_bag(path / 'monday')


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    with pytest.raises(ReplayError, match='name a folder of `wamdiff replay`'):
        read_run(tmp_path)


def test_where_the_vehicle_was_is_known_from_truths_too(tmp_path):
    """While a plan is held, the states told are those of its own t0."""
    ticks = straight(61)
    for number in range(10, 30):
        ticks[number] = {
            **ticks[9], 'tick': number, 'grid_ns': ticks[number]['grid_ns'], 'status': 'HELD',
            'reason': 'late',
        }  # fmt: skip
    bag = read_bag(write_run(tmp_path / 'run', {'monday': ticks}) / 'monday')
    at_ns = bag.grid_ns[[0, 15, 25, 60]]
    assert bag.driven(at_ns)[:, 0] == pytest.approx([0.0, 15.0, 25.0, 60.0])
    assert np.isnan(bag.driven(bag.grid_ns[-1:] + 10**8)).all()
    assert np.isnan(bag.motion(at_ns)[1:3]).all()  # speeds are told at t0 alone
    assert bag.motion(at_ns)[[0, 3], 0] == pytest.approx([10.0, 10.0])
