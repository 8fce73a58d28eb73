"""Drive the simulated world closed loop: ros2 launch wamdiff_ros drive.launch.py routes:=10

Simulator node and planner node on the same topics, and RViz on request. When the last route is
driven the launch ends; the score lies in `out`.
"""

from launch import LaunchContext, LaunchDescription
from launch.actions import (
    DeclareLaunchArgument,
    IncludeLaunchDescription,
    OpaqueFunction,
    Shutdown,
)
from launch.launch_description_sources import PythonLaunchDescriptionSource
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node
from launch_ros.parameter_descriptions import ParameterValue
from launch_ros.substitutions import FindPackageShare

# Name, type, default, description; each is a parameter of the simulator node.
SIMULATOR = (
    ('seed', int, '0', 'Seed of the first route; 0 to 999 are never trained on.'),
    ('routes', int, '10', 'How many routes.'),
    ('rate', float, '1.0', 'Times as fast as real time.'),
    ('out', str, 'drive_output', 'Folder of the score, drive.json.'),
    ('to_the_end', bool, 'false', 'Drive on along routes that are lost.'),
    ('compressed', bool, 'false', 'Send pictures as JPEG.'),
)
# Handed on to planner.launch.py.
PLANNER = ('params_file', 'namespace', 'model_dir', 'log_level', 'rviz')


def generate_launch_description() -> LaunchDescription:
    """Return the arguments and both nodes, on the simulator's clock."""
    share = FindPackageShare('wamdiff_ros')
    return LaunchDescription(
        [
            *(
                DeclareLaunchArgument(name, default_value=default, description=description)
                for name, _, default, description in SIMULATOR
            ),
            DeclareLaunchArgument(
                'params_file',
                default_value=[share, '/config/planner.param.yaml'],
                description="YAML file of the planner's parameters.",
            ),
            DeclareLaunchArgument(
                'namespace', default_value='', description='Namespace of both nodes.'
            ),
            DeclareLaunchArgument(
                'model_dir',
                default_value='',
                description='Checkpoint folder; empty leaves it to params_file.',
            ),
            DeclareLaunchArgument(
                'log_level', default_value='info', description='Lowest level that is logged.'
            ),
            DeclareLaunchArgument('rviz', default_value='false', description='Start RViz.'),
            IncludeLaunchDescription(
                PythonLaunchDescriptionSource([share, '/launch/planner.launch.py']),
                launch_arguments=[
                    *((name, LaunchConfiguration(name)) for name in PLANNER),
                    ('use_sim_time', 'true'),
                ],
            ),
            Node(
                package='wamdiff_ros',
                executable='simulator_node',
                name='simulator',
                namespace=LaunchConfiguration('namespace'),
                parameters=[
                    {
                        name: ParameterValue(LaunchConfiguration(name), value_type=kind)
                        for name, kind, _, _ in SIMULATOR
                    },
                    {'publish_clock': True},
                ],
                ros_arguments=['--log-level', LaunchConfiguration('log_level')],
                output='screen',
                emulate_tty=True,
                on_exit=[OpaqueFunction(function=_end)],
            ),
        ]
    )


def _end(context: LaunchContext) -> list:
    """End the launch with its last route; one that is ending already must not be ended twice."""
    return [] if context.is_shutdown else [Shutdown(reason='the last route is driven')]
