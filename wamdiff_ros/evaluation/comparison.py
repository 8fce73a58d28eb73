"""How good checkpoints are on held-out records, and how they compare with the first of them.

Means of errors leave out refused answers and say how many those are; comparisons use the records
that both have a plan for.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..training.records import OBJECTS, DrivingRecord
from .bootstrap import Estimate, RouteBootstrap
from .held_out import Answers


@dataclass(frozen=True)
class ObjectScore:
    """One field of the critical objects; `f1` is None where it is neither true nor said."""

    name: str
    support: int  # records in which it is true
    f1: Estimate | None


@dataclass(frozen=True)
class CheckpointScore:
    """One checkpoint. Errors are None when it has no plan at all."""

    name: str
    parsed: int  # answers that are plans
    parsed_share: Estimate
    refusals: tuple[tuple[str, int], ...]  # (reason, how often), the most frequent first
    l2_m: Estimate | None  # mean over the 8 waypoints and all plans
    l2_at_m: tuple[Estimate | None, ...]  # at 0.5, 1.0 … 4.0 s
    along_m: Estimate | None  # mean absolute error along the truth's way
    across_m: Estimate | None
    forwards: float  # of the decoder, mean per answer
    tokens: float  # mean per answer
    seconds_p50: float  # per answer, from the picture to the plan
    seconds_p95: float
    tokens_per_s: float  # of the decoder
    description_s_p50: float
    readable: Estimate  # share of the descriptions
    objects_f1: Estimate | None  # micro average over the twelve fields
    longitudinal: Estimate  # accuracy
    lateral: Estimate
    objects: tuple[ObjectScore, ...]


@dataclass(frozen=True)
class Difference:
    """A checkpoint compared with the first one; ratios are its own value over the first one's."""

    name: str
    plans: int  # records that both have a plan for
    l2_difference_m: Estimate | None
    l2_ratio: Estimate | None
    seconds_ratio: float  # of the medians
    forwards_ratio: Estimate


@dataclass(frozen=True)
class Comparison:
    """All checkpoints; the first one is what the others are compared with."""

    data: tuple[str, ...]
    records: int
    routes: int
    checkpoints: tuple[CheckpointScore, ...]
    differences: tuple[Difference, ...]


def compare(
    names: Sequence[str],
    answers: Sequence[Answers],
    records: Sequence[DrivingRecord],
    data: Sequence[str] = (),
) -> Comparison:
    """Score the answers of every checkpoint to `records`."""
    bootstrap = RouteBootstrap(np.array([record.seed for record in records]))
    truth = np.array([[record.objects[name] for name in OBJECTS] for record in records])
    return Comparison(
        data=tuple(data),
        records=len(records),
        routes=bootstrap.routes,
        checkpoints=tuple(
            _score(name, one, truth, bootstrap) for name, one in zip(names, answers, strict=True)
        ),
        differences=tuple(
            _difference(name, one, answers[0], bootstrap)
            for name, one in zip(names[1:], answers[1:], strict=True)
        ),
    )


def _score(
    name: str, answers: Answers, truth: np.ndarray, bootstrap: RouteBootstrap
) -> CheckpointScore:
    parsed, distance = answers.parsed, answers.distance_m
    along, across = np.abs(np.nan_to_num(answers.offset_m)).mean(axis=1).T
    p50, p95 = np.percentile(answers.seconds, (50, 95))
    hits = 2 * (answers.objects & truth)  # F1 = 2 TP / (2 TP + FP + FN)
    said_or_true = answers.objects.astype(int) + truth
    return CheckpointScore(
        name=name,
        parsed=int(parsed.sum()),
        parsed_share=bootstrap.mean(parsed),
        refusals=tuple(answers.refusals.most_common()),
        l2_m=bootstrap.mean(distance.mean(axis=1), parsed),
        l2_at_m=tuple(bootstrap.mean(column, parsed) for column in distance.T),
        along_m=bootstrap.mean(along, parsed),
        across_m=bootstrap.mean(across, parsed),
        forwards=float(answers.forwards.mean()),
        tokens=float(answers.tokens.mean()),
        seconds_p50=float(p50),
        seconds_p95=float(p95),
        tokens_per_s=float(answers.tokens.sum() / answers.decode_s.sum()),
        description_s_p50=float(np.median(answers.description_s)),
        readable=bootstrap.mean(answers.readable),
        objects_f1=bootstrap.ratio(hits.sum(axis=1), said_or_true.sum(axis=1)),
        longitudinal=bootstrap.mean(answers.longitudinal_right),
        lateral=bootstrap.mean(answers.lateral_right),
        objects=tuple(
            ObjectScore(
                field, int(truth[:, i].sum()), bootstrap.ratio(hits[:, i], said_or_true[:, i])
            )
            for i, field in enumerate(OBJECTS)
        ),
    )


def _difference(
    name: str, answers: Answers, first: Answers, bootstrap: RouteBootstrap
) -> Difference:
    both = answers.parsed & first.parsed
    mine, its = (one.distance_m.mean(axis=1) * both for one in (answers, first))
    return Difference(
        name=name,
        plans=int(both.sum()),
        l2_difference_m=bootstrap.mean(mine - its, both),
        l2_ratio=bootstrap.ratio(mine, its),
        seconds_ratio=float(np.median(answers.seconds) / np.median(first.seconds)),
        forwards_ratio=bootstrap.ratio(answers.forwards, first.forwards),
    )
