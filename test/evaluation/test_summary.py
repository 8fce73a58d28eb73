import html.parser

import numpy as np
import pytest
import recording
from recording import FALLBACK_STOP, HELD, NOMINAL, START_NS

from wamdiff_ros.evaluation.summary import model_note, summarise, to_text
from wamdiff_ros.evaluation.summary_page import to_html
from wamdiff_ros.recordings.bag import BagError
from wamdiff_ros.types import PlanStatus

MS = 1_000_000
POSES = [(0.0, 0.0, 0.0), (1.0, 0.0, 0.0)]


def run_of(ticks, late_ms=(), frames=True):
    """Messages of a planner at 10 Hz: `ticks` are trajectory states, None is WAITING."""
    messages = []
    missed = 0
    for i, state in enumerate(ticks):
        grid_ns = START_NS + i * 100 * MS
        sent_ns = grid_ns + 80 * MS + (late_ms[i] * MS if i < len(late_ms) else 0)
        missed += state == HELD
        stages = [('vision', (10 + i) * MS), ('decode', 40 * MS)] if state == NOMINAL else []
        state_of_tick = 0 if state is None else state + 1
        reason = 'deadline missed' if state == HELD else ''
        messages.append(
            ('/planner/status', sent_ns + MS, recording.status(
                grid_ns, i, state_of_tick, stages, missed, reason, '(1.0, 2.0)', 2 * missed))
        )  # fmt: skip
        if state is not None:
            plan = recording.trajectory(grid_ns, sent_ns - grid_ns, POSES, 2.0, state)
            messages.append(('/planner/trajectory', sent_ns, plan))
        if frames:
            for offset_ns in (0, 50 * MS):
                stamp_ns = grid_ns + offset_ns
                messages.append(('/camera/front/image', stamp_ns, recording.image(stamp_ns)))
    return messages


def test_rate_age_and_jitter_are_those_of_the_messages(tmp_path):
    late_ms = [0, 0, 4, 0, 0]
    bag = recording.write(tmp_path / 'bag', run_of([NOMINAL] * 5, late_ms, frames=False))
    summary = summarise(bag)
    assert summary.rate_hz == pytest.approx(10.0)
    assert summary.period_ms == pytest.approx(100.0)
    assert summary.intervals_ms == pytest.approx((100.0, 104.0, 96.0, 100.0))
    assert summary.jitter_ms.highest == pytest.approx(4.0)
    assert summary.jitter_ms.mean == pytest.approx(2.0)
    assert summary.ages_ms == pytest.approx((80.0, 80.0, 84.0, 80.0, 80.0))
    assert dict(summary.stages_ms)['vision'].p50 == pytest.approx(12.0)


def test_every_status_is_counted_and_the_reasons_are_kept(tmp_path):
    states = [None, NOMINAL, NOMINAL, HELD, FALLBACK_STOP]
    summary = summarise(recording.write(tmp_path / 'bag', run_of(states, frames=False)))
    assert summary.status_counts() == {
        PlanStatus.WAITING: 1, PlanStatus.NOMINAL: 2, PlanStatus.HELD: 1,
        PlanStatus.FALLBACK_STOP: 1,
    }  # fmt: skip
    assert summary.reasons == (('deadline missed', 1),)
    assert (summary.missed_deadlines, summary.rejected_plans) == (1, 2)
    assert 'rejected plans 2' in to_text(summary)


def test_lost_ticks_are_counted(tmp_path):
    messages = run_of([NOMINAL] * 6, frames=False)
    lost = {START_NS + 280 * MS, START_NS + 281 * MS}  # tick 2 with its trajectory
    bag = recording.write(tmp_path / 'bag', [m for m in messages if m[1] not in lost])
    summary = summarise(bag)
    assert summary.ticks_missing == 1
    assert summary.period_ms == pytest.approx(100.0)


def test_what_was_published_without_camera_frames_is_not_counted(tmp_path):
    messages = run_of([None, None, NOMINAL, NOMINAL, NOMINAL, HELD, FALLBACK_STOP])
    frames = {START_NS + i * 50 * MS for i in range(4, 11)}  # from tick 2 to tick 4
    kept = [m for m in messages if m[0] != '/camera/front/image' or m[1] in frames]
    summary = summarise(recording.write(tmp_path / 'bag', kept))
    assert summary.status_counts() == {PlanStatus.NOMINAL: 3}
    assert summary.ticks_uncounted == 4
    assert (summary.missed_deadlines, summary.rejected_plans) == (0, 0)
    assert (summary.frames_planned_from, summary.frames_received) == (3, 7)
    assert summary.frame_rate_hz == pytest.approx(20.0)


def test_a_recording_without_a_planner_is_refused(tmp_path):
    bag = recording.write(tmp_path / 'bag', [('/image', 1, recording.image(1))])
    with pytest.raises(BagError, match='no planner was recorded'):
        summarise(bag)


def test_the_page_is_one_well_formed_file_that_loads_nothing(tmp_path):
    bag = recording.write(tmp_path / 'bag', run_of([NOMINAL, NOMINAL, HELD]))
    page = to_html(summarise(bag, 'untrained <b>'), np.zeros((4, 4, 3), np.uint8))
    open_tags, links = [], []

    class Checker(html.parser.HTMLParser):
        def handle_starttag(self, tag, attributes):
            links.extend(v for k, v in attributes if k in ('src', 'href') and v)
            if tag not in ('meta', 'link', 'img'):
                open_tags.append(tag)

        def handle_startendtag(self, tag, attributes):
            pass

        def handle_endtag(self, tag):
            assert open_tags.pop() == tag

    Checker().feed(page)
    assert open_tags == []
    assert [link.split(',')[0] for link in links] == ['data:', 'data:image/jpeg;base64']
    assert 'untrained &lt;b&gt;' in page
    assert '<script' not in page


def test_the_text_says_that_a_checkpoint_is_untrained(tmp_path):
    card = '---\nlicense: x\n---\n\n# Untrained: its plans mean nothing\n\nMore.\n'
    (tmp_path / 'README.md').write_text(card)
    note = model_note(tmp_path)
    bag = recording.write(tmp_path / 'bag', run_of([NOMINAL, NOMINAL]))
    text = to_text(summarise(bag, note))
    assert text.splitlines()[0] == 'NOTE: Untrained: its plans mean nothing'


def test_what_a_model_says_cannot_steer_the_terminal(tmp_path):
    messages = run_of([NOMINAL, NOMINAL], frames=False)
    evil = '\x1b]0;owned\x07\x1b[2J a road\nahead'
    messages.append(('/planner/scene_description', START_NS + 90 * MS,
                     recording.description(START_NS, 90 * MS, evil)))  # fmt: skip
    text = to_text(summarise(recording.write(tmp_path / 'bag', messages)))
    assert '\x1b' not in text
    assert '\x07' not in text
    assert 'a road ahead' in text
