"""The bundled checkpoint says the same again, bit for bit, whatever its session did before."""

from replaying import drive_bag, settings

from wamdiff_ros.replay.bag_replay import replay_bag
from wamdiff_ros.replay.replay import load_session


def test_a_recording_gives_the_same_bytes_in_any_session_and_order(tmp_path):
    bag, other = drive_bag(tmp_path / 'bag', 0.6), drive_bag(tmp_path / 'other', 0.3)
    chosen = settings(parameters={'threads': 1})
    session = load_session(chosen.parameters)
    replays = {}
    for name, source, planner in (
        ('first', bag, session),
        ('other', other, session),
        ('again', bag, session),
        ('fresh', bag, load_session(chosen.parameters)),
    ):
        folder = tmp_path / 'replays' / name
        replay_bag(planner, chosen, source, folder)
        replays[name] = (folder / 'ticks.jsonl').read_bytes()
    assert b'"answer": "' in replays['first']
    assert replays['first'] == replays['again'] == replays['fresh'] != replays['other']
