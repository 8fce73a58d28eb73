"""A planner process and its sensors, to which faults happen; and what came of each fault."""

import subprocess
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from faults.plan_oracle import faults_of
from faults.resources import Resources, resources_of
from planner_bench import Bench, PlannerProcess, time_ns
from wamdiff_ros.msg import PlannerStatus

HERE = Path(__file__).parent
STATES = {
    PlannerStatus.WAITING: 'WAITING',
    PlannerStatus.NOMINAL: 'NOMINAL',
    PlannerStatus.HELD: 'HELD',
    PlannerStatus.FALLBACK_STOP: 'FALLBACK_STOP',
}
WARM_UP_TICKS = 30
DDS_FORGETS_S = 30.0  # a process that was killed; it announces itself every few seconds, or not
LEVELS = ('OK', 'WARN', 'ERROR', 'STALE')


@dataclass(frozen=True)
class Outcome:
    """What came of one fault. `recovery_s` is from its end to the next plan made after it."""

    fault: str
    description: str
    states: dict[str, int]  # published while it lasted and until planning was back
    reason: str  # of the newest tick that was not NOMINAL
    diagnosis: str  # the worst that was told
    bad_plans: tuple[str, ...]
    recovery_s: float
    limit_s: float
    leaked: str  # what the process holds more than before its first fault
    resources: Resources

    @property
    def failures(self):
        """What went wrong, one sentence each."""
        late = self.recovery_s > self.limit_s
        return (
            *(f'a plan {text}' for text in self.bad_plans),
            *([f'recovery took {self.recovery_s:.2f} s of {self.limit_s:g} s'] if late else []),
            *([f'leaked {self.leaked}'] if self.leaked else []),
        )

    def to_json(self):
        return {**asdict(self), 'failures': self.failures}


