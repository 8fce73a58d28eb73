"""Check this machine: what the planner needs, one line each, and what to do where it is missing.

    wamdiff doctor
    wamdiff doctor --model DIR --json

OK: fine. WARN: it runs, but something will be slow, lost or missing. FAIL: it does not run.
Nothing is installed or changed. Exit codes: 0 no FAIL, 1 a FAIL, 2 wrong options, 130 interrupted.
"""

import argparse
import json
from collections.abc import Iterator
from functools import partial

from .. import __version__
from . import accelerator_checks, machine_checks, ros_checks
from .finding import Finding, Level
from .surroundings import Surroundings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `wamdiff doctor`."""
    parser.add_argument(
        '--model', default='', metavar='DIR', help='checkpoint to load (the bundled one)'
    )
    parser.add_argument('--json', action='store_true', help='print one JSON object, no lines')


def run(args: argparse.Namespace) -> int:
    """Check and print; returns the exit code."""
    findings = []
    for finding in diagnose(Surroundings(), args.model):
        findings.append(finding)
        if not args.json:
            print(to_text(finding), flush=True)
    if args.json:
        print(json.dumps(to_json(findings), indent=1, ensure_ascii=False))
    return 1 if any(finding.level is Level.FAIL for finding in findings) else 0


def diagnose(here: Surroundings, model_dir: str = '') -> Iterator[Finding]:
    """Run all checks, the cheap ones first."""
    checks = [
        *machine_checks.CHECKS, *ros_checks.CHECKS, *accelerator_checks.CHECKS,
        partial(machine_checks.checkpoint, model_dir=model_dir), machine_checks.renderer,
    ]  # fmt: skip
    for check in checks:
        yield check(here)


def to_text(finding: Finding) -> str:
    """Return one finding as one line, and what to do as a second one."""
    line = f'{finding.level.value:<4}  {finding.check:<13}  {finding.words}'
    return f'{line}\n{"":21}→ {finding.remedy}' if finding.remedy else line


def to_json(findings: list[Finding]) -> dict:
    """Return all findings with their counts."""
    return {
        'version': __version__,
        **{level.value: sum(f.level is level for f in findings) for level in Level},
        'findings': [
            {'check': f.check, 'level': f.level.value, 'words': f.words, 'remedy': f.remedy}
            for f in findings
        ],
    }
