"""Run the real planner for a long time, and fail when it takes more and more of the machine.

Run it as scripts/soak. Writes soak.csv, one row a second, soak.json and soak.png.
"""

import argparse
import csv
import json
import os
import platform
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from faults.resources import cpu_seconds, resources_of
from scipy.stats import theilslopes
from tqdm import tqdm

from wamdiff_ros.child_process import ChildProcess

CODES = (
    'Exit codes: 0 done and nothing grew, 1 something grew or a process ended, 2 wrong options, '
    '130 interrupted.'
)
WARM_UP = 0.25  # of the run is not judged: code is loaded, allocators fill
ALLOWED_SHARE, ALLOWED_MIB = 0.02, 5.0  # of memory over the judged time, whichever is more
COUNTED = ('threads', 'open_files', 'shared_memory')
COLUMNS = (
    *('time_s', 'memory_mib', *COUNTED, 'cpu_percent'),
    *('ticks', 'plans', 'latency_p50_ms', 'latency_p95_ms', 'missed_deadlines', 'stream_resets'),
    'reason',
)


@dataclass(frozen=True)
class Growth:
    """A robust line through memory over time, after the warm-up."""

    mib_per_hour: float
    at_least_mib_per_hour: float  # lower end of the 95 % interval
    judged_s: float
    memory_mib: float  # median of the judged time

    @property
    def complaint(self):
        surely_mib = self.at_least_mib_per_hour * self.judged_s / 3600
        allowed_mib = max(ALLOWED_SHARE * self.memory_mib, ALLOWED_MIB)
        if surely_mib <= allowed_mib:
            return ''
        return f'memory grows by {self.mib_per_hour:.1f} MiB an hour'


