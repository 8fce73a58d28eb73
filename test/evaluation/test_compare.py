import json

import pytest
from replay_runs import dump, failed, straight, write_run

from wamdiff_ros import cli


def compare(*arguments):
    return cli.main(['compare', *map(str, arguments)])


def bags(faster, count=9, refused=()):
    """Nine drives, each with an error of its own on top."""
    return {
        f'bag{place}': straight(61, faster=faster + 0.01 * place, refused=refused)
        for place in range(count)
    }


def test_a_run_that_is_better_everywhere_is_better_for_sure(tmp_path, capsys):
    first = write_run(tmp_path / 'first', bags(1.2), 'old', seconds=0.05)
    second = write_run(tmp_path / 'second', bags(1.1), 'new', seconds=0.1)
    assert compare(first, second, '--json', '--out', tmp_path / 'out') == 0
    report = json.loads(capsys.readouterr().out)
    assert report == json.loads((tmp_path / 'out' / 'comparison.json').read_text())
    assert (report['bags'], report['ticks'], report['drawn']) == (9, 9 * 61, 'bags')
    by_name = {one['column']: one for one in report['differences']}
    fde = by_name['fde_3s_m']
    assert fde['ticks'] == 9 * 31
    assert fde['first'] == pytest.approx(0.24 * 30)
    assert fde['difference']['value'] == pytest.approx(-3.0)
    # Paired: all bags differ by the same, however different they are.
    assert fde['difference']['low'] == pytest.approx(-3.0)
    assert fde['verdict'] == 'better'
    assert by_name['own_plan']['verdict'] == 'no difference shown'
    assert report['seconds_ratio'] == pytest.approx(2.0)
    assert report['worse'] == []
    assert len(report['better']) == 9
    text = (tmp_path / 'out' / 'comparison.txt').read_text()
    assert 'second (new) against first (old)' in text
    assert (tmp_path / 'out' / 'report.html').exists()


def test_a_difference_of_one_bag_among_many_is_not_shown(tmp_path, capsys):
    changed = bags(1.1)
    changed['bag4'] = straight(61, faster=1.5)
    first = write_run(tmp_path / 'first', bags(1.1))
    second = write_run(tmp_path / 'second', changed)
    assert compare(first, second, '--json') == 0
    report = json.loads(capsys.readouterr().out)
    by_name = {one['column']: one for one in report['differences']}
    assert by_name['fde_3s_m']['difference']['value'] > 1.0
    assert by_name['fde_3s_m']['verdict'] == 'no difference shown'
    assert [(one['bag'], one['start_s']) for one in report['worse']] == [('bag4', 0.0)]


def test_the_worst_segments_are_where_the_difference_is(tmp_path, capsys):
    before, after = straight(300), straight(300)
    after[200:240] = straight(300, faster=1.3)[200:240]
    first = write_run(tmp_path / 'first', {'long': before})
    second = write_run(tmp_path / 'second', {'long': after})
    assert compare(first, second) == 0
    out = capsys.readouterr().out
    assert 'where second is worse' in out
    assert 'long 20 … 30 s: 0.00 → ' in out
    assert 'bootstrap over segments of 10 s' in out


def test_failures_count_against_the_run_that_has_them(tmp_path, capsys):
    first = write_run(tmp_path / 'first', bags(1.0))
    second = write_run(tmp_path / 'second', bags(1.0, refused=range(0, 61, 3)))
    assert compare(first, second, '--json') == 0
    by_name = {one['column']: one for one in json.loads(capsys.readouterr().out)['differences']}
    assert by_name['own_plan']['verdict'] == 'worse'
    assert by_name['ade_3s_due_m']['verdict'] == 'worse'
    assert by_name['miss_3s']['verdict'] == 'worse'
    # Where both have a plan they are the same.
    assert by_name['ade_3s_m']['difference']['value'] == 0.0


@pytest.mark.parametrize(
    ('other', 'said'),
    [
        ({'monday': straight(61)}, "has no finished replay of 'tuesday'"),
        ({'monday': straight(61), 'tuesday': 'no camera'}, "of 'tuesday' (no camera)"),
        ({'monday': straight(61), 'tuesday': straight(60)}, "'tuesday' is not the same data"),
        (
            {'monday': straight(61), 'tuesday': straight(61), 'friday': straight(61)},
            "has no finished replay of 'friday'",
        ),
    ],
)
def test_runs_over_different_data_are_refused_by_name(tmp_path, capsys, other, said):
    first = write_run(tmp_path / 'first', {'monday': straight(61), 'tuesday': straight(61)})
    second = write_run(tmp_path / 'second', other)
    assert compare(first, second) == 1
    assert said in capsys.readouterr().err


def test_another_camera_is_other_data(tmp_path, capsys):
    first, second = (
        write_run(tmp_path / name, {'monday': straight(61)}) for name in ('first', 'second')
    )
    info = second / 'monday' / 'bag.json'
    dump(info, {**json.loads(info.read_text()), 'topics': {'camera.front': '/rear'}})
    assert compare(first, second) == 1
    assert (
        "topics is {'camera.front': '/camera'} and {'camera.front': '/rear'}"
        in capsys.readouterr().err
    )


def test_ratings_are_scored_and_bad_ones_refused(tmp_path, capsys):
    run = write_run(tmp_path / 'run', {'monday': straight(61)})
    path = [[2.5 * step, 0.0] for step in range(1, 21)]
    moment = {
        'bag': 'monday', 't0_ns': straight(61)[10]['t0_ns'],
        'trajectories': [{'label': 8, 'xy_base_m': path[:16]}],
    }  # fmt: skip
    ratings = tmp_path / 'ratings.json'
    dump(ratings, {'format': 'wamdiff-ratings', 'moments': [moment]})
    assert cli.main(['report', str(run), '--json', '--ratings', str(ratings)]) == 0
    (total,) = json.loads(capsys.readouterr().out)['runs']
    score = total['metrics']['rater_feedback']
    assert (score['count'], score['estimate']['value']) == (1, pytest.approx(8.0))
    moment['trajectories'][0]['label'] = 11
    dump(ratings, {'format': 'wamdiff-ratings', 'moments': [moment]})
    assert cli.main(['report', str(run), '--ratings', str(ratings)]) == 1
    assert 'moment 1 cannot be used' in capsys.readouterr().err


def test_a_run_without_any_plan_is_compared_too(tmp_path, capsys):
    ticks = straight(61)
    nothing = [failed(n, tick['grid_ns'], tick['ego']) for n, tick in enumerate(ticks)]
    first = write_run(tmp_path / 'first', {'monday': ticks})
    second = write_run(tmp_path / 'second', {'monday': nothing})
    assert compare(first, second) == 0
    assert cli.main(['report', str(second)]) == 0
    assert 'worse' in capsys.readouterr().out


def test_a_run_without_any_finished_bag_is_refused_with_its_reasons(tmp_path, capsys):
    run = write_run(tmp_path / 'run', {'monday': 'it has no camera'})
    assert cli.main(['report', str(run)]) == 1
    assert 'has no finished replay (monday: it has no camera)' in capsys.readouterr().err
    assert compare(run, run) == 1
    assert 'has no finished replay' in capsys.readouterr().err
