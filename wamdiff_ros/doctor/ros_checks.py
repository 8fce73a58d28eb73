"""ROS: distribution, Python bindings, messages, middleware, and what large images need."""

import xml.etree.ElementTree as ElementTree

from ..share import share_path
from .finding import Finding, fail, ok, warn
from .surroundings import Surroundings

# The Python that a distribution's packages are compiled for.
DISTRIBUTIONS = {'humble': (3, 10), 'jazzy': (3, 12), 'kilted': (3, 12)}
RMEM_MAX = '/proc/sys/net/core/rmem_max'
FAST_DDS = 'rmw_fastrtps_cpp'
HD_FRAME_BYTES = 1280 * 720 * 3
SHARED_MEMORY_BYTES = 256 << 20
SEGMENT_BYTES = 4 * HD_FRAME_BYTES  # a frame or two in use, one being written, one to spare
SOCKET_BYTES = 4 << 20  # as config/fastdds.xml asks for


def distribution(here: Surroundings) -> Finding:
    """A distribution is sourced, and its packages are for this Python."""
    name = here.environ.get('ROS_DISTRO', '')
    installed = here.folders('/opt/ros')
    if not name:
        if installed:
            return fail(
                'ros', f'/opt/ros/{installed[-1]} is installed, but not sourced',
                f'. /opt/ros/{installed[-1]}/setup.bash',
            )  # fmt: skip
        if here.version('ros-jazzy-rclpy') or here.version('ros-rclpy'):
            return ok('ros', 'from wheels in this environment, without launch and RViz')
        return fail(
            'ros', 'there is no ROS 2',
            'install Humble, Jazzy or Kilted, or pip install -r requirements/ros.txt; evaluate, '
            'drive, train and bench run without',
        )  # fmt: skip
    python = DISTRIBUTIONS.get(name)
    mine = '.'.join(map(str, here.python))
    if python is None:
        return warn(
            'ros', f'{name} is sourced, which this package was never built for',
            f'take one of {", ".join(DISTRIBUTIONS)}, or go on and tell how it went',
        )  # fmt: skip
    if installed and python != here.python:
        wanted = '.'.join(map(str, python))
        return fail(
            'ros', f'the packages of {name} are for Python {wanted}, this is {mine}',
            f'python{wanted} -m venv --system-site-packages .venv, and install into that',
        )  # fmt: skip
    return ok('ros', f'{name}, Python {mine}')


def rclpy(here: Surroundings) -> Finding:
    """The client library loads and makes a node."""
    reply = here.ask(
        'import rclpy\n'
        'rclpy.init()\n'
        "node = rclpy.create_node('wamdiff_doctor')\n"
        "reply['rmw'] = rclpy.get_rmw_implementation_identifier()\n"
        'node.destroy_node()\n'
        'rclpy.try_shutdown()'
    )
    if not reply.error:
        return ok('rclpy', f'makes a node with {reply.values["rmw"]}')
    if '_rclpy_pybind11' in reply.error or '_rclpy_pybind11' in reply.stderr:
        return fail(
            'rclpy', f'is compiled for another Python than {here.executable}: {reply.error}',
            "make the virtual environment with the distribution's own Python (3.10 for Humble, "
            '3.12 for Jazzy and Kilted) and --system-site-packages',
        )  # fmt: skip
    if "No module named 'rclpy'" in reply.error:
        return fail(
            'rclpy', f'{here.executable} does not find it',
            '. /opt/ros/<distro>/setup.bash, and a virtual environment with '
            '--system-site-packages; or pip install -r requirements/ros.txt',
        )  # fmt: skip
    return fail('rclpy', reply.error, 'docs/dependencies.md, "Beside a ROS installation"')


def messages(here: Surroundings) -> Finding:
    """This package's own messages are built, and arrays of ROS messages suit this NumPy."""
    reply = here.ask(
        'import numpy\n'
        'from sensor_msgs.msg import Image\n'
        'from nav_msgs.msg import Odometry\n'
        'Odometry().pose.covariance = numpy.zeros(36)\n'
        "reply['numpy'] = numpy.__version__\n"
        'from wamdiff_ros.msg import PlannedTrajectory\n'
        'PlannedTrajectory()'
    )
    if not reply.error:
        return ok('messages', f'wamdiff_ros.msg is built; NumPy {reply.values["numpy"]} suits ROS')
    if 'wamdiff_ros.msg' in reply.error or 'PlannedTrajectory' in reply.error:
        return fail(
            'messages', f'those of this package are not built: {reply.error}',
            'colcon build && . install/setup.bash, or scripts/setup',
        )  # fmt: skip
    if 'numpy' in reply.stderr.lower() or '_ARRAY_API' in reply.stderr:
        return fail(
            'messages', f'ROS is compiled for another NumPy than the one here: {reply.error}',
            "pip install 'numpy<2', the version of docs/dependencies.md for this distribution",
        )  # fmt: skip
    return fail('messages', reply.error, 'source ROS, or pip install -r requirements/ros.txt')