def growth(times_s, memory_mib):
    """Return the Growth of memory, both arrays [N] with N >= 8."""
    times_s, memory_mib = np.asarray(times_s, float), np.asarray(memory_mib, float)
    judged = times_s >= times_s[0] + WARM_UP * (times_s[-1] - times_s[0])
    times_s, memory_mib = times_s[judged], memory_mib[judged]
    thin = max(len(times_s) // 500, 1)  # the estimator takes every pair
    slope, _, low, _ = theilslopes(memory_mib[::thin], times_s[::thin], alpha=0.95)
    return Growth(
        mib_per_hour=slope * 3600,
        at_least_mib_per_hour=low * 3600,
        judged_s=times_s[-1] - times_s[0],
        memory_mib=float(np.median(memory_mib)),
    )


def complaints_about(rows):
    """Return what grew over the run; `rows` are dicts with the keys COLUMNS."""
    complaint = growth([r['time_s'] for r in rows], [r['memory_mib'] for r in rows]).complaint
    complaints = [complaint] if complaint else []
    quarter = max(len(rows) // 4, 1)
    for name in COUNTED:
        early = np.median([row[name] for row in rows[quarter : 2 * quarter]])
        late = np.median([row[name] for row in rows[-quarter:]])
        if late > early:
            complaints.append(f'{name} went from {early:g} to {late:g}')
    if not any(row['plans'] for row in rows[-quarter:]):
        complaints.append('nothing was planned in the last quarter')
    return complaints


class Listener:
    """Hears the planner's status until `close`."""

    def __init__(self):
        import rclpy
        from rclpy.executors import SingleThreadedExecutor
        from wamdiff_ros.msg import PlannerStatus

        self._rclpy = rclpy
        self._planned = (PlannerStatus.NOMINAL, PlannerStatus.HELD)
        self._plan_ns = 0  # t0 of the newest
        self._new, self._lock = [], threading.Lock()
        self._newest = None
        self._context = rclpy.Context()
        rclpy.init(context=self._context)
        self._node = rclpy.create_node('soak', context=self._context)
        self._node.create_subscription(PlannerStatus, 'planner/status', self._hear, 50)
        self._executor = SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self._node)
        self._thread = threading.Thread(target=self._executor.spin, daemon=True)
        self._thread.start()

    def _hear(self, status):
        with self._lock:
            self._new.append(status)
            self._newest = status

    def figures(self):
        """Return what was heard since the last call, under the names of COLUMNS."""
        with self._lock:
            heard, self._new = self._new, []
            newest = self._newest
        stages_ms = {
            (m.t0.sec, m.t0.nanosec): sum(s.duration.sec * 1e3 + s.duration.nanosec / 1e6
                                          for s in m.stages if not s.name.startswith('describe'))
            for m in heard
        }  # fmt: skip
        p50, p95 = np.percentile(list(stages_ms.values()) or [np.nan], (50, 95))
        return {
            'ticks': len(heard),
            'plans': self._count_plans(heard),
            'latency_p50_ms': round(float(p50), 2),
            'latency_p95_ms': round(float(p95), 2),
            'missed_deadlines': newest.missed_deadlines if newest else 0,
            'stream_resets': newest.stream_resets if newest else 0,
            'reason': newest.reason if newest else '',
        }

    def _count_plans(self, heard):
        """Return how many plans there were that had not been there before."""
        new = {m.t0.sec * 10**9 + m.t0.nanosec for m in heard if m.state in self._planned}
        new = {t0_ns for t0_ns in new if t0_ns > self._plan_ns}
        self._plan_ns = max(new, default=self._plan_ns)
        return len(new)

    def close(self):
        self._executor.shutdown()
        self._thread.join(5.0)
        self._node.destroy_node()
        self._rclpy.try_shutdown(context=self._context)


def main(args=None):
    options = _options(args)
    options.out.mkdir(parents=True, exist_ok=True)
    import conftest  # noqa: F401 - sets a DDS domain of our own for all processes

    rows, ended = [], ''
    try:
        ended = _run(options, rows)
    except KeyboardInterrupt:
        print('interrupted', file=sys.stderr)
        return 130
    finally:
        _write(options.out, rows)
    if len(rows) < 8:
        print(f'error: {ended or "too short to judge"}', file=sys.stderr)
        return 1
    found = growth([r['time_s'] for r in rows], [r['memory_mib'] for r in rows])
    complaints = [*([ended] if ended else []), *complaints_about(rows)]
    summary = {
        'machine': f'{platform.platform()}, Python {platform.python_version()}',
        'minutes': options.minutes,
        'source': options.source,
        'memory_mib': found.memory_mib,
        'memory_growth_mib_per_hour': found.mib_per_hour,
        'complaints': complaints,
    }
    (options.out / 'soak.json').write_text(json.dumps(summary, indent=1))
    _draw(options.out / 'soak.png', rows)
    for complaint in complaints:
        print(f'error: {complaint}', file=sys.stderr)
    print(
        f'{len(rows)} s: {found.memory_mib:.0f} MiB, growing by {found.mib_per_hour:+.2f} MiB an '
        f'hour; {options.out / "soak.png"}'
    )
    return 1 if complaints else 0


def _options(args):
    parser = argparse.ArgumentParser(
        prog='scripts/soak', description=__doc__.splitlines()[0], epilog=CODES
    )
    parser.add_argument('--minutes', type=float, default=60.0, help='how long (%(default)s)')
    parser.add_argument(
        '--source',
        choices=('simulator', 'bench'),
        default='simulator',
        help='simulator: the bundled checkpoint drives routes of the world; bench: blank pictures '
        'and a session without a network, which leaves the node itself (%(default)s)',
    )
    parser.add_argument(
        '--out', type=Path, default=Path('soak'), help='folder for csv, json and png (%(default)s)'
    )
    options = parser.parse_args(args)
    if not 0 < options.minutes < 10_000:
        parser.error(f'--minutes {options.minutes} is not above 0')
    return options


def _run(options, rows):
    """Fill `rows`; return why it ended early, or ''."""
    if options.source == 'bench':
        from planner_bench import Bench, PlannerProcess

        bench = Bench()
        planner = PlannerProcess(options.out, '-p', 'autostart:=true')
        try:
            return _watch(options, rows, planner.process.pid, planner.process.poll)
        finally:
            planner.end()
            bench.close()
    ros = [sys.executable, '-m', 'wamdiff_ros.ros.planner_node', '--ros-args']
    command = [*ros, '-p', 'autostart:=true', '-p', 'threads:=1']
    world = [sys.executable, '-m', 'wamdiff_ros.ros.simulator_node', '--ros-args']
    world += ['-p', 'routes:=100000', '-p', 'compressed:=true', '-p', 'wait_s:=120.0']
    environment = dict(os.environ)
    with (
        ChildProcess(command, options.out / 'planner.log', environment) as planner,
        ChildProcess(world, options.out / 'simulator.log', environment) as simulator,
    ):

        def ended():
            codes = {'planner': planner.exit_code, 'simulator': simulator.exit_code}
            return next((f'the {k} ended with {v}' for k, v in codes.items() if v is not None), '')

        return _watch(options, rows, planner.pid, ended)


def _watch(options, rows, pid, ended):
    listener = Listener()
    try:
        with tqdm(desc='waiting for the first plan', bar_format='{desc} {elapsed}', disable=None):
            while not listener.figures()['plans']:
                if reason := ended():
                    return str(reason)
                time.sleep(1.0)
        start_s, cpu_s = time.monotonic(), cpu_seconds(pid)
        for second in tqdm(range(round(options.minutes * 60)), unit='s', disable=None):
            time.sleep(max(start_s + second + 1 - time.monotonic(), 0.0))
            if reason := ended():
                return str(reason)
            held, cpu_before_s, cpu_s = resources_of(pid), cpu_s, cpu_seconds(pid)
            rows.append(
                {
                    'time_s': round(time.monotonic() - start_s, 2),
                    'memory_mib': round(held.memory_mib, 2),
                    **{name: getattr(held, name) for name in COUNTED},
                    'cpu_percent': round(100 * (cpu_s - cpu_before_s)),
                    **listener.figures(),
                }
            )
        return ''
    finally:
        listener.close()


def _write(out, rows):
    with (out / 'soak.csv').open('w', newline='') as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)


def _draw(path, rows):
    import matplotlib

    matplotlib.use('agg')
    from matplotlib import pyplot

    minutes = [row['time_s'] / 60 for row in rows]
    figure, axes = pyplot.subplots(4, 1, sharex=True, figsize=(9, 9), layout='constrained')
    curves = (
        ('memory [MiB]', ('memory_mib',)),
        ('count', COUNTED),
        ('latency [ms]', ('latency_p50_ms', 'latency_p95_ms')),
        ('a second', ('ticks', 'plans')),
    )
    for axis, (label, names) in zip(axes, curves, strict=True):
        for name in names:
            axis.plot(minutes, [row[name] for row in rows], label=name, linewidth=0.8)
        axis.set_ylabel(label)
        axis.set_ylim(0, 1.15 * np.nanmax([[row[name] for row in rows] for name in names]))
        axis.grid(alpha=0.3)
        axis.legend(loc='lower right')
    axes[-1].set_xlabel('time [min]')
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


if __name__ == '__main__':
    sys.exit(main())
