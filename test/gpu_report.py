"""Run what needs a GPU, and write down what came of it; run it as scripts/gpu_check."""

import argparse
import json
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

ROOT = Path(__file__).parents[1]
WAMDIFF = (sys.executable, '-m', 'wamdiff_ros.cli')
BENCHES = {
    'nano': ('--device', 'cuda'),
    '2b': ('--device', 'cuda', '--size', '2b', '--only', 'ladder', 'stages'),
}


def main(args=None):
    parser = argparse.ArgumentParser(prog='scripts/gpu_check')
    parser.add_argument('out', nargs='?', type=Path, default=Path('gpu_report'), metavar='FOLDER')
    parser.add_argument('--no-bench', action='store_true', help='machine and tests alone')
    options = parser.parse_args(args)
    import torch

    if not torch.cuda.is_available():
        print(
            f'error: torch {torch.__version__} finds no CUDA device; nothing was checked',
            file=sys.stderr,
        )
        return 1
    try:
        report = check(() if options.no_bench else tuple(BENCHES))
    except KeyboardInterrupt:
        print('interrupted', file=sys.stderr)
        return 130
    options.out.mkdir(parents=True, exist_ok=True)
    text = json.dumps(report, indent=1, ensure_ascii=False)
    (options.out / 'gpu_report.json').write_text(text + '\n', 'utf8')
    (options.out / 'gpu_report.md').write_text(markdown(report), 'utf8')
    print(markdown(report))
    return 0 if passed(report) else 1


def check(benches):
    """Return the report: doctor's findings, tests, and the benches of these names."""
    commit = subprocess.run(
        ['git', 'describe', '--always', '--dirty'], cwd=ROOT, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    report = {'commit': commit.stdout.strip(), 'doctor': _json(*WAMDIFF, 'doctor', '--json')}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, 'tests.xml')
        command = [sys.executable, '-m', 'pytest', '-m', 'gpu', f'--junitxml={file}', 'test']
        subprocess.run(command, cwd=ROOT, check=False)
        report['tests'] = read_tests(file.read_text('utf8')) if file.exists() else []
    report['bench'] = {
        name: _json(*WAMDIFF, 'bench', '--json', *BENCHES[name]) for name in benches
    }
    return report


def _json(*command):
    """Return what a command prints as JSON, or what went wrong instead."""
    print('$', *command[1:], file=sys.stderr)
    result = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    try:
        return json.loads(result.stdout)
    except ValueError:
        return {'error': f'exit code {result.returncode}', 'output': result.stdout[-2000:]}


def read_tests(xml):
    """Return each test of pytest's XML: name, outcome, seconds, and its message if it has one."""
    tests = []
    for case in ElementTree.fromstring(xml).iter('testcase'):
        if not case.get('classname'):
            continue  # a file that was skipped as a whole
        outcome, message = 'passed', ''
        for child in case:
            if child.tag in ('failure', 'error', 'skipped'):
                outcome = {'failure': 'failed'}.get(child.tag, child.tag)
                message = (child.get('message') or '').splitlines()[0:1]
                message = message[0] if message else ''
        tests.append(
            {
                'name': f'{case.get("classname")}::{case.get("name")}',
                'outcome': outcome,
                'seconds': float(case.get('time', 0)),
                'message': message,
            }
        )
    return tests


def passed(report):
    """Return whether some test ran, none failed, and every bench has figures."""
    outcomes = {test['outcome'] for test in report['tests']}
    benches = not any('error' in bench for bench in report['bench'].values())
    return 'passed' in outcomes and not outcomes & {'failed', 'error'} and benches


def markdown(report):
    """Return the report to be read."""
    lines = ['# GPU report', '', f'Commit {report["commit"]}.', '', '## Machine', '']
    findings = report['doctor'].get('findings', [])
    lines += ['| check | level | finding |', '|---|---|---|']
    lines += [f'| {f["check"]} | {f["level"]} | {_cell(f["words"])} |' for f in findings]
    lines += ['', '## Tests', '', '| test | outcome | seconds | message |', '|---|---|---|---|']
    lines += [
        f'| {_cell(t["name"])} | {t["outcome"]} | {t["seconds"]:.1f} | {_cell(t["message"])} |'
        for t in report['tests']
    ]
    if not report['tests']:
        lines.append('| none ran | | | |')
    for name, bench in report['bench'].items():
        lines += ['', f'## Bench: {name}', '', '```', json.dumps(bench, indent=1), '```']
    return '\n'.join(lines) + '\n'


def _cell(text):
    return text.replace('|', '\\|').replace('\n', ' ')


if __name__ == '__main__':
    sys.exit(main())
