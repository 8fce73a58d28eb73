"""Make the bundled input clip: a short drive along a country road, as a rosbag2 recording.

    python -m wamdiff_ros.simulation.clip demo/clip

A car ahead slows down; the ego vehicle brakes from 12 to 6 m/s, follows a left and a right bend
in its lane and speeds up again. The camera has 20 Hz, the odometry 50 Hz. The same seed gives
the same bytes.
"""

import argparse
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from tqdm import tqdm

from ..evaluation.bag import BagError, BagWriter, typestore
from ..pinhole import Pinhole
from ..types import EgoState
from .painter import LANE_WIDTH_M, Car, Painter
from .road import Road

DURATION_S = 12.0
IMAGE_PERIOD_NS = 50_000_000
ODOMETRY_PERIOD_NS = 20_000_000
START_NS = 1_700_000_000_000_000_000  # some day: playing replaces it
JPEG_QUALITY = 60  # keeps 12 s below 4 MB
CAMERA_FRAME = 'camera_front_optical'

CURVATURE_PROFILE = [
    (-60, 0), (20, 0), (34, 1 / 80), (50, 1 / 80), (64, 0),
    (66, 0), (80, -1 / 70), (110, -1 / 70), (130, 0), (500, 0),
]  # fmt: skip
# (time [s], speed [m/s]); the speed follows them smoothly.
EGO_SPEEDS = [(0.0, 12.0), (1.8, 12.0), (4.8, 6.2), (6.6, 6.0), (10.5, 10.8), (20.0, 12.0)]
LEAD_SPEEDS = [(0.0, 11.0), (0.8, 10.5), (3.6, 5.6), (5.6, 6.2), (9.5, 11.5), (20.0, 13.0)]
LEAD_GAP_M = 24.0


class Drive:
    """Where the two cars are over time, on the right lane of the road."""

    def __init__(self) -> None:
        self.road = Road(CURVATURE_PROFILE)
        self._time_s = np.arange(0, DURATION_S + 0.5, 0.005)
        self._ego_speed = _smooth(self._time_s, EGO_SPEEDS)
        self._lead_speed = _smooth(self._time_s, LEAD_SPEEDS)
        self._ego_s = self._along_road(self._ego_speed, 0.0)
        self._lead_s = self._along_road(self._lead_speed, LEAD_GAP_M)
        # The odometry starts where the vehicle does.
        self.start = self.road.pose(0.0, -LANE_WIDTH_M / 2)

    def ego(self, time_s: float) -> EgoState:
        """Return the true motion of the ego vehicle, in the frame of its start."""
        s = np.interp(time_s, self._time_s, self._ego_s)
        x, y, heading = self.road.pose(s, -LANE_WIDTH_M / 2)
        speed = float(np.interp(time_s, self._time_s, self._ego_speed))
        acceleration = np.gradient(self._ego_speed, self._time_s)
        curvature = self.road.curvature_at(s)
        yaw_rate = speed * curvature / (1 + curvature * LANE_WIDTH_M / 2)
        return EgoState(
            stamp_ns=START_NS + round(time_s * 1e9),
            fixed_frame='odom',
            base_frame='base_link',
            position_fixed_m=(x - self.start[0], y - self.start[1], 0.0),
            orientation_xyzw=(0.0, 0.0, float(np.sin(heading / 2)), float(np.cos(heading / 2))),
            velocity_base_mps=(speed, 0.0),
            yaw_rate_radps=yaw_rate,
            acceleration_base_mps2=(
                float(np.interp(time_s, self._time_s, acceleration)),
                speed * yaw_rate,
            ),
        )

    def poses(self, time_s: float) -> tuple[tuple[float, float, float], Car]:
        """Return the ego's pose (x, y, heading) in the road's frame, and the car ahead."""
        ego_s = np.interp(time_s, self._time_s, self._ego_s)
        lead_s = np.interp(time_s, self._time_s, self._lead_s)
        slowing = np.gradient(self._lead_speed, self._time_s)
        braking = bool(np.interp(time_s, self._time_s, slowing) < -0.4)
        car = Car(*self.road.pose(lead_s, -LANE_WIDTH_M / 2), braking)
        return self.road.pose(ego_s, -LANE_WIDTH_M / 2), car

    def _along_road(self, speed_mps: np.ndarray, start_s_m: float) -> np.ndarray:
        s = np.empty(len(speed_mps))
        s[0] = start_s_m
        for i in range(1, len(s)):
            # The lane is longer than the centre line where the road bends to the left.
            stretch = 1 + self.road.curvature_at(s[i - 1]) * LANE_WIDTH_M / 2
            step_s = self._time_s[i] - self._time_s[i - 1]
            s[i] = s[i - 1] + (speed_mps[i] + speed_mps[i - 1]) / 2 * step_s / stretch
        return s


def camera() -> Pinhole:
    """Return the clip's camera."""
    return Pinhole.level(640, 360)


def messages(seed: int = 1, duration_s: float = DURATION_S) -> Iterator[tuple[str, int, Any]]:
    """Yield (topic, stamp_ns, message) of the clip in the order of their time."""
    drive, view = Drive(), camera()
    painter = Painter(drive.road, view, seed)
    yield '/tf_static', START_NS, _extrinsics(view)
    yield '/camera/front/camera_info', START_NS, _camera_info(view)
    yield (
        '/navigation_command',
        START_NS,
        _type('wamdiff_ros/msg/NavigationCommand')(header=_header(START_NS, ''), command=0),
    )
    end_ns = round(duration_s * 1e9)
    for offset_ns in range(0, end_ns, 10_000_000):
        stamp_ns = START_NS + offset_ns
        if offset_ns % ODOMETRY_PERIOD_NS == 0:
            yield '/odometry', stamp_ns, _odometry(drive.ego(offset_ns / 1e9))
        if offset_ns % IMAGE_PERIOD_NS == 0:
            pose, car = drive.poses(offset_ns / 1e9)
            rgb = painter.paint(*pose, [car])
            yield '/camera/front/image', stamp_ns, _compressed_image(stamp_ns, rgb)