def cv_bridge(here: Surroundings) -> Finding:
    """A cv_bridge that is there loads; this package does not need it, other nodes may."""
    if not here.has_module('cv_bridge'):
        return ok('cv_bridge', 'not installed, and not needed')
    reply = here.ask('import cv_bridge')
    if reply.error or '_ARRAY_API' in reply.stderr:
        why = 'NumPy 2 with a build for NumPy 1' if '_ARRAY_API' in reply.stderr else reply.error
        return warn(
            'cv_bridge', f'does not load ({why}); this package does not use it',
            "other nodes in this environment need it? pip install 'numpy<2'",
        )  # fmt: skip
    return ok('cv_bridge', 'loads; not needed')


def middleware(here: Surroundings) -> Finding:
    """The middleware is the one that the profile is for."""
    chosen = here.environ.get('RMW_IMPLEMENTATION', '')
    if chosen in ('', FAST_DDS):
        return ok('rmw', f'{chosen or "the default of the distribution"}')
    return warn(
        'rmw', f'{chosen}: this package was tried with {FAST_DDS} only',
        f'look for lost images in /diagnostics, or export RMW_IMPLEMENTATION={FAST_DDS}',
    )  # fmt: skip


def dds_profile(here: Surroundings) -> Finding:
    """Fast DDS has shared memory for whole camera images."""
    if here.environ.get('RMW_IMPLEMENTATION', FAST_DDS) != FAST_DDS:
        return ok('dds profile', 'is for Fast DDS, which is not in use')
    new = here.environ.get('ROS_DISTRO') == 'kilted'
    name = 'FASTDDS_DEFAULT_PROFILES_FILE' if new else 'FASTRTPS_DEFAULT_PROFILES_FILE'
    remedy = (
        f'export {name}={share_path("config", "fastdds.xml")} for the planner (the launch files '
        'do) and for camera drivers and bag players'
    )
    path = here.environ.get(name, '')
    if not path:
        return warn('dds profile', 'none: images of HD size and larger will get lost', remedy)
    content = here.read(path)
    if content is None:
        return warn('dds profile', f'{name} names {path}, which cannot be read', remedy)
    try:
        root = ElementTree.fromstring(content)
    except ElementTree.ParseError as error:
        return warn('dds profile', f'{path} is not XML: {error}', remedy)
    sizes = [e.text for e in root.iter() if e.tag.rpartition('}')[2] == 'segment_size']
    segment = max((int(text) for text in sizes if text and text.strip().isdigit()), default=0)
    if segment < SEGMENT_BYTES:
        return warn(
            'dds profile',
            f'{path}: shared memory of {segment} bytes is less than four HD frames', remedy,
        )  # fmt: skip
    return ok('dds profile', f'{path}, {segment >> 20} MiB of shared memory')


def socket_buffers(here: Surroundings) -> Finding:
    """The kernel allows the socket buffers that the profile asks for."""
    content = here.read(RMEM_MAX)
    if content is None or not content.strip().isdigit():
        return ok('rmem_max', f'{RMEM_MAX} is not there: another system, or a container')
    size = int(content)
    if size < SOCKET_BYTES:
        return warn(
            'rmem_max', f'{size} bytes: images that come over the network will lose fragments',
            f'sudo cp {share_path("config", "60-wamdiff.conf")} /etc/sysctl.d/ && '
            'sudo sysctl --system',
        )  # fmt: skip
    return ok('rmem_max', f'{size} bytes')


def shared_memory(here: Surroundings) -> Finding:
    """There is room for the participants' segments."""
    free = here.free_bytes('/dev/shm')
    if free is None:
        return warn(
            'shared memory', '/dev/shm is not there: images travel over UDP',
            'mount it; in a container, --shm-size 1g or --ipc host',
        )  # fmt: skip
    if free < SHARED_MEMORY_BYTES:
        return warn(
            'shared memory', f'/dev/shm has {free >> 20} MiB left, a participant takes 32',
            'fastdds shm clean removes what killed processes left; in a container, --shm-size 1g',
        )  # fmt: skip
    return ok('shared memory', f'{free >> 20} MiB free in /dev/shm')


CHECKS = (
    distribution, rclpy, messages, cv_bridge, middleware, dds_profile, socket_buffers,
    shared_memory,
)  # fmt: skip