class Scene:
    """The real node with a fake session, over real DDS; ends its processes with `close`."""

    def __init__(self, folder, simulated=False, jpeg=False, own_clock=False):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._environment = self._shifted_clock() if own_clock else {}
        self.many_frames = Stage.many_frames
        self._arguments = ('-p', 'use_sim_time:=true') if simulated else ()
        self.bench = Bench(simulated=simulated, jpeg=jpeg)
        self.afterwards = ExitStack()  # what a fault leaves behind until planning is back
        self.start_planner()

    def start_planner(self, *arguments):
        """Start a planner; the one before has ended."""
        folder = self.folder / f'planner_{time.monotonic_ns()}'
        folder.mkdir(parents=True)
        self.planner = PlannerProcess(
            folder,
            *('-p', 'autostart:=true', *self._arguments, *arguments),
            environment=self._environment,
        )
        self._baseline = None  # of its resources, once it has planned for a while

    def let_end(self, code):
        """Wait for the planner to end by itself with `code`, and start another one."""
        self.bench.wait(lambda: self.planner.process.poll() is not None, 'the end of the process')
        ended = self.planner.end()
        assert ended == code, f'exit code {ended}, wanted {code}: {self.planner.output()[-500:]}'
        self.start_planner()

    def set_clock(self, seconds):
        """Set the system clock of planner and sensors on by so much; needs `own_clock`."""
        self._clock_ns += round(seconds * 1e9)
        self._clock_file.write(self._clock_ns.to_bytes(8, 'little', signed=True))
        self._clock_file.seek(0)
        self.bench.shift_ns = self._clock_ns

    def _shifted_clock(self):
        """Return the environment of a process whose system clock is ours to set."""
        library, offset = self.folder / 'shifted_clock.so', self.folder / 'offset'
        source = HERE / 'shifted_clock.c'
        command = ['cc', '-shared', '-fPIC', '-O1', '-o', library, source, '-ldl']
        subprocess.run(command, check=True)
        self._clock_ns = 0
        self._clock_file = offset.open('wb', buffering=0)
        self._clock_file.write(bytes(8))
        self._clock_file.seek(0)
        return {'LD_PRELOAD': str(library), 'SHIFTED_CLOCK': str(offset)}

    def resources(self):
        return resources_of(self.planner.process.pid)

    def settle(self, patient):
        """Wait for the state in which every fault begins: all inputs there, planning NOMINAL."""
        self.bench.restore()
        self.bench.sim_runs = self.bench.simulated
        self.planner.steer()
        self._wait_for_a_plan('planning')
        if patient:
            self.bench.next_diagnosis(lambda d: d.level < d.ERROR, 'the end of complaints')
        if self._baseline is None:
            self.watch(WARM_UP_TICKS)
            self._baseline = self.resources()

    def see(self, state=None, words='', above=None):
        """Wait for a status in `state` with `words` in its reason; return it."""
        return self.bench.next_status(
            lambda m: (
                state in (None, m.state)
                and words in m.reason
                and (above is None or m.stream_resets > above)
            ),
            f'{STATES.get(state, "a tick")} {words!r}',
        )

    def hear(self, words):
        """Wait for a diagnosis that says `words`; return it."""
        return self.bench.next_diagnosis(lambda d: words in d.message, f'diagnosis {words!r}')

    def watch(self, ticks):
        """Let so many ticks pass."""
        start = len(self.bench.heard['status'])
        self.bench.wait(lambda: len(self.bench.heard['status']) >= start + ticks, f'{ticks} ticks')

    def resets(self):
        return self.bench.heard['status'][-1].stream_resets

    def undergo(self, fault, patient=False):
        """Let `fault` happen and pass, and return its Outcome."""
        self.settle(patient)
        before = {name: len(messages) for name, messages in self.bench.heard.items()}
        fault.happen(self)
        ended_s = time.monotonic()
        self._wait_for_a_plan(f'recovery from {fault.name}')
        recovery_s = time.monotonic() - ended_s
        new = {name: messages[before[name] :] for name, messages in self.bench.heard.items()}
        self.afterwards.close()
        states = Counter(STATES[m.state] for m in new['status'])
        reasons = [m.reason for m in new['status'] if m.state != PlannerStatus.NOMINAL]
        worst = max(
            (m.status[0] for m in reversed(new['diagnostics'])),
            key=lambda d: d.level,
            default=None,
        )
        told = sorted(self.bench.told)
        bad = {text: None for m in new['trajectory'] for text in faults_of(m, told, self.bench)}
        return Outcome(
            fault=fault.name,
            description=fault.description,
            states=dict(states),
            reason=reasons[-1] if reasons else '',
            diagnosis=f'{LEVELS[worst.level[0]]}: {worst.message}' if worst else '',
            bad_plans=tuple(bad),
            recovery_s=round(recovery_s, 3),
            limit_s=fault.limit_s,
            leaked=self._leaked(),
            resources=self.resources(),
        )

    def close(self):
        """End the node, and return its exit code."""
        try:
            return self.planner.end()
        finally:
            self.afterwards.close()
            self.bench.close()

    def _leaked(self):
        """Say what the process holds too much, after what ends by itself has had time to."""
        if self._baseline is None:
            return ''  # a new process
        until_s = time.monotonic() + DDS_FORGETS_S
        while (excess := self.resources().excess_over(self._baseline)) and (
            time.monotonic() < until_s
        ):
            time.sleep(0.5)
        return excess

    def _wait_for_a_plan(self, what):
        """Wait for a plan from a frame of now."""
        now_ns = self.bench.now_ns()
        self.bench.next_status(
            lambda m: m.state == PlannerStatus.NOMINAL and time_ns(m.t0) >= now_ns, what
        )


class Stage:
    """Sets up the scene that a fault needs, one at a time: they would hear each other."""

    many_frames = 1000  # of one_percent_of_many_frames_is_corrupt
    patient = False  # wait until diagnostics say no more of the fault before

    def __init__(self, folder):
        self._folder = Path(folder)
        self._scene, self._setting = None, None
        self._count = 0
        self.ended = []  # (exit code, output) of planners whose scene is over

    def undergo(self, fault):
        """Return the Outcome; raises AssertionError for what does not come within a minute."""
        if fault.scene != self._setting:
            self.close()
        if self._scene is None:
            self._count += 1
            folder = self._folder / f'scene_{self._count}'
            self._scene, self._setting = Scene(folder, **dict(fault.scene)), fault.scene
            self._scene.many_frames = self.many_frames
        try:
            return self._scene.undergo(fault, self.patient)
        except AssertionError as error:
            planner = self._scene.planner
            code, output = planner.process.poll(), planner.output()
            self.close()  # it may be in any state
            if code is None:
                raise
            raise AssertionError(
                f'the planner ended with exit code {code}: {output[-500:]}'
            ) from error

    def close(self):
        if self._scene is not None:
            scene, self._scene = self._scene, None
            self.ended.append((scene.close(), scene.planner.output()))
