"""NAVSIM's scores of a plan from their terms, and the terms that need no map.

PDMS: Dauner et al., NAVSIM, 2024, section 3. EPDMS: Cao et al., Pseudo-simulation, 2025. Terms are
0 … 1, arrays [N] or numbers. What the terms are made from is not in here: a drive in
`simulation/score.py`, plans in `simulation/plan_terms.py`.
"""

import numpy as np

HORIZON_S, STEP_S = 4.0, 0.1
TIME_TO_COLLISION_S = 1.0
LANE_KEEPING_M, LANE_KEEPING_S = 0.5, 2.0
ONCOMING_M = (2.0, 6.0)  # driven against the traffic within a second: half, and no marks
ONCOMING_S = 1.0
SHORT_M = 5.0  # below, progress says nothing


def pdm_score(no_collision, on_road, progress, time_to_collision, comfort):
    """Return NC · DAC · (5 EP + 5 TTC + 2 C) / 12."""
    return no_collision * on_road * (5 * progress + 5 * time_to_collision + 2 * comfort) / 12


def extended_pdm_score(
    no_collision, on_road, direction, lights, progress, time_to_collision,
    lane_keeping, history_comfort, extended_comfort,
):  # fmt: skip
    """Return NC · DAC · DDC · TLC · (5 EP + 5 TTC + 2 LK + 2 HC + 2 EC) / 16."""
    rest = 2 * (lane_keeping + history_comfort + extended_comfort)
    gates = no_collision * on_road * direction * lights
    return gates * (5 * progress + 5 * time_to_collision + rest) / 16


def ego_progress(own_m: np.ndarray, reference_m: np.ndarray) -> np.ndarray:
    """Return progress [N] along the route as a share of the larger one of own and reference.

    1 where both are below 5 m.
    """
    own_m = np.maximum(own_m, 0.0)
    most_m = np.maximum(own_m, reference_m)
    return np.where(most_m > SHORT_M, own_m / np.maximum(most_m, SHORT_M), 1.0)


def driving_direction(oncoming_m: np.ndarray, step_s: float = STEP_S) -> np.ndarray:
    """Return marks [N] for the way [N, T] driven against the traffic in each step.

    1 below 2 m within any second, 0.5 below 6 m, else 0.
    """
    steps = round(ONCOMING_S / step_s)
    sums = np.cumsum(np.pad(oncoming_m, ((0, 0), (steps + 1, 0))), axis=1)
    worst_m = (sums[:, steps + 1 :] - sums[:, : -steps - 1]).max(axis=1)
    return np.select([worst_m < ONCOMING_M[0], worst_m < ONCOMING_M[1]], [1.0, 0.5], 0.0)


def lane_keeping(
    deviation_m: np.ndarray, in_junction: np.ndarray, step_s: float = STEP_S
) -> np.ndarray:
    """Return 1 [N] unless the deviation [N, T] is above 0.5 m for 2 s on end, junctions left out.

    Steps in a junction, bool [N, T], neither count nor break a run.
    """
    needed, run = round(LANE_KEEPING_S / step_s), np.zeros(len(deviation_m), int)
    kept = np.ones(len(deviation_m))
    for away_m, inside in zip(np.abs(deviation_m).T, in_junction.T, strict=True):
        run = np.where(inside, run, np.where(away_m > LANE_KEEPING_M, run + 1, 0))
        kept[run >= needed] = 0.0
    return kept