def write_clip(path: Path, seed: int = 1, duration_s: float = DURATION_S) -> None:
    """Write the clip as a new bag. Raises BagError."""
    with BagWriter(path) as writer:
        total = round(duration_s * 1e9) // IMAGE_PERIOD_NS
        with tqdm(total=total, desc='painting', unit='frame', disable=None) as progress:
            for topic, stamp_ns, message in messages(seed, duration_s):
                writer.write_message(topic, stamp_ns, message)
                progress.update(topic == '/camera/front/image')


def main() -> int:
    """Write the clip into the folder that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.split('\n\n')[0])
    parser.add_argument('output', type=Path, help='folder of the new bag')
    parser.add_argument('--seed', type=int, default=1, help='of the plants and the textures')
    parser.add_argument('--duration', type=float, default=DURATION_S, metavar='S')
    parser.add_argument('--force', action='store_true', help='replace the folder')
    arguments = parser.parse_args()
    if not 0 < arguments.duration <= DURATION_S:
        parser.error(f'--duration: {arguments.duration} is outside 0 … {DURATION_S}')
    if arguments.force and (arguments.output / 'metadata.yaml').exists():
        shutil.rmtree(arguments.output)
    try:
        write_clip(arguments.output, arguments.seed, arguments.duration)
    except BagError as error:
        print(f'error: {error}', file=sys.stderr)
        return 1
    return 0


def _smooth(time_s: np.ndarray, knots: list[tuple[float, float]]) -> np.ndarray:
    """Return the knots' piecewise linear curve, averaged over 1.2 s."""
    step_s = time_s[1] - time_s[0]
    window = np.hanning(round(1.2 / step_s))
    margin = len(window)
    longer = np.arange(-margin, len(time_s) + margin) * step_s
    values = np.interp(longer, *np.array(knots).T)
    return np.convolve(values, window / window.sum(), 'same')[margin:-margin]


def _type(name: str) -> Any:
    return typestore().types[name]


def _header(stamp_ns: int, frame_id: str) -> Any:
    time = _type('builtin_interfaces/msg/Time')(*divmod(stamp_ns, 10**9))
    return _type('std_msgs/msg/Header')(stamp=time, frame_id=frame_id)


def _vector(x: float, y: float, z: float) -> Any:
    return _type('geometry_msgs/msg/Vector3')(x, y, z)


def _compressed_image(stamp_ns: int, rgb: np.ndarray) -> Any:
    bgr = cv2.cvtColor(rgb, cv2.COLOR_RGB2BGR)
    options = [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY, cv2.IMWRITE_JPEG_OPTIMIZE, 1]
    _, jpeg = cv2.imencode('.jpg', bgr, options)
    return _type('sensor_msgs/msg/CompressedImage')(
        header=_header(stamp_ns, CAMERA_FRAME), format='jpeg', data=jpeg.ravel()
    )


def _odometry(ego: EgoState) -> Any:
    pose = _type('geometry_msgs/msg/Pose')(
        _type('geometry_msgs/msg/Point')(*ego.position_fixed_m),
        _type('geometry_msgs/msg/Quaternion')(*ego.orientation_xyzw),
    )
    twist = _type('geometry_msgs/msg/Twist')(
        _vector(*ego.velocity_base_mps, 0.0), _vector(0.0, 0.0, ego.yaw_rate_radps)
    )
    return _type('nav_msgs/msg/Odometry')(
        header=_header(ego.stamp_ns, ego.fixed_frame),
        child_frame_id=ego.base_frame,
        pose=_type('geometry_msgs/msg/PoseWithCovariance')(pose, np.zeros(36)),
        twist=_type('geometry_msgs/msg/TwistWithCovariance')(twist, np.zeros(36)),
    )


def _camera_info(view: Pinhole) -> Any:
    k = [view.fx, 0, view.cx, 0, view.fy, view.cy, 0, 0, 1]
    p = [view.fx, 0, view.cx, 0, 0, view.fy, view.cy, 0, 0, 0, 1, 0]
    return _type('sensor_msgs/msg/CameraInfo')(
        header=_header(START_NS, CAMERA_FRAME),
        height=view.height, width=view.width,
        distortion_model='plumb_bob', d=np.zeros(5),
        k=np.array(k, float), r=np.eye(3).ravel(), p=np.array(p, float),
        binning_x=0, binning_y=0,
        roi=_type('sensor_msgs/msg/RegionOfInterest')(0, 0, 0, 0, False),
    )  # fmt: skip


def _extrinsics(view: Pinhole) -> Any:
    transform = _type('geometry_msgs/msg/Transform')(
        _vector(*(float(value) for value in view.position_base_m)),
        # The optical axes of REP-103 for a camera that looks straight ahead.
        _type('geometry_msgs/msg/Quaternion')(-0.5, 0.5, -0.5, 0.5),
    )
    stamped = _type('geometry_msgs/msg/TransformStamped')(
        _header(START_NS, 'base_link'), CAMERA_FRAME, transform
    )
    return _type('tf2_msgs/msg/TFMessage')([stamped])


if __name__ == '__main__':
    sys.exit(main())
