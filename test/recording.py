"""Recordings made by hand, of a planner and of sensors, for tests to read and to play."""

import tempfile
from functools import cache
from pathlib import Path

import cv2
import numpy as np

from wamdiff_ros.pinhole import Pinhole
from wamdiff_ros.recordings.bag import BagWriter, typestore

START_NS = 1_000_000_000_000
NOMINAL, HELD, FALLBACK_STOP = 0, 1, 2
WIDTH, HEIGHT = 320, 180


def message(name, /, **fields):
    return typestore().types[name](**fields)


def time(ns):
    return message('builtin_interfaces/msg/Time', sec=ns // 10**9, nanosec=ns % 10**9)


def duration(ns):
    return message('builtin_interfaces/msg/Duration', sec=ns // 10**9, nanosec=ns % 10**9)


def header(ns, frame_id=''):
    return message('std_msgs/msg/Header', stamp=time(ns), frame_id=frame_id)


def pose(x, y, yaw):
    return message(
        'geometry_msgs/msg/Pose',
        position=message('geometry_msgs/msg/Point', x=x, y=y, z=0.0),
        orientation=message(
            'geometry_msgs/msg/Quaternion', x=0.0, y=0.0, z=np.sin(yaw / 2), w=np.cos(yaw / 2)
        ),
    )


def image(ns, grey=90):
    picture = np.full((HEIGHT, WIDTH, 3), grey, np.uint8)
    _, data = cv2.imencode('.png', picture)
    return message(
        'sensor_msgs/msg/CompressedImage', header=header(ns), format='png', data=data.ravel()
    )


def odometry(ns, x, y, yaw, speed):
    def vector(*xyz):
        return message('geometry_msgs/msg/Vector3', x=xyz[0], y=xyz[1], z=xyz[2])

    twist = message(
        'geometry_msgs/msg/Twist', linear=vector(speed, 0.0, 0.0), angular=vector(0.0, 0.0, 0.0)
    )
    return message(
        'nav_msgs/msg/Odometry',
        header=header(ns, 'odom'),
        child_frame_id='base_link',
        pose=message(
            'geometry_msgs/msg/PoseWithCovariance', pose=pose(x, y, yaw), covariance=np.zeros(36)
        ),
        twist=message(
            'geometry_msgs/msg/TwistWithCovariance', twist=twist, covariance=np.zeros(36)
        ),
    )


def trajectory(t0_ns, age_ns, poses, speed, status=NOMINAL, frame_id='odom', sequence=0):
    """Make a PlannedTrajectory with one pose (x, y, yaw) every 0.5 s."""
    points = [
        message(
            'wamdiff_ros/msg/TrajectoryPoint',
            time_from_start=duration(i * 500_000_000),
            pose=pose(*xyyaw),
            speed_mps=speed,
            acceleration_mps2=0.0,
            heading_rate_radps=0.0,
            curvature_1pm=0.0,
        )
        for i, xyyaw in enumerate(poses)
    ]
    return message(
        'wamdiff_ros/msg/PlannedTrajectory',
        header=header(t0_ns, frame_id),
        sequence=sequence,
        status=status,
        age=duration(age_ns),
        valid_until=time(t0_ns + 10**9),
        candidate_index=0,
        points=points,
    )


def status(ns, tick, state, stages=(), missed=0, reason='', answer='', rejected=0):
    counters = ('skipped_ticks', 'rejected_answers', 'stream_resets')
    forwards = ('vision_forwards', 'prefill_forwards', 'denoising_forwards', 'commit_forwards')
    tokens = ('prompt_tokens', 'reused_prefix_tokens', 'answer_tokens', 'bulk_filled_tokens')
    return message(
        'wamdiff_ros/msg/PlannerStatus',
        header=header(ns, 'base_link'),
        tick=tick,
        state=state,
        reason=reason,
        t0=time(ns),
        deadline_slack=duration(0),
        stages=[
            message('wamdiff_ros/msg/StageTiming', name=name, duration=duration(ns))
            for name, ns in stages
        ],
        **{name: i for i, name in enumerate((*forwards, *tokens))},
        **dict.fromkeys(counters, 0),
        rejected_plans=rejected,
        answer=answer,
        missed_deadlines=missed,
        cut_short=False,
        backend='sdpa cpu float32',
        model='nano',
    )


def description(ns, age_ns, text):
    return message(
        'wamdiff_ros/msg/SceneDescription',
        header=header(ns, 'base_link'),
        sequence=0,
        age=duration(age_ns),
        text=text,
        sections=[],
        truncated=False,
    )


def write(path, messages):
    """Write [(topic, sent_ns, message)] as a bag."""
    with BagWriter(path) as writer:
        for topic, sent_ns, entry in sorted(messages, key=lambda m: m[1]):
            writer.write_message(topic, sent_ns, entry)
    return path


_FOLDER = tempfile.TemporaryDirectory()  # gone when the tests end


@cache
def sensor_bag():
    """Return a recording of sensors: 3 s with images at 20 Hz, odometry at 50 Hz, a command."""
    fields = dict.fromkeys(('binning_x', 'binning_y'), 0)
    region = message(
        'sensor_msgs/msg/RegionOfInterest',
        x_offset=0, y_offset=0, height=0, width=0, do_rectify=False,
    )  # fmt: skip
    info = message(
        'sensor_msgs/msg/CameraInfo', header=header(START_NS), width=WIDTH, height=HEIGHT,
        distortion_model='plumb_bob', d=np.zeros(5), k=np.eye(3).ravel(), r=np.eye(3).ravel(),
        p=np.eye(3, 4).ravel(), roi=region, **fields,
    )  # fmt: skip
    command = message('wamdiff_ros/msg/NavigationCommand', header=header(START_NS), command=0)
    messages = [
        ('/camera/front/camera_info', START_NS, info),
        ('/navigation_command', START_NS, command),
    ]
    for ns in range(START_NS, START_NS + 3 * 10**9, 10_000_000):
        since = ns - START_NS
        if since % 20_000_000 == 0:
            messages.append(('/odometry', ns, odometry(ns, 5e-9 * since, 0.0, 0.0, 5.0)))
        if since % 50_000_000 == 0:
            messages.append(('/camera/front/image', ns, image(ns, since // 50_000_000)))
    return write(Path(_FOLDER.name) / 'bag', messages)


def default_camera():
    return Pinhole.level(WIDTH, HEIGHT)
