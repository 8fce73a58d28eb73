"""Show a `Report` as tables for a terminal, or as one JSON object."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from .report import Report

NONE = '–'


def to_json(report: Report) -> dict[str, Any]:
    """Return everything, with the headline ratios first."""
    targets = [{**asdict(target), 'met': target.met} for target in report.targets()]
    return {
        'decode_vs_transformers_ar': report.decode_vs_transformers_ar,
        'prefill_vs_transformers': report.prefill_vs_transformers,
        'targets': targets,
        'busy': report.machine.busy,
        **asdict(report),
    }


def to_text(report: Report) -> str:
    """Return the tables of the sections that were measured."""
    parts = [_machine(report), _workload(report)]
    if report.ladder is not None:
        parts.append(_ladder(report))
    if report.stages is not None:
        parts.append(_stages(report))
    if report.cost is not None:
        parts += _cost(report)
    if report.tick is not None:
        parts.append(_tick(report))
    if report.profile is not None:
        parts += _profile(report)
    if report.targets():
        parts.append(_targets(report))
    return '\n\n'.join(parts)


def _machine(report: Report) -> str:
    machine = report.machine
    versions = ', '.join(f'{name} {version}' for name, version in machine.versions.items())
    lines = [
        f'{machine.time_utc} UTC, {machine.processor}, {machine.cores} cores, '
        f'{machine.threads} threads, {machine.vector_instructions}, {machine.memory_gib:.0f} GiB',
        f'{machine.system}, Python {machine.python}, {versions}',
    ]
    if machine.accelerator:
        lines.insert(1, machine.accelerator)
    if machine.busy:
        lines.append(
            f'load average {machine.load_average:.2f}: others were using this machine; times are '
            'too long, ratios are rough'
        )
    return '\n'.join(lines)


def _workload(report: Report) -> str:
    work = report.workload
    return (
        f'{work.model}: {work.parameters / 1e6:.1f} M parameters in {work.dtype}, blocks of '
        f'{work.block_size}, {work.denoising_steps} denoising steps ({work.unmasking})\n'
        f'{work.questions} questions of {work.prompt_tokens:.0f} tokens, '
        f'{work.image_tokens:.0f} of them images; up to {work.answer_tokens} tokens of answer; '
        f'medians of {work.rounds} rounds'
    )


def _ladder(report: Report) -> str:
    head = ('side by side', 'vision [ms]', 'prefill', 'second', 'decode', 'tokens', 'forwards',
            'tokens/s', '× before', '× transf.', 'prefill ×', 'same')  # fmt: skip
    rows = [
        (
            rung.name, _ms(rung.vision_s or None), _ms(rung.prefill_s), _ms(rung.second_prefill_s),
            _ms(rung.decode_s), str(rung.tokens), str(rung.forwards), f'{rung.tokens_per_s:.0f}',
            _ratio(rung.tokens_per_s_vs_previous), _ratio(rung.tokens_per_s_vs_transformers),
            _ratio(rung.prefill_vs_transformers),
            NONE if rung.same_answer is None else 'yes' if rung.same_answer else 'no',
        )
        for rung in report.ladder
    ]  # fmt: skip
    note = (
        'second: prefill of another question about the same images; same: the answer is that of '
        'the plain decoder of its kind, to the last token'
    )
    return f'{_table(head, rows)}\n{note}'


def _stages(report: Report) -> str:
    limits = report.limits
    head = ('forward', 'ms', 'compute floor', 'memory floor', 'of the limit', 'bound by')
    rows = [
        (
            stage.name, _ms(stage.seconds), _ms(stage.compute_floor_s), _ms(stage.memory_floor_s),
            f'{stage.fraction_of_limit:.1%}', stage.bound,
        )
        for stage in report.stages
    ]  # fmt: skip
    return (
        f'limits: {limits.gemm_flops_per_s / 1e9:.0f} GFLOP/s (square product), reading '
        f'{limits.bytes_per_s / 1e9:.1f} GB/s, and {limits.weights_bytes_per_s / 1e9:.1f} GB/s '
        f'for the {limits.weights_bytes / 1e6:.0f} MB of weights that a forward reads\n'
        f'{_table(head, rows)}'
    )


def _cost(report: Report) -> list[str]:
    return [
        _table(
            (name, 'prompt', 'vision [ms]', 'prefill', 'decode', 'answer', 'tokens'),
            [
                (
                    str(point.value), str(point.prompt_tokens), _ms(point.vision_s),
                    _ms(point.prefill_s), _ms(point.decode_s), _ms(point.answer_s),
                    str(point.answer_tokens),
                )
                for point in points
            ],
        )
        for name, points in report.cost.items()
    ]  # fmt: skip


def _tick(report: Report) -> str:
    tick = report.tick
    times = tick.p50_ms, tick.p95_ms, tick.p99_ms, tick.max_ms
    head = ('planning tick beside a simulator', 'p50 [ms]', 'p95', 'p99', 'longest')
    name = f'{tick.ticks} ticks at 10 Hz, {tick.threads} threads'
    return _table(head, [(name, *(f'{value:.1f}' for value in times))])


def _profile(report: Report) -> list[str]:
    return [
        _table(
            (f'operators of one answer: {name}', 'calls', 'share'),
            [(operator.name, str(operator.calls), f'{operator.share:.1%}') for operator in found],
        )
        for name, found in report.profile.items()
    ]


def _targets(report: Report) -> str:
    return _table(
        ('aimed for', 'wanted', 'reached', ''),
        [
            (
                target.name, f'{"≥" if target.at_least else "≤"} {target.wanted}',
                f'{target.reached:.2f}', 'met' if target.met else 'MISSED',
            )
            for target in report.targets()
        ],
    )  # fmt: skip


def _ms(seconds: float | None) -> str:
    if seconds is None:
        return NONE
    return f'{1e3 * seconds:.2f}' if seconds < 0.1 else f'{1e3 * seconds:.0f}'


def _ratio(value: float | None) -> str:
    return NONE if value is None else f'{value:.2f}'


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    return '\n'.join(
        '  '.join(
            cell.rjust(width) if place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in (head, *rows)
    )
