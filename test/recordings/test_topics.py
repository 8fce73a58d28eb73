import pytest

from wamdiff_ros.parameters import Parameters
from wamdiff_ros.recordings.bag_files import BagError
from wamdiff_ros.recordings.topics import TopicChoice, choose_topics

RAW, COMPRESSED = 'sensor_msgs/msg/Image', 'sensor_msgs/msg/CompressedImage'
ODOMETRY = 'nav_msgs/msg/Odometry'
ACCELERATION = 'geometry_msgs/msg/AccelWithCovarianceStamped'


def choose(available, parameters=None, **choice):
    counted = {topic: (kind, 10) for topic, kind in available.items()}
    return choose_topics(
        counted, Parameters.from_mapping(parameters or {}), TopicChoice(**choice)
    ).to_json()


def test_topics_of_the_planners_own_names_are_taken_whatever_else_there_is():
    available = {
        '/camera/front/image': COMPRESSED, '/camera/back/image': RAW, '/odometry': ODOMETRY,
        '/gps/odometry': ODOMETRY, '/acceleration': ACCELERATION,
    }  # fmt: skip
    assert choose(available) == {
        'camera.front': '/camera/front/image', 'odometry': '/odometry',
        'acceleration': '/acceleration',
    }  # fmt: skip


def test_the_only_topics_of_their_types_are_found():
    available = {'/usb_cam/image_raw': RAW, '/ekf/odom': ODOMETRY, '/imu': 'sensor_msgs/msg/Imu'}
    assert choose(available) == {'camera.front': '/usb_cam/image_raw', 'odometry': '/ekf/odom'}


def test_the_same_camera_raw_and_compressed_is_one_camera():
    available = {'/cam/image': RAW, '/cam/image/compressed': COMPRESSED, '/odom': ODOMETRY}
    assert choose(available)['camera.front'] == '/cam/image'
    insisting = {'camera.front.transport': 'compressed'}
    assert choose(available, insisting)['camera.front'] == '/cam/image/compressed'


def test_several_cameras_are_listed_with_the_option_to_choose():
    available = {'/left': RAW, '/right': RAW, '/odom': ODOMETRY}
    with pytest.raises(BagError) as error:
        choose(available)
    assert 'choose with --camera TOPIC' in str(error.value)
    assert f'/left ({RAW}, 10 messages), /right ({RAW}, 10 messages)' in str(error.value)
    assert choose(available, camera='/right')['camera.front'] == '/right'
    assert choose(available, camera='left')['camera.front'] == '/left'
    renamed = choose(available, remap=(('/right', 'camera/front/image'),))
    assert renamed['camera.front'] == '/right'


def test_several_odometries_are_listed_with_the_option_to_choose():
    available = {'/camera/front/image': RAW, '/gps': ODOMETRY, '/wheels': ODOMETRY}
    with pytest.raises(BagError, match=r'--odometry TOPIC: the bag has /gps .*, /wheels'):
        choose(available)
    assert choose(available, odometry='/gps')['odometry'] == '/gps'
    assert choose(available, remap=(('wheels', '/odometry'),))['odometry'] == '/wheels'


def test_a_remapped_topic_has_its_own_name_no_longer():
    available = {'/camera/front/image': RAW, '/odometry': ODOMETRY, '/better': ODOMETRY}
    remap = (('/odometry', '/unused'), ('/better', '/odometry'))
    assert choose(available, remap=remap)['odometry'] == '/better'


def test_topics_without_messages_are_no_candidates():
    counted = {'/left': (RAW, 0), '/right': (RAW, 5), '/odom': (ODOMETRY, 5)}
    chosen = choose_topics(counted, Parameters.from_mapping({}), TopicChoice())
    assert chosen.cameras == {'front': '/right'}


@pytest.mark.parametrize(
    ('available', 'options', 'words'),
    [
        ({}, {}, 'the bag is empty'),
        ({'/odom': ODOMETRY}, {}, r'no sensor_msgs/msg/Image or .*for camera front; the bag has'),
        ({'/cam': RAW}, {}, 'no nav_msgs/msg/Odometry for odometry'),
        ({'/cam': RAW, '/odom': ODOMETRY}, {'camera': '/cma'}, '/cma: there is no such topic'),
        ({'/cam': RAW, '/odom': ODOMETRY}, {'camera': '/odom'}, '/odom: carries nav_msgs'),
        ({'/cam': RAW, '/odometry': 'x/msg/X'}, {}, '/odometry: carries x/msg/X, wanted nav_msgs'),
        ({'/c': RAW, '/o': ODOMETRY}, {'remap': (('/x', '/y'),)}, '--remap /x: there is no such'),
        (
            {'/cam': RAW, '/odometry': ODOMETRY, '/acceleration': ODOMETRY}, {},
            '/acceleration: carries nav_msgs/msg/Odometry, wanted geometry_msgs',
        ),
    ],
)  # fmt: skip
def test_what_is_not_there_is_named(available, options, words):
    with pytest.raises(BagError, match=words):
        choose(available, **options)


def test_several_cameras_of_the_planner_are_not_guessed():
    parameters = {'cameras': ['front', 'left']}
    available = {'/a': RAW, '/b': RAW, '/odometry': ODOMETRY}
    with pytest.raises(BagError, match='--remap TOPIC:=camera/front/image'):
        choose(available, parameters)
    with pytest.raises(BagError, match='there are 2 cameras'):
        choose(available, parameters, camera='/a')
    remap = (('/a', 'camera/front/image'), ('/b', 'camera/left/image'))
    assert choose(available, parameters, remap=remap) == {
        'camera.front': '/a', 'camera.left': '/b', 'odometry': '/odometry',
    }  # fmt: skip
