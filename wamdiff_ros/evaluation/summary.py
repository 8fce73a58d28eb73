"""The numbers of one run of the planner, from its recording: `summarise(bag)`.

Counted is what was published from the first to the last camera frame: what a planner does while
nothing is to be seen says nothing about it.
Rates and jitter come from the times at which messages were sent, which the recorder keeps as
the bag's time. summary_page.py shows them.
"""

import os
import platform
from collections import Counter
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from ..message_time import header_ns, nanoseconds
from ..recordings.bag import BagError, bag_topics, read_messages
from ..recordings.timeline import IMAGE_TYPES
from ..types import PlanStatus
from .distribution import Distribution
from .plain_text import plain

STATUS_TYPE = 'wamdiff_ros/msg/PlannerStatus'
TRAJECTORY_TYPE = 'wamdiff_ros/msg/PlannedTrajectory'
DESCRIPTION_TYPE = 'wamdiff_ros/msg/SceneDescription'
VERSIONS_OF = ('torch', 'numpy', 'rosbags', 'tokenizers')


@dataclass(frozen=True)
class Summary:
    """One run. Lists of (name, …) keep the order of the run; times are in ms unless named."""

    duration_s: float
    rate_hz: float  # of the trajectories
    period_ms: float  # of the grid, from the ticks' own stamps
    jitter_ms: Distribution | None  # how far intervals between trajectories are off the period
    age_ms: Distribution | None  # of trajectories, when they were published
    intervals_ms: tuple[float, ...]
    ages_ms: tuple[float, ...]
    states: tuple[PlanStatus, ...]  # one per tick
    ticks_uncounted: int  # before the first and after the last camera frame
    ticks_missing: int  # gaps in the ticks' numbers
    stages_ms: tuple[tuple[str, Distribution], ...]
    counts: tuple[tuple[str, float], ...]  # mean forwards and tokens per inference
    missed_deadlines: int
    skipped_ticks: int
    rejected_answers: int
    rejected_plans: int
    stream_resets: int
    reasons: tuple[tuple[str, int], ...]  # why ticks were not NOMINAL
    frames_received: int
    frames_planned_from: int
    frame_rate_hz: float
    answer: str
    description: str
    descriptions: int
    backend: str
    model: str
    model_note: str
    machine: tuple[tuple[str, str], ...]

    def status_counts(self) -> Counter:
        """Return how many ticks had which status."""
        return Counter(self.states)


