"""What the package says of itself: manifest, requirements, messages, installed files."""

import ast
import json
import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
import yaml

import wamdiff_ros
from wamdiff_ros.camera_parameters import camera_defaults
from wamdiff_ros.parameters import Parameters, ros_fields
from wamdiff_ros.planning.figure import COMPACT_CAR, drawn_plan, plan_figure
from wamdiff_ros.planning.publication import Publication
from wamdiff_ros.types import EgoState, Plan, PlanStatus, Trajectory

ROOT = Path(__file__).parents[1]
MANIFEST = ElementTree.parse(ROOT / 'package.xml').getroot()
CMAKE = (ROOT / 'CMakeLists.txt').read_text()
REQUIREMENTS = sorted(path.stem for path in (ROOT / 'requirements').glob('*.txt'))
MESSAGES = sorted((ROOT / 'msg').glob('*.msg'))
# Import name -> name in the requirements, where the two differ.
DISTRIBUTIONS = {
    'backports': 'backports.zstd',
    'cv2': 'opencv-python-headless',
    'PIL': 'pillow',
    'yaml': 'pyyaml',
}
# Import name -> rosdep key of a package that a ROS installation brings.
ROSDEP_KEYS = {
    'PIL': 'python3-pil',
    'cv2': 'python3-opencv',
    'numpy': 'python3-numpy',
    'scipy': 'python3-scipy',
    'tqdm': 'python3-tqdm',
    'yaml': 'python3-yaml',
}
# Used where it is installed; the code says so and does without it otherwise.
OPTIONAL = {'autoware_planning_msgs', 'flashinfer', 'tensorrt', 'torchao'}


def manifest_dependencies() -> set[str]:
    return {element.text for element in MANIFEST if element.tag.endswith('depend')}


def pins(*names: str) -> dict[str, list[str]]:
    """Return distribution -> requirement lines of the requirements files."""
    found = {}
    for name in names:
        for line in (ROOT / 'requirements' / f'{name}.txt').read_text().splitlines():
            if line and not line.startswith('#'):
                distribution = re.match(r'[\w.-]+', line)[0].lower()
                found.setdefault(distribution, []).append(line)
    return found


def imports_of(folder: Path) -> dict[str, Path]:
    """Return the top-level modules imported under `folder`, each with a file that does."""
    found = {}
    for path in folder.rglob('*.py'):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module]
            else:
                continue
            found.update({name.partition('.')[0]: path.relative_to(ROOT) for name in names})
    own = {'wamdiff_ros', *sys.stdlib_module_names}
    return {name: path for name, path in found.items() if name not in own}


def test_the_version_is_the_same_everywhere():
    changelog = (ROOT / 'CHANGELOG.rst').read_text()
    newest = re.search(r'^(\S+) \(\d{4}-\d\d-\d\d\)$|^(Forthcoming)$', changelog, re.MULTILINE)
    assert MANIFEST.findtext('version') == wamdiff_ros.__version__
    assert newest[1] in (None, wamdiff_ros.__version__)
    assert '__init__.py' in (ROOT / 'setup.py').read_text(), 'setup.py reads it from the package'


def test_the_manifest_is_a_valid_format_3_manifest():
    catkin_pkg = pytest.importorskip('catkin_pkg.package', reason='catkin_pkg is not installed')
    package = catkin_pkg.parse_package(str(ROOT / 'package.xml'))  # raises on invalid ones
    warnings = []
    package.validate(warnings)
    assert not warnings
    assert package.package_format == 3
    assert package.licenses == ['Apache-2.0']
    assert 'Apache License' in (ROOT / 'LICENSE').read_text()
    assert [group.name for group in package.member_of_groups] == ['rosidl_interface_packages']


def test_every_import_is_declared():
    packages = pins('runtime', 'ros', 'simulation', 'train', 'bench', 'export', 'fleet')
    manifest = manifest_dependencies()
    for name, path in imports_of(ROOT / 'wamdiff_ros').items():
        if name in OPTIONAL:
            continue
        if name.endswith(('_msgs', '_srvs', '_interfaces')) or name == 'rclpy':
            assert name in manifest, f'{path} imports {name}, package.xml does not name it'
            continue
        distribution = DISTRIBUTIONS.get(name, name)
        assert distribution in packages, f'{path} imports {name}, no requirement brings it'
        if name in ROSDEP_KEYS:
            assert ROSDEP_KEYS[name] in manifest, f'{path} imports {name}'
    for name, path in imports_of(ROOT / 'launch').items():
        assert name in manifest, f'{path} imports {name}, package.xml does not name it'


