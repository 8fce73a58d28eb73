"""The value of every tick in every column, from a replay: what metrics.py puts together.

Each function returns {column: [N]} with NaN where a tick cannot be judged. Judged are the plans of
the ticks' own; what a tick without one counts is in `columns.py`.
"""

from dataclasses import asdict

import numpy as np

from ..replay.replay_run import PLAN_STEP_S, PLAN_TIMES_S, TRUTH_PLACES, BagReplay
from . import comfort, displacement, nuscenes
from .columns import BY_NAME
from .consistency import shifts_m
from .navsim import HORIZON_S, extended_pdm_score, pdm_score
from .rater_feedback import POINTS, RATE_HZ, rater_feedback_score
from .ratings import RatedMoment

STEPS = round(HORIZON_S / PLAN_STEP_S) + 1  # of a plan that NAVSIM judges, with t0
HISTORY_S = 1.5  # of driving before a plan, for history comfort
RATED_WITHIN_NS = 50_000_000

Values = dict[str, np.ndarray]


def publication(replay: BagReplay) -> Values:
    """Return how much was held, stopped or missing, and how old what was published is."""
    status = np.array(replay.status, dtype=object)
    names = {'held': 'HELD', 'fallback': 'FALLBACK_STOP', 'waiting': 'WAITING'}
    shares = {name: (status == value).astype(float) for name, value in names.items()}
    return {'own_plan': replay.own.astype(float), **shares, 'age_ms': replay.age_ms}


def displacements(replay: BagReplay) -> Values:
    """Return the errors at every horizon that plans and truth reach."""
    errors = displacement.displacement_errors(
        replay.plan_xy_m[:, TRUTH_PLACES], replay.plan_heading_rad[:, TRUTH_PLACES],
        replay.truth_m[..., :2], replay.truth_m[..., 2],
    )  # fmt: skip
    table = {
        name: np.where(replay.own[:, None], value, np.nan)
        for name, value in asdict(errors).items()
    }
    found: Values = {}
    for place, horizon_s in enumerate(displacement.HORIZONS_S):
        h = f'{horizon_s:g}s'
        at = {name: value[:, place] for name, value in table.items()}
        standing_m = _standing_ade_m(replay, round(horizon_s / displacement.STEP_S))
        if not _reached(replay, horizon_s):
            standing_m = np.full(len(standing_m), np.nan)
        missed = np.where(np.isnan(at['fde_m']), np.nan, at['fde_m'] > displacement.MISS_M)
        found |= {
            f'ade_{h}_m': at['ade_m'],
            f'ade_{h}_due_m': np.where(replay.own, at['ade_m'], standing_m),
            f'fde_{h}_m': at['fde_m'],
            f'heading_{h}_rad': at['heading_rad'],
            f'longitudinal_{h}_m': np.abs(at['longitudinal_m']),
            f'lateral_{h}_m': np.abs(at['lateral_m']),
            f'longitudinal_bias_{h}_m': at['longitudinal_m'],
            f'lateral_bias_{h}_m': at['lateral_m'],
            f'miss_{h}': failing(f'miss_{h}', missed, replay, np.isfinite(standing_m)),
        }
    return found


def open_loop(replay: BagReplay, skipped: dict[str, str]) -> Values:
    """Return nuScenes' errors, and its collisions where others' boxes are known."""
    steps = nuscenes.STEPS
    plan = replay.plan_xy_m[:, TRUTH_PLACES][:, :steps]
    truth = replay.truth_m[:, :steps, :2]
    distance = np.linalg.norm(plan - truth, axis=2)
    distance[~replay.own] = np.nan
    tables = {'l2': (distance, '_m')}
    boxes = _boxes_in_base(replay, skipped)
    if boxes is None:
        skipped.setdefault('nuscenes_collision', 'the recording has no boxes of others')
    else:
        hit = np.full(distance.shape, np.nan)
        for place, others in boxes.items():
            if replay.own[place] and np.isfinite(distance[place]).all():
                hit[place] = nuscenes.collisions(plan[place], truth[place], others)
        tables['collision'] = (hit, '')
    found: Values = {}
    for name, (table, unit) in tables.items():
        for convention, values in (
            ('at', nuscenes.at_horizons(table)),
            ('mean', nuscenes.mean_to_horizons(table)),
        ):
            for column, horizon_s in zip(values.T, nuscenes.HORIZONS_S, strict=True):
                found[f'nuscenes_{name}_{convention}_{horizon_s:g}s{unit}'] = column
    return found