def summarise(bag: Path, model_note: str = '') -> Summary:
    """Read the numbers of a recording. Raises BagError when no planner was recorded."""
    topics = bag_topics(bag)
    statuses, trajectories, descriptions, frames = [], [], [], []
    sinks = {STATUS_TYPE: statuses, TRAJECTORY_TYPE: trajectories, DESCRIPTION_TYPE: descriptions}
    sinks.update({image: frames for image in IMAGE_TYPES})
    wanted = [topic for topic, (type_name, _) in topics.items() if type_name in sinks]
    for _, type_name, sent_ns, message in read_messages(bag, wanted):
        # Pictures are large; their stamps are all that is asked for.
        entry = header_ns(message) if sinks[type_name] is frames else message
        sinks[type_name].append((sent_ns, entry))
    if not statuses:
        raise BagError(f'{bag}: holds no PlannerStatus; no planner was recorded')
    before, statuses, uncounted = _while_seeing(statuses, frames)
    _, trajectories, _ = _while_seeing(trajectories, frames)
    sent_ns = np.array([sent_ns for sent_ns, _ in trajectories], np.int64)
    intervals_ms = np.diff(sent_ns) / 1e6
    period_ms = _grid_period_ms([message for _, message in statuses])
    ages_ms = [nanoseconds(message.age) / 1e6 for _, message in trajectories]
    planned_from = {header_ns(message) for _, message in trajectories}
    last = statuses[-1][1]

    def counted(name: str) -> int:
        return getattr(last, name) - (getattr(before, name) if before else 0)

    with_answer = [message for _, message in statuses if message.answer]
    all_sent = [sent for sent, _ in statuses]
    return Summary(
        duration_s=(max(all_sent) - min(all_sent)) / 1e9,
        rate_hz=_rate_hz(sent_ns),
        period_ms=period_ms,
        jitter_ms=Distribution.of(np.abs(intervals_ms - period_ms)),
        age_ms=Distribution.of(ages_ms),
        intervals_ms=tuple(intervals_ms.tolist()),
        ages_ms=tuple(ages_ms),
        states=tuple(PlanStatus(message.state) for _, message in statuses),
        ticks_uncounted=uncounted,
        ticks_missing=_ticks_missing([message.tick for _, message in statuses]),
        stages_ms=_stages([message for _, message in statuses]),
        counts=_counts([message for _, message in statuses]),
        missed_deadlines=counted('missed_deadlines'),
        skipped_ticks=counted('skipped_ticks'),
        rejected_answers=counted('rejected_answers'),
        rejected_plans=counted('rejected_plans'),
        stream_resets=counted('stream_resets'),
        reasons=tuple(Counter(m.reason for _, m in statuses if m.reason).most_common(4)),
        frames_received=len(frames),
        frames_planned_from=len(planned_from & {stamp_ns for _, stamp_ns in frames}),
        frame_rate_hz=_rate_hz(np.array([stamp_ns for _, stamp_ns in frames], np.int64)),
        answer=with_answer[len(with_answer) // 2].answer if with_answer else '',
        description=descriptions[len(descriptions) // 2][1].text if descriptions else '',
        descriptions=len(descriptions),
        backend=last.backend,
        model=last.model,
        model_note=model_note,
        machine=machine(),
    )


def machine() -> tuple[tuple[str, str], ...]:
    """Return what this runs on: processor, Python and the libraries that matter."""
    facts = [
        ('processor', f'{_processor()}, {os.cpu_count()} cores'),
        ('system', f'{platform.system()} {platform.machine()}'),
        ('Python', platform.python_version()),
    ]
    if 'ROS_DISTRO' in os.environ:
        facts.append(('ROS 2', os.environ['ROS_DISTRO']))
    for name in ('wamdiff_ros', *VERSIONS_OF):
        try:
            facts.append((name, metadata.version(name)))
        except metadata.PackageNotFoundError:
            continue
    return tuple(facts)


def model_note(model_dir: Path) -> str:
    """Return what the checkpoint says of itself: the first line of its README.md."""
    card = model_dir / 'README.md'
    if not card.is_file():
        return ''
    lines = [line.strip('#* ') for line in card.read_text('utf8').splitlines()]
    if lines and lines[0] == '---':  # a model card begins with a block of metadata
        end = lines.index('---', 1) if '---' in lines[1:] else 0
        lines = lines[end + 1 :]
    return next((line for line in lines if line), '')


def to_text(summary: Summary) -> str:
    """Return the summary for a terminal."""
    rows = rows_of(summary)
    width = max(len(name) for name, _ in rows)
    lines = [f'{name:<{width}}  {value}' for name, value in rows]
    if summary.model_note:
        lines.insert(0, f'NOTE: {summary.model_note}\n')
    return '\n'.join(lines)


def rows_of(summary: Summary) -> list[tuple[str, str]]:
    """Return (name, value) of everything that is worth a line."""
    s = summary
    states = s.status_counts()
    ticks = [f'{status.name} {states[status]}' for status in PlanStatus if states[status]]
    ticks.append(f'missing {s.ticks_missing} ({s.ticks_uncounted} without camera not counted)')
    troubles = [
        f'skipped ticks {s.skipped_ticks}',
        f'rejected answers {s.rejected_answers}',
        f'rejected plans {s.rejected_plans}',
        f'stream resets {s.stream_resets}',
    ]
    used = f'{s.frames_planned_from} of {s.frames_received}'
    rows = [
        ('model', f'{s.model} on {s.backend}'),
        ('trajectories', f'{len(s.ages_ms)} in {s.duration_s:.1f} s, {s.rate_hz:.2f} Hz'),
        ('jitter of the period', f'{_line(s.jitter_ms)} (period {s.period_ms:.0f} ms)'),
        ('age when published', _line(s.age_ms)),
        ('ticks', ', '.join(ticks)),
        ('missed deadlines', f'{s.missed_deadlines}, {", ".join(troubles)}'),
        ('camera frames', f'{used} planned from, {s.frame_rate_hz:.1f} Hz'),
    ]
    rows += [(f'stage {name}', _line(stage)) for name, stage in s.stages_ms]
    rows.append(('per inference', ', '.join(f'{v:.4g} {k}' for k, v in s.counts) or 'none'))
    rows += [(f'why not NOMINAL ({count})', reason) for reason, count in s.reasons]
    rows.append(('an answer', plain(s.answer)))
    rows.append((f'a description ({s.descriptions})', plain(s.description)))
    rows.append(('machine', '; '.join(f'{name} {value}' for name, value in s.machine)))
    return rows


def _line(d: Distribution | None) -> str:
    if d is None:
        return 'none measured'
    return (
        f'mean {d.mean:.2f}, p50 {d.p50:.2f}, p95 {d.p95:.2f}, p99 {d.p99:.2f}, '
        f'max {d.highest:.2f} ms'
    )


def _while_seeing(messages: list, frames: list) -> tuple[Any, list, int]:
    """Return the last message before the first frame, those up to the last, how many are left out.

    All messages count in a recording without frames, and in one where none came while they did.
    """
    if frames:
        first_ns, last_ns = frames[0][0], frames[-1][0]
        kept = [entry for entry in messages if first_ns <= entry[0] <= last_ns]
        earlier = [message for sent_ns, message in messages if sent_ns < first_ns]
        if kept:
            return (earlier or [None])[-1], kept, len(messages) - len(kept)
    return None, messages, 0


def _stages(statuses: list[Any]) -> tuple[tuple[str, Distribution], ...]:
    """Return the stages of every inference, each counted once although ticks may repeat it."""
    durations: dict[str, list[float]] = {}
    seen = None
    for message in statuses:
        stages = [(stage.name, nanoseconds(stage.duration) / 1e6) for stage in message.stages]
        if stages and stages != seen:
            for name, duration_ms in stages:
                durations.setdefault(name, []).append(duration_ms)
        seen = stages
    return tuple((name, Distribution.of(values)) for name, values in durations.items())


def _counts(statuses: list[Any]) -> tuple[tuple[str, float], ...]:
    names = {
        'vision_forwards': 'vision forwards',
        'prefill_forwards': 'prefill forwards',
        'denoising_forwards': 'denoising forwards',
        'commit_forwards': 'commit forwards',
        'prompt_tokens': 'prompt tokens',
        'reused_prefix_tokens': 'reused prefix tokens',
        'answer_tokens': 'answer tokens',
    }
    ran = [message for message in statuses if message.stages]
    if not ran:
        return ()
    return tuple(
        (words, float(np.mean([getattr(message, name) for message in ran])))
        for name, words in names.items()
    )


def _grid_period_ms(statuses: list[Any]) -> float:
    stamps_ns = np.array([header_ns(message) for message in statuses], np.int64)
    ticks = np.array([message.tick for message in statuses], np.int64)
    steps = np.diff(stamps_ns)[np.diff(ticks) == 1]
    return float(np.median(steps)) / 1e6 if steps.size else float('nan')


def _ticks_missing(ticks: list[int]) -> int:
    steps = np.diff(np.array(ticks, np.int64))
    return int(np.sum(steps[steps > 1] - 1))


def _rate_hz(times_ns: np.ndarray) -> float:
    if len(times_ns) < 2 or times_ns[-1] <= times_ns[0]:
        return 0.0
    return (len(times_ns) - 1) * 1e9 / float(times_ns[-1] - times_ns[0])


def _processor() -> str:
    cpuinfo = Path('/proc/cpuinfo')
    if cpuinfo.is_file():
        for line in cpuinfo.read_text('utf8').splitlines():
            if line.startswith('model name'):
                return line.split(':', 1)[1].strip()
    return platform.processor() or platform.machine()
