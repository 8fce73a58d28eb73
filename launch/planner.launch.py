"""Start the planner node, and RViz on request: ros2 launch wamdiff_ros planner.launch.py -s

With RViz the node also paints its plan into the camera picture, `~/overlay`, while RViz shows it.

The node configures and activates itself where `autostart` is true, so that it also comes back
after a respawn; with `autostart:=false` a lifecycle manager takes it from there. When the node
ends, the launch ends with it unless something else is still running: shutting down a larger
launch that includes this file is left to that launch.
"""

import os
from pathlib import Path

from launch import LaunchContext, LaunchDescription
from launch.actions import DeclareLaunchArgument, OpaqueFunction, SetEnvironmentVariable
from launch.conditions import IfCondition
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import LifecycleNode, Node
from launch_ros.parameter_descriptions import ParameterValue
from launch_ros.substitutions import FindPackageShare

from wamdiff_ros.parameter_file import read_parameters
from wamdiff_ros.parameter_values import ParameterError

# The topics of config/planner.rviz, which an RViz in another namespace has to find there.
RVIZ_TOPICS = ('planner/path', 'planner/markers', 'planner/overlay', 'camera/front/image')
RVIZ_OVERLAY_RATE_HZ = 2.0  # where params_file has none, or RViz would show an empty picture
# Fast DDS 2 (Humble, Jazzy) and Fast DDS 3 (Kilted).
DDS_PROFILE_VARIABLES = ('FASTRTPS_DEFAULT_PROFILES_FILE', 'FASTDDS_DEFAULT_PROFILES_FILE')


def generate_launch_description() -> LaunchDescription:
    """Return the arguments, the DDS profile, the node and RViz."""
    share = FindPackageShare('wamdiff_ros')
    return LaunchDescription(
        [
            DeclareLaunchArgument(
                'params_file',
                default_value=[share, '/config/planner.param.yaml'],
                description='YAML file of the parameters, the camera list among them.',
            ),
            DeclareLaunchArgument(
                'namespace', default_value='', description='Namespace of the node and its topics.'
            ),
            DeclareLaunchArgument(
                'use_sim_time',
                default_value='false',
                description='Take the time from /clock, for a simulator or a bag player.',
            ),
            DeclareLaunchArgument(
                'autostart',
                default_value='true',
                description='Configure and activate at start-up, without a lifecycle manager.',
            ),
            DeclareLaunchArgument(
                'log_level',
                default_value='info',
                choices=['debug', 'info', 'warn', 'error', 'fatal'],
                description='Lowest level that the node logs.',
            ),
            DeclareLaunchArgument(
                'model_dir',
                default_value='',
                description='Checkpoint folder; empty leaves it to params_file.',
            ),
            DeclareLaunchArgument(
                'rviz',
                default_value='false',
                description='Start RViz, and paint the plan into the camera picture for it.',
            ),
            *_dds_profile([share, '/config/fastdds.xml']),
            OpaqueFunction(function=_planner),
            Node(
                condition=IfCondition(LaunchConfiguration('rviz')),
                package='rviz2',
                executable='rviz2',
                name='rviz2',
                namespace=LaunchConfiguration('namespace'),
                arguments=['-d', [share, '/config/planner.rviz']],
                parameters=[{'use_sim_time': _truth('use_sim_time')}],
                remappings=[(f'/{topic}', topic) for topic in RVIZ_TOPICS],
                output='screen',
            ),
        ]
    )


def _dds_profile(path: list) -> list:
    """Return the actions that set the shipped profile, unless the user's environment names one.

    Every process that sends large images needs it too, so export the variable for the camera
    drivers: docs/deployment.md says how. Other DDS implementations ignore it.
    """
    if any(name in os.environ for name in DDS_PROFILE_VARIABLES):
        return []
    return [SetEnvironmentVariable(name, path) for name in DDS_PROFILE_VARIABLES]


def _planner(context: LaunchContext) -> list:
    """Return the node; an argument that was not given leaves the parameter to params_file."""
    parameters = [
        LaunchConfiguration('params_file'),
        {'use_sim_time': _truth('use_sim_time'), 'autostart': _truth('autostart')},
    ]
    if LaunchConfiguration('model_dir').perform(context):
        parameters.append(
            {'model_dir': ParameterValue(LaunchConfiguration('model_dir'), value_type=str)}
        )
    parameters += _overlay(context)
    return [
        LifecycleNode(
            package='wamdiff_ros',
            executable='planner_node',
            name='planner',
            namespace=LaunchConfiguration('namespace'),
            parameters=parameters,
            ros_arguments=['--log-level', LaunchConfiguration('log_level')],
            output='screen',
            emulate_tty=True,
        )
    ]


def _overlay(context: LaunchContext) -> list[dict]:
    """Return the rate of ~/overlay for RViz; one above 0 in params_file stays."""
    if not IfCondition(LaunchConfiguration('rviz')).evaluate(context):
        return []
    try:
        known = read_parameters(Path(LaunchConfiguration('params_file').perform(context)))
    except ParameterError:
        known = {}  # the node says what is wrong with it
    return [] if known.get('overlay_rate_hz') else [{'overlay_rate_hz': RVIZ_OVERLAY_RATE_HZ}]


def _truth(argument: str) -> ParameterValue:
    return ParameterValue(LaunchConfiguration(argument), value_type=bool)