def comforts(replay: BagReplay, skipped: dict[str, str]) -> Values:
    """Return whether plans are comfortable: alone, after what was driven, after the one before."""
    speed, rate = replay.plan_speed_mps[:, :STEPS], replay.plan_yaw_rate_radps[:, :STEPS]
    reach = replay.own & np.isfinite(speed[:, -1])
    everywhere = np.ones(len(reach), bool)
    if replay.own.any() and not reach.any():
        why = f'no plan reaches {HORIZON_S:g} s'
        skipped |= dict.fromkeys(('comfort', 'history_comfort', 'extended_comfort'), why)
        return {}
    alone = _where(reach, comfort.comfortable(speed, rate, PLAN_STEP_S).all(axis=1))

    before = -np.arange(round(HISTORY_S / PLAN_STEP_S), 0, -1) * PLAN_STEP_S
    past = replay.motion(replay.t0_ns[:, None] + np.round(before * 1e9).astype(np.int64))
    known = np.isfinite(past).all(axis=(1, 2))
    whole = [
        np.concatenate([past[..., column], plan], axis=1)
        for column, plan in ((0, speed), (1, rate))
    ]
    history = _where(reach & known, comfort.comfortable(*whole, PLAN_STEP_S).all(axis=1))
    found = {
        'comfort': alone,
        'history_comfort': history,
        'extended_comfort': _extended(replay, reach),
    }
    return {name: failing(name, value, replay, everywhere) for name, value in found.items()}


def shifts(replay: BagReplay) -> Values:
    """Return how far every plan is from the one of the tick before."""
    xy_m = np.where(replay.own[:, None, None], to_fixed(replay), np.nan)
    reach = np.isfinite(xy_m[..., 0]).any(axis=0)
    if not reach.any():
        return {}
    # Plans of one run are equally long; NaN beyond would spoil the means.
    mean, most = shifts_m(replay.t0_ns, PLAN_TIMES_S[reach], xy_m[:, reach])
    return {'shift_m': mean, 'shift_max_m': most}


def rater_feedback(
    replay: BagReplay, moments: list[RatedMoment], skipped: dict[str, str]
) -> Values:
    """Return the scores of the ticks that people have rated; a failure has none to get."""
    if not moments:
        skipped['rater_feedback'] = 'no rated trajectories'
        return {}
    score, inside = np.full((2, len(replay.tick)), np.nan)
    # A tick that failed has no t0 of its own.
    at_ns = np.where(replay.own, replay.t0_ns, replay.grid_ns)
    for moment in moments:
        place = int(np.argmin(np.abs(at_ns - moment.t0_ns)))
        if abs(at_ns[place] - moment.t0_ns) > RATED_WITHIN_NS:
            continue
        if replay.own[place]:
            feedback = rater_feedback_score(
                _rated_points(replay.plan_xy_m[place]), moment.trajectories_m, moment.labels,
                replay.ego[place, 3],
            )  # fmt: skip
            score[place], inside[place] = feedback.score, feedback.in_trust_region
        else:
            score[place] = inside[place] = 0.0
    if np.isnan(score).all():
        skipped['rater_feedback'] = 'no tick is within 50 ms of a rated moment'
    return {'rater_feedback': score, 'in_trust_region': inside}


def in_world(replay: BagReplay, comforts: Values, skipped: dict[str, str]) -> Values:
    """Return NAVSIM's terms and scores of plans that a simulator's ground truth can judge."""
    if not any(replay.worlds):
        skipped['pdms'] = "the recording has no simulator's ground truth"
        return {}
    from ..simulation.plan_terms import GroundTruthError, plan_terms

    fixed_m = np.where(replay.own[:, None, None], to_fixed(replay), np.nan)[:, :STEPS]
    heading_rad = (replay.plan_heading_rad + replay.ego[:, 2, None])[:, :STEPS]
    at_ns = np.where(replay.own, replay.t0_ns, replay.grid_ns)
    try:
        terms, covered = plan_terms(
            [world for world in replay.worlds if world],
            at_ns, fixed_m, heading_rad, replay.plan_speed_mps[:, :STEPS],
        )  # fmt: skip
    except GroundTruthError as error:
        skipped['pdms'] = f"the simulator's ground truth cannot be used: {error}"
        return {}
    if not covered.any():
        skipped['pdms'] = f"the simulator's ground truth covers no {HORIZON_S:g} s after a tick"
        return {}
    comforts = {name: np.where(covered, value, np.nan) for name, value in comforts.items()}
    both = {name: terms[name] for name in ('no_collision', 'on_road', 'progress')}
    both['time_to_collision'] = terms['time_to_collision']
    terms['pdms'] = pdm_score(**both, comfort=comforts['comfort'])
    terms['epdms'] = extended_pdm_score(
        **both,
        **{name: terms[name] for name in ('direction', 'lights', 'lane_keeping')},
        **{name: comforts[name] for name in ('history_comfort', 'extended_comfort')},
    )
    return {name: failing(name, value, replay, covered) for name, value in terms.items()}


def failing(name: str, values: np.ndarray, replay: BagReplay, judgeable: np.ndarray) -> np.ndarray:
    """Return values [N] with the column's failure where a tick can be judged but has no plan."""
    failure = BY_NAME[name].failure
    return np.where(replay.own, values, np.where(judgeable, failure, np.nan))


