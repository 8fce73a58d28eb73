"""Python, its packages, disk space, the checkpoint and the renderer."""

from .finding import Finding, fail, ok, warn
from .surroundings import Surroundings

PYTHONS = ((3, 10), (3, 13))  # the oldest and the newest that the tests ran on
# Distribution: what is missing without it.
PACKAGES = (
    'numpy', 'scipy', 'pillow', 'pyyaml', 'tqdm', 'torch', 'safetensors', 'tokenizers', 'rosbags',
)  # fmt: skip
ROSDEP_NAMES = {'pillow': 'PIL', 'pyyaml': 'yaml'}
OPENCVS = ('opencv-python-headless', 'opencv-python', 'opencv-contrib-python')
SPACE_BYTES = 2 << 30  # for engines, bags and a checkpoint
NO_SPACE_BYTES = 100 << 20


def python(here: Surroundings) -> Finding:
    """The interpreter is one that this package runs on."""
    version = '.'.join(map(str, here.python))
    low, high = PYTHONS
    if here.python < low:
        return fail(
            'python', f'{version} at {here.executable} is too old',
            f'take Python {low[0]}.{low[1]} or newer',
        )  # fmt: skip
    if here.python > high:
        return warn(
            'python', f'{version} is newer than what was tried', f'take {high[0]}.{high[1]}'
        )
    return ok('python', f'{version} at {here.executable}')


def packages(here: Surroundings) -> Finding:
    """What runtime.txt and rosdep bring is there."""
    missing = [
        name
        for name in PACKAGES
        if here.version(name) is None and not here.has_module(ROSDEP_NAMES.get(name, name))
    ]
    if not here.has_module('cv2') and not any(here.version(name) for name in OPENCVS):
        missing.append(OPENCVS[0])
    if missing:
        return fail(
            'packages', f'{here.executable} does not find {", ".join(missing)}',
            'pip install -r requirements/runtime.txt into this environment; if they are in '
            'another one, activate that',
        )  # fmt: skip
    shown = ', '.join(
        f'{name} {here.version(name)}' for name in ('numpy', 'torch') if here.version(name)
    )
    return ok('packages', shown or 'all there')


def started_python(here: Surroundings) -> Finding:
    """`ros2 run` starts the node with the interpreter that has the packages."""
    prefixes = [p for p in here.environ.get('AMENT_PREFIX_PATH', '').split(':') if p]
    for prefix in (*prefixes, here.prefix):
        content = here.read(f'{prefix}/lib/wamdiff_ros/planner_node')
        if content is None or not content.startswith('#!'):
            continue
        theirs = content.splitlines()[0].removeprefix('#!').strip()
        if theirs == here.executable:
            return ok('ros2 run', f'starts {theirs}')
        return warn(
            'ros2 run', f'starts the node with {theirs}, this is {here.executable}',
            'build with the virtual environment active: . .venv/bin/activate && '
            'python -m colcon build',
        )  # fmt: skip
    return ok('ros2 run', 'no installed node; the source tree is in use')


def disk(here: Surroundings) -> Finding:
    """There is room for what is built and recorded."""
    free = here.free_bytes('.')
    if free is None or free < NO_SPACE_BYTES:
        return fail('disk', 'there is no space left in this folder', 'make room')
    if free < SPACE_BYTES:
        return warn(
            'disk', f'{free >> 20} MiB left in this folder',
            'make room: an engine takes hundreds of megabytes, a minute of raw video gigabytes',
        )  # fmt: skip
    return ok('disk', f'{free / 2**30:.1f} GiB free in this folder')


def checkpoint(here: Surroundings, model_dir: str = '') -> Finding:
    """The checkpoint loads and answers a blank picture."""
    reply = here.ask(
        'from wamdiff_ros.parameters import Parameters\n'
        'from wamdiff_ros.runtime.session import PlanningSession\n'
        f"parameters = Parameters.from_mapping({{'model_dir': {model_dir!r}}})\n"
        'session = PlanningSession.load(parameters)\n'
        "reply['name'], reply['backend'] = session.model_name, session.backend",
        timeout_s=600.0,
    )
    if reply.error:
        remedy = (
            'the message names file and remedy; the layout is in docs/interfaces.md'
            if model_dir
            else 'restore models/nano (git checkout models/nano), or install again'
        )
        return fail('checkpoint', reply.error, remedy)
    return ok('checkpoint', f'{reply.values["name"]} answers on {reply.values["backend"]}')


def renderer(here: Surroundings) -> Finding:
    """The driving world can be drawn; only demo, drive and data need it."""
    if not here.has_module('panda3d'):
        return warn(
            'renderer', 'panda3d is not installed: no demo, no drive, no data',
            'pip install -r requirements/simulation.txt; a vehicle does not need it',
        )  # fmt: skip
    reply = here.ask(
        'from wamdiff_ros.simulation.screen import open_screen\n'
        "screen = open_screen('auto')\n"
        "reply['backend'], reply['driver'] = screen.backend, screen.driver"
    )
    remedy = "apt install libegl1 libgl1-mesa-dri, or a GPU's driver"
    if reply.error:
        return warn('renderer', reply.error, remedy)
    words = f'{reply.values["backend"]}: {reply.values["driver"]}'
    if reply.values['backend'] == 'software':
        return warn('renderer', f'{words}, which is slow', remedy)
    return ok('renderer', words)


CHECKS = (python, packages, started_python, disk)