def test_only_the_ros_room_imports_ros():
    for path in (ROOT / 'wamdiff_ros').iterdir():
        if path.is_dir() and path.name not in ('ros', '__pycache__'):
            names = imports_of(path)
            assert not [n for n in names if n == 'rclpy' or n.endswith('_msgs')], path.name


def test_every_requirement_is_pinned_and_documented():
    document = (ROOT / 'docs' / 'dependencies.md').read_text()
    for distribution, lines in pins(*REQUIREMENTS).items():
        for line in lines:
            version = re.fullmatch(r'[\w.-]+(?:\[\w+\])?==([\w.]+)(?:; .+)?', line)
            assert version, f'{line!r} is not pinned to one version'
            assert f'`{distribution}`' in document, f'docs/dependencies.md lacks {distribution}'
            assert version[1] in document, (
                f'docs/dependencies.md lacks {distribution} {version[1]}'
            )


def test_every_requirement_is_in_one_file():
    where = {}
    for name in REQUIREMENTS:
        for distribution in pins(name):
            assert where.setdefault(distribution, name) == name, distribution


def test_every_requirements_file_that_is_named_exists():
    folders = ('wamdiff_ros', 'scripts', 'docs', 'test', 'launch')
    files = [path for folder in folders for path in (ROOT / folder).rglob('*') if path.is_file()]
    files += [ROOT / name for name in ('README.md', 'CONTRIBUTING.md', 'setup.py')]
    for path in files:
        if path.suffix in ('.py', '.md', '') and '__pycache__' not in path.parts:
            for name in re.findall(r'requirements/(\w+)\.txt', path.read_text()):
                assert name in REQUIREMENTS, f'{path.relative_to(ROOT)} names {name}.txt'


def test_pip_install_asks_for_every_runtime_requirement():
    setup = (ROOT / 'setup.py').read_text()
    wanted = [name for name in pins('runtime', 'ros') if not name.startswith('ros-')]
    build_only = {'cmake', 'ninja', 'catkin-pkg', 'empy', 'lark-parser', 'setuptools'}
    for name in set(wanted) - build_only:
        assert re.search(rf"'{name}[>']", setup), f'install_requires lacks {name}'


def test_every_manifest_dependency_is_documented():
    document = (ROOT / 'docs' / 'dependencies.md').read_text()
    for name in manifest_dependencies():
        assert f'`{name}`' in document, f'docs/dependencies.md lacks {name}'


@pytest.mark.parametrize('path', MESSAGES, ids=lambda path: path.stem)
def test_every_message_field_has_a_comment(path):
    lines = path.read_text().splitlines()
    assert lines[0].startswith('# '), 'a message starts with what it is'
    commented = False  # a comment is for the lines below it, up to a blank one
    for line in lines[1:]:
        commented = line.startswith('#') or (commented and line != '')
        constant = '=' in line
        assert commented or constant or line == '', f'{line!r}: no comment above'


def test_every_message_is_built():
    generated = re.search(r'rosidl_generate_interfaces\((.*?)\)', CMAKE, re.DOTALL)[1]
    assert sorted(re.findall(r'msg/\w+\.msg', generated)) == [f'msg/{p.name}' for p in MESSAGES]


def test_every_data_folder_is_installed():
    installed = re.search(r'install\(DIRECTORY ([\w ]+) DESTINATION share/', CMAKE)[1].split()
    used = {'config', 'launch'}
    for path in (ROOT / 'wamdiff_ros').rglob('*.py'):
        used.update(re.findall(r"share_path\('(\w+)'", path.read_text()))
    assert used - {'msg'} <= set(installed)  # rosidl installs the messages
    for folder in installed:
        assert any((ROOT / folder).rglob('*')), f'{folder}/ is empty'


def test_every_installed_command_has_a_main():
    commands = re.findall(r'^install_command\((\w+) ([\w.]+) \S+\)', CMAKE, re.MULTILINE)
    names = {'planner_node', 'simulator_node', 'player', 'recorder', 'wamdiff'}
    assert {name for name, _ in commands} == names
    for name, module in commands:
        tree = ast.parse((ROOT / f'{module.replace(".", "/")}.py').read_text())
        functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
        assert 'main' in functions, f'{name}: {module} has no main()'


