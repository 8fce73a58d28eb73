"""Let one fault after another happen to the real node, and write what came of them as a table.

Run it as scripts/fault_check.
"""

import argparse
import json
import platform
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from faults import process_faults, sensor_faults  # noqa: F401 - they declare FAULTS
from faults.fault import FAULTS
from faults.scene import Outcome, Stage
from tqdm import tqdm

CODES = 'Exit codes: 0 all faults passed, 1 some did not, 2 wrong options, 130 interrupted.'


@dataclass(frozen=True)
class Row:
    """A fault and its outcome, or the error that came instead of one."""

    fault: str
    outcome: Outcome | None
    error: str = ''

    @property
    def failures(self):
        return self.outcome.failures if self.outcome else (self.error,)


def main(args=None):
    options = _options(args)
    options.out.mkdir(parents=True, exist_ok=True)
    import conftest  # noqa: F401 - sets a DDS domain of our own for all processes

    faults = [FAULTS[name] for name in options.only or FAULTS]
    faults.sort(key=lambda fault: fault.scene)  # each scene is set up once
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            _run(faults, Path(folder), options, rows)
        except KeyboardInterrupt:
            return 130
        finally:
            _write(options.out, rows)
    failed = [row for row in rows if row.failures]
    print(f'{len(rows) - len(failed)} of {len(rows)} faults passed; {options.out / "faults.md"}')
    return 1 if failed else 0


def _options(args):
    parser = argparse.ArgumentParser(
        prog='scripts/fault_check', description=__doc__.splitlines()[0], epilog=CODES
    )
    parser.add_argument(
        '--only', nargs='+', metavar='NAME', choices=list(FAULTS), help='these faults alone'
    )
    parser.add_argument('--list', action='store_true', help='name the faults and end')
    parser.add_argument(
        '--out', type=Path, default=Path('fault_check'), help='folder for faults.md, faults.json'
    )
    parser.add_argument(
        '--frames',
        type=int,
        default=10_000,
        help='how many frames of which one percent is corrupt (%(default)s)',
    )
    options = parser.parse_args(args)
    if options.list:
        for fault in FAULTS.values():
            print(f'{fault.name:45} {fault.description}')
        sys.exit(0)
    return options


def _run(faults, folder, options, rows):
    stage = Stage(folder)
    stage.many_frames, stage.patient = options.frames, True
    try:
        for fault in tqdm(faults, unit='fault', disable=None):
            try:
                rows.append(Row(fault.name, stage.undergo(fault)))
            except AssertionError as error:  # what was waited for did not come
                rows.append(Row(fault.name, None, (str(error) or repr(error)).splitlines()[0]))
            _write(options.out, rows)
    finally:
        stage.close()
        for code, output in stage.ended:
            if code != 0:
                rows.append(Row('end of the process', None, f'exit code {code}: {output[-500:]}'))


def _write(out, rows):
    machine = f'{platform.platform()}, {platform.machine()}, Python {platform.python_version()}'
    content = {
        'machine': machine,
        'faults': [
            row.outcome.to_json() if row.outcome else {'fault': row.fault, 'failures': [row.error]}
            for row in rows
        ],
    }
    (out / 'faults.json').write_text(json.dumps(content, indent=1))
    (out / 'faults.md').write_text(markdown(rows, machine))


def markdown(rows, machine):
    """Return the table."""
    lines = [
        f'Machine: {machine}. Recovery: from the end of the fault to the next plan made after it.',
        '',
        '| fault | what happened | told | recovery, limit | after it | verdict |',
        '|---|---|---|---|---|---|',
    ]
    for row in rows:
        name, verdict = row.fault.replace('_', ' '), _cell('; '.join(row.failures) or 'passed')
        outcome = row.outcome
        if outcome is None:
            lines.append(f'| {name} | | | | | {verdict} |')
            continue
        states = ', '.join(f'{count} {state}' for state, count in outcome.states.items())
        what = _cell(f'{states}. {outcome.reason}')
        recovery = f'{outcome.recovery_s:.2f} s, {outcome.limit_s:g} s'
        told = _cell(outcome.diagnosis)
        lines.append(
            f'| {name} | {what} | {told} | {recovery} | {outcome.resources} | {verdict} |'
        )
    return '\n'.join(lines) + '\n'


def _cell(text):
    return text.replace('|', '\\|').replace('\n', ' ')[:300]


if __name__ == '__main__':
    sys.exit(main())
