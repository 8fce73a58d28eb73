"""`pip install .`: the same CMake build as colcon's, packed as a wheel for this machine.

ROS 2 must be there first: a sourced installation, or `pip install -r requirements/ros.txt` in the
same virtual environment. colcon takes package.xml and CMakeLists.txt and ignores this file.
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from setuptools import Distribution, find_packages, setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
PYTHON_DIR = 'python'  # where CMake stages the generated half of the Python package


def build_environment() -> dict[str, str]:
    """Return the environment for CMake, in which the generators' Python finds the ROS packages."""
    environment = dict(os.environ)
    environment['PATH'] = f'{sys.prefix}/bin:{environment["PATH"]}'
    sourced = environment.get('AMENT_PREFIX_PATH', '').split(':')
    prefixes = [prefix for prefix in sourced if Path(prefix, 'share/rosidl_cmake').is_dir()]
    # pip hides everything but setuptools by way of PYTHONPATH.
    environment.pop('PYTHONPATH', None)
    if not prefixes:
        if not Path(sys.prefix, 'share/rosidl_cmake').is_dir():
            sys.exit(
                'wamdiff_ros: no ROS 2 found; source an installation (. /opt/ros/<distro>/'
                f'setup.bash) or: {sys.executable} -m pip install -r requirements/ros.txt'
            )
        environment['AMENT_PREFIX_PATH'] = environment['CMAKE_PREFIX_PATH'] = sys.prefix
        fix = [sys.executable, str(ROOT / 'scripts' / 'fix_cmake_exports.py')]
        subprocess.run(fix, check=True, env=environment)
        return environment
    version = f'python{sysconfig.get_python_version()}'
    modules = [
        Path(prefix, folder)
        for prefix in sourced
        for folder in (f'lib/{version}/site-packages', f'local/lib/{version}/dist-packages')
    ]
    environment['PYTHONPATH'] = ':'.join(str(path) for path in modules if path.is_dir())
    return environment


class Build(build_py):
    """Adds the generated messages to the modules, and all else of the prefix as data files."""

    def run(self) -> None:
        """Build with CMake into a temporary prefix and sort what it installed."""
        super().run()
        self._temporary = tempfile.TemporaryDirectory(prefix='wamdiff_ros-')
        build, prefix = (Path(self._temporary.name, name) for name in ('build', 'prefix'))
        environment = build_environment()
        for arguments in (
            [
                *('-S', ROOT, '-B', build, '-Wno-dev'),
                f'-DCMAKE_INSTALL_PREFIX={prefix}',
                f'-DPython3_EXECUTABLE={sys.executable}',
                f'-DPYTHON_INSTALL_DIR={PYTHON_DIR}',
                *('-DCMAKE_BUILD_TYPE=Release', '-DBUILD_TESTING=OFF'),
                '-DWAMDIFF_ROS_INSTALL_PYTHON=OFF',
            ],
            ['--build', build, '--parallel'],
            ['--install', build],
        ):
            subprocess.run(['cmake', *map(str, arguments)], check=True, env=environment)

        shutil.rmtree(prefix / 'bin')  # pip makes the command from entry_points
        generated = prefix / PYTHON_DIR
        shutil.copytree(
            generated / 'wamdiff_ros',
            Path(self.build_lib, 'wamdiff_ros'),
            ignore=lambda folder, names: (
                ['__init__.py'] if folder.endswith('/wamdiff_ros') else []
            ),
            dirs_exist_ok=True,
        )
        shutil.rmtree(generated)
        self.distribution.data_files = [
            (str(folder.relative_to(prefix)), files)
            for folder in [prefix, *prefix.rglob('*')]
            if (files := [str(path) for path in folder.glob('*') if path.is_file()])
        ]


class MachineDistribution(Distribution):
    """A distribution with compiled parts, whose wheel is for this machine only."""

    def has_ext_modules(self) -> bool:
        """Say so."""
        return True


def pins(name: str) -> list[str]:
    """Return the lines of a requirements file."""
    lines = (ROOT / 'requirements' / f'{name}.txt').read_text().splitlines()
    return [line for line in lines if line and not line.startswith('#')]


setup(
    name='wamdiff_ros',
    version=re.search(r"__version__ = '(.+)'", (ROOT / 'wamdiff_ros/__init__.py').read_text())[1],
    description='On-vehicle runtime for driving vision-language-action models, as a ROS 2 package',
    license='Apache-2.0',
    python_requires='>=3.10',
    packages=find_packages(include=['wamdiff_ros', 'wamdiff_ros.*']),
    entry_points={'console_scripts': ['wamdiff = wamdiff_ros.cli:main']},
    # Names and least versions only, so that the torch of a vehicle's computer can stay.
    install_requires=[
        'backports.zstd',
        'numpy',
        'opencv-python-headless',
        'pillow',
        'pyyaml',
        'rosbags',
        'safetensors>=0.4',
        'scipy',
        'tokenizers>=0.20',
        'torch>=2.5',
        'tqdm',
    ],
    extras_require={
        'bench': pins('simulation') + pins('bench'),
        'export': pins('export'),
        'fleet': pins('fleet'),
        'gpu': pins('export') + pins('gpu'),
        'quantisation': pins('quantisation'),
        'simulation': pins('simulation'),
        'test': [
            pin
            for group in ('simulation', 'train', 'bench', 'quantisation', 'export', 'test')
            for pin in pins(group)
        ],
        'train': pins('train'),
    },
    cmdclass={'build_py': Build},
    distclass=MachineDistribution,
)