def test_the_parameter_file_holds_exactly_the_defaults():
    content = yaml.safe_load((ROOT / 'config' / 'planner.param.yaml').read_text())
    values = dict(_flat(content['/**']['ros__parameters']))
    defaults = {
        spec.name: list(spec.default) if isinstance(spec.default, tuple) else spec.default
        for spec in ros_fields()
    }
    assert values == {**defaults, **camera_defaults('front')}
    for name, value in values.items():  # 1 == 1.0 in Python, not in ROS
        assert type(value) is type({**defaults, **camera_defaults('front')}[name]), name
    assert Parameters.from_mapping(values) == Parameters.from_mapping({})


def _flat(tree: dict, prefix: str = ''):
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _flat(value, f'{prefix}{key}.')
        else:
            yield prefix + key, value


def test_rviz_shows_topics_that_the_node_has():
    config = yaml.safe_load((ROOT / 'config' / 'planner.rviz').read_text())
    displays = config['Visualization Manager']['Displays']
    topics = {display['Topic']['Value'] for display in displays if 'Topic' in display}
    camera = '/' + camera_defaults('front')['camera.front.topic']
    assert topics <= planner_topics() | {camera}
    assert camera in topics
    launch = (ROOT / 'launch' / 'planner.launch.py').read_text()
    for topic in topics:
        assert f"'{topic[1:]}'" in launch, f'{topic} is not remapped into the namespace'


def test_rviz_shows_the_camera_picture_with_the_plan_from_the_start():
    config = yaml.safe_load((ROOT / 'config' / 'planner.rviz').read_text())
    displays = config['Visualization Manager']['Displays']
    overlays = [d for d in displays if d.get('Topic', {}).get('Value') == '/planner/overlay']
    assert [display['Enabled'] for display in overlays] == [True]


def test_rviz_shows_every_layer_of_the_markers():
    config = yaml.safe_load((ROOT / 'config' / 'planner.rviz').read_text())
    displays = config['Visualization Manager']['Displays']
    [markers] = [d for d in displays if d['Class'].endswith('/MarkerArray')]
    origin = Trajectory(*(np.zeros(shape) for shape in ((1,), (1, 2), *[(1,)] * 5)))
    ego = EgoState(0, 'odom', 'base_link', (0, 0, 0), (0, 0, 0, 1), (0, 0), 0, (0, 0))
    plan = Plan(0, ego, np.zeros((8, 2)), origin)
    drawn = drawn_plan(Publication(PlanStatus.NOMINAL, plan, 0, 0, ''), ego)
    layers = {shape.layer for shape in plan_figure(drawn, COMPACT_CAR)}
    assert {layer for layer, shown in markers['Namespaces'].items() if shown} == layers


def test_foxglove_shows_topics_that_the_node_has_in_panels_that_are_there():
    layout = json.loads((ROOT / 'config' / 'foxglove_layout.json').read_text())
    panels = layout['configById']
    text = json.dumps(panels)
    front = '/' + camera_defaults('front')['camera.front.topic'].rpartition('/')[0]
    shared = {'/diagnostics', f'{front}/image', f'{front}/camera_info'}
    named = set(re.findall(r'"(/[a-z_]+(?:/[a-z_]+)*)', text))
    assert named <= planner_topics() | shared
    assert {'/planner/markers', '/planner/overlay', f'{front}/image'} <= named
    placed = set(re.findall(r'"(\w+!\w+)"', json.dumps([layout['layout'], panels])))
    assert placed == set(panels)


def planner_topics() -> set[str]:
    """Return the names of what the node publishes under its own name."""
    ros = ROOT / 'wamdiff_ros' / 'ros'
    texts = [
        (ros / f'{name}.py').read_text() for name in ('outputs', 'camera_overlay', 'autoware')
    ]
    return {f'/planner/{name}' for text in texts for name in re.findall(r"'~/(\w+)'", text)}


def test_the_dds_profile_holds_an_hd_frame():
    root = ElementTree.parse(ROOT / 'config' / 'fastdds.xml').getroot()
    text = {element.tag.rpartition('}')[2]: element.text for element in root.iter()}
    assert int(text['segment_size']) > 4 * 1920 * 1080 * 3
    assert text['useBuiltinTransports'] == 'false'


def test_the_kernel_settings_allow_the_buffers_of_the_dds_profile():
    lines = (ROOT / 'config' / '60-wamdiff.conf').read_text().splitlines()
    settings = dict(line.split(' = ') for line in lines if line and not line.startswith('#'))
    root = ElementTree.parse(ROOT / 'config' / 'fastdds.xml').getroot()
    text = {element.tag.rpartition('}')[2]: element.text for element in root.iter()}
    assert int(settings['net.core.rmem_max']) >= int(text['receiveBufferSize'])
    assert int(settings['net.core.wmem_max']) >= int(text['sendBufferSize'])
