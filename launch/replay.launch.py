"""Play a bag into the live planner: ros2 launch wamdiff_ros replay.launch.py bag:=DIR

Player and planner on the recording's clock, RViz and a recorder on request. When the bag has been
played the launch ends. `wamdiff replay` is the offline form, which repeats and judges.
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
from launch_ros.substitutions import FindPackageShare

# Name, default, description.
ARGUMENTS = (
    ('bag', None, 'Recording, rosbag2 in any form.'),
    ('rate', '1.0', 'Times as fast as recorded.'),
    ('loop', 'false', 'Play again and again.'),
    ('image_topic', '', "Topic of the bag for the planner's camera/front/image."),
    ('odometry_topic', '', "Topic of the bag for the planner's odometry."),
    ('record', '', 'New folder for an mcap bag of what the planner publishes; empty: none.'),
    ('namespace', '', 'Namespace of all nodes and topics.'),
    ('model_dir', '', 'Checkpoint folder; empty leaves it to params_file.'),
    ('log_level', 'info', 'Lowest level that is logged.'),
    ('rviz', 'false', 'Start RViz.'),
)
# Handed on to planner.launch.py.
PLANNER = ('params_file', 'namespace', 'model_dir', 'log_level', 'rviz')
WAIT_S = 300  # for the planner to have loaded its checkpoint


def generate_launch_description() -> LaunchDescription:
    """Return the arguments, the planner, the player and the recorder."""
    share = FindPackageShare('wamdiff_ros')
    return LaunchDescription(
        [
            *(
                DeclareLaunchArgument(name, default_value=default, description=description)
                for name, default, description in ARGUMENTS
            ),
            DeclareLaunchArgument(
                'params_file',
                default_value=[share, '/config/planner.param.yaml'],
                description="YAML file of the planner's parameters.",
            ),
            IncludeLaunchDescription(
                PythonLaunchDescriptionSource([share, '/launch/planner.launch.py']),
                launch_arguments=[
                    *((name, LaunchConfiguration(name)) for name in PLANNER),
                    ('use_sim_time', 'true'),
                ],
            ),
            OpaqueFunction(function=_player_and_recorder),
        ]
    )


def _player_and_recorder(context: LaunchContext) -> list:
    def value(name: str) -> str:
        return LaunchConfiguration(name).perform(context)

    namespace = value('namespace').strip('/')
    prefix = f'/{namespace}' if namespace else ''
    pairs = {value('image_topic'): 'camera/front/image', value('odometry_topic'): 'odometry'}
    player = Node(
        package='wamdiff_ros',
        executable='player',
        arguments=[
            *('--bag', value('bag'), '--clock', '--rate', value('rate')),
            *('--wait-for', str(WAIT_S), '--namespace', prefix),
            *(['--loop'] if value('loop').lower() == 'true' else []),
        ],
        remappings=[
            (f'{prefix}/{there.lstrip("/")}', f'{prefix}/{here}')
            for there, here in pairs.items()
            if there
        ],
        output='screen',
        emulate_tty=True,
        on_exit=[OpaqueFunction(function=_end)],
    )
    if not value('record'):
        return [player]
    recorder = Node(
        package='wamdiff_ros',
        executable='recorder',
        arguments=['--out', value('record'), '--planner', f'{prefix}/planner'],
        output='screen',
    )
    return [recorder, player]


def _end(context: LaunchContext) -> list:
    """End the launch with the bag; one that is ending already must not be ended twice."""
    return [] if context.is_shutdown else [Shutdown(reason='the bag has been played')]