def to_fixed(replay: BagReplay) -> np.ndarray:
    """Return the plans' positions in the fixed frame's plane, [N, 51, 2]."""
    x, y, heading = replay.ego[:, :3].T[..., None]
    cos, sin = np.cos(heading), np.sin(heading)
    ahead, left = replay.plan_xy_m[..., 0], replay.plan_xy_m[..., 1]
    return np.stack((x + ahead * cos - left * sin, y + ahead * sin + left * cos), axis=-1)


def _where(judged: np.ndarray, values: np.ndarray) -> np.ndarray:
    return np.where(judged, values.astype(float), np.nan)


def _reached(replay: BagReplay, horizon_s: float) -> bool:
    """Return whether any plan reaches a horizon, or there is none that could tell."""
    own = replay.plan_xy_m[replay.own]
    return not len(own) or bool(np.isfinite(own[:, round(horizon_s / PLAN_STEP_S), 0]).any())


def _rated_points(plan_xy_m: np.ndarray) -> np.ndarray:
    """Return a plan [51, 2] at 0.25, 0.5 … s up to its end, [T, 2]."""
    end_s = PLAN_TIMES_S[np.isfinite(plan_xy_m[:, 0])][-1]
    at_s = np.arange(1, POINTS + 1) / RATE_HZ
    at_s = at_s[at_s <= end_s + 1e-9]
    known = np.isfinite(plan_xy_m[:, 0])
    return np.stack(
        [np.interp(at_s, PLAN_TIMES_S[known], axis) for axis in plan_xy_m[known].T], axis=1
    )


def _standing_ade_m(replay: BagReplay, steps: int) -> np.ndarray:
    """Return the mean distance [N] from where a tick is to where the vehicle then went."""
    after = np.round(displacement.TIMES_S[:steps] * 1e9).astype(np.int64)
    start = replay.driven(replay.grid_ns)[:, None, :2]
    later = replay.driven(replay.grid_ns[:, None] + after)[..., :2]
    return np.linalg.norm(later - start, axis=2).mean(axis=1)


def _extended(replay: BagReplay, reach: np.ndarray) -> np.ndarray:
    """Return whether every plan moves like the one of the tick before, [N]."""
    alike = np.full(len(reach), np.nan)
    step_ns = np.diff(replay.t0_ns, prepend=replay.t0_ns[:1])
    pairs = np.flatnonzero(reach[1:] & reach[:-1] & (step_ns[1:] > 0)) + 1
    # In steps of a plan: plans of equal distance are compared together.
    late = np.round(step_ns[pairs] * 1e-9 / PLAN_STEP_S, 3)
    for steps in np.unique(late).tolist():
        count = int(STEPS - np.ceil(steps))
        if count < comfort.FILTER_SAMPLES:
            continue
        chosen = pairs[late == steps]
        whole, part = int(steps), steps % 1.0
        motions = []
        for table in (replay.plan_speed_mps, replay.plan_yaw_rate_radps):
            before = table[chosen - 1]
            older = before[:, whole : whole + count] * (1 - part)
            if part:
                older = older + before[:, whole + 1 : whole + 1 + count] * part
            motions.append((older, table[chosen, :count]))
        (old_speed, speed), (old_rate, rate) = motions
        difference = comfort.motion_difference((speed, rate), (old_speed, old_rate), PLAN_STEP_S)
        alike[chosen] = comfort.alike(difference)
    return alike


def _boxes_in_base(
    replay: BagReplay, skipped: dict[str, str]
) -> dict[int, list[np.ndarray]] | None:
    """Return {tick's place: boxes [K, 5] of others in base at its t0, for each of six steps}.

    None without any in the recording; a tick whose steps are not all covered is left out.
    """
    if not any(replay.worlds):
        return None
    from ..simulation.plan_terms import GroundTruthError, Worlds

    try:
        worlds = Worlds([world for world in replay.worlds if world])
    except GroundTruthError as error:
        skipped['nuscenes_collision'] = f"the simulator's ground truth cannot be used: {error}"
        return None
    after = np.round(np.arange(1, nuscenes.STEPS + 1) * nuscenes.STEP_S * 1e9).astype(np.int64)
    found = {}
    for place in np.flatnonzero(replay.own).tolist():
        at = worlds.at(replay.t0_ns[place] + after)
        if (at < 0).any():
            continue
        x, y, heading = replay.ego[place, :3]
        found[place] = [_into_base(worlds.boxes[index], x, y, heading) for index in at]
    return found


def _into_base(boxes: np.ndarray, x: float, y: float, heading: float) -> np.ndarray:
    boxes = boxes[np.isfinite(boxes[:, 0])]
    offset = displacement.offsets_in(np.full(len(boxes), heading), boxes[:, :2] - (x, y))
    return np.column_stack([offset, boxes[:, 2] - heading, boxes[:, 3:]])
