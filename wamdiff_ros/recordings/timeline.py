"""What a recording holds, looked up by time: the ego's pose, the plan in force, the words said.

Times are nanoseconds of the clock of the header stamps. Images are not in here; they stream.
"""

import json
from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial.transform import Rotation, Slerp

from ..message_time import header_ns, nanoseconds
from ..observation.camera_info import pinhole_of
from ..pinhole import Pinhole
from ..types import PlanStatus
from .bag import BagError, bag_topics, read_messages

IMAGE_TYPES = ('sensor_msgs/msg/Image', 'sensor_msgs/msg/CompressedImage')
TYPE_OF_TRAJECTORY = 'wamdiff_ros/msg/PlannedTrajectory'
TRUTH_TOPIC = '/simulator/truth'
MAX_EGO_GAP_NS = 200_000_000


@dataclass(frozen=True, eq=False)
class PublishedPlan:
    """One PlannedTrajectory as it was published."""

    t0_ns: int
    published_ns: int
    status: PlanStatus
    frame_id: str
    time_s: np.ndarray  # [N], from t0
    positions_m: np.ndarray  # [N, 3], in frame_id
    headings_rad: np.ndarray  # [N], in frame_id
    speed_mps: np.ndarray  # [N]


@dataclass(frozen=True, eq=False)
class Ego:
    """The vehicle at one instant."""

    position_m: np.ndarray  # [3], in the fixed frame
    rotation: Rotation  # base in the fixed frame
    speed_mps: float

    def to_base(self, points_fixed_m: np.ndarray) -> np.ndarray:
        """Return points [N, 3] of the fixed frame in base."""
        return self.rotation.inv().apply(np.asarray(points_fixed_m) - self.position_m)


class EgoTrack:
    """The recorded odometry, interpolated."""

    def __init__(self, odometry: list[Any]) -> None:
        # Later messages with the same stamp add nothing to interpolate.
        unique = {header_ns(message): message for message in odometry}
        self.times_ns = np.array(sorted(unique), np.int64)
        ordered = [unique[int(time_ns)] for time_ns in self.times_ns]
        self.frame_id = ordered[0].header.frame_id if ordered else ''
        poses = [message.pose.pose for message in ordered]
        self.positions_m = np.array(
            [(p.position.x, p.position.y, p.position.z) for p in poses]
        ).reshape(-1, 3)
        self._speeds = np.array([message.twist.twist.linear.x for message in ordered])
        if len(ordered) >= 2:
            quaternions = [
                (p.orientation.x, p.orientation.y, p.orientation.z, p.orientation.w) for p in poses
            ]
            self._slerp = Slerp(self._seconds(self.times_ns), Rotation.from_quat(quaternions))

    def at(self, time_ns: int) -> Ego | None:
        """Return the ego at the time, None when the odometry does not reach there."""
        if len(self.times_ns) < 2:
            return None
        inside = int(np.clip(time_ns, self.times_ns[0], self.times_ns[-1]))
        if abs(inside - time_ns) > MAX_EGO_GAP_NS:
            return None
        seconds, at = self._seconds(self.times_ns), self._seconds(np.array([inside]))[0]
        position = [np.interp(at, seconds, axis) for axis in self.positions_m.T]
        return Ego(
            np.array(position), self._slerp(at), float(np.interp(at, seconds, self._speeds))
        )

    def _seconds(self, times_ns: np.ndarray) -> np.ndarray:
        return (times_ns - self.times_ns[0]) / 1e9


@dataclass(eq=False)
class Timeline:
    """Everything of a bag but its images."""

    ego: EgoTrack
    plans: list[PublishedPlan]  # in the order of publication
    candidates: dict[int, list[PublishedPlan]]  # by t0, the published plan among them
    descriptions: list[tuple[int, str]]  # (published, text)
    statuses: list[Any]  # PlannerStatus messages
    truths: list[tuple[int, dict[str, Any]]]  # (stamp, ground truth) of a simulator
    camera: Pinhole | None  # when the recording holds a CameraInfo of the images
    image_topic: str  # '' without images
    image_type: str

    def plan_at(self, time_ns: int) -> PublishedPlan | None:
        """Return the plan in force: the newest one that was published by then."""
        index = bisect_right(self.plans, time_ns, key=lambda plan: plan.published_ns)
        return self.plans[index - 1] if index else None

    def description_at(self, time_ns: int) -> str:
        """Return the newest description that was published by then, '' before the first."""
        index = bisect_right(self.descriptions, time_ns, key=lambda said: said[0])
        return self.descriptions[index - 1][1] if index else ''

    def truth_at(self, time_ns: int) -> dict[str, Any] | None:
        """Return the newest ground truth by then, None without a simulator."""
        index = bisect_right(self.truths, time_ns, key=lambda told: told[0])
        return self.truths[index - 1][1] if index else None

    def plan_in_base(self, plan: PublishedPlan, now: Ego) -> tuple[np.ndarray, np.ndarray] | None:
        """Return positions [N, 3] and unit headings [N, 3] of a plan in base at `now`.

        None when the plan is in base at its t0 and the odometry does not reach there.
        """
        directions = np.stack(
            [np.cos(plan.headings_rad), np.sin(plan.headings_rad), 0 * plan.headings_rad], axis=-1
        )
        positions = plan.positions_m
        if plan.frame_id != self.ego.frame_id:
            start = self.ego.at(plan.t0_ns)
            if start is None:
                return None
            positions = start.rotation.apply(positions) + start.position_m
            directions = start.rotation.apply(directions)
        return now.to_base(positions), now.rotation.inv().apply(directions)


def read_timeline(
    bag: Path,
    image_topic: str | None = None,
    odometry_topic: str = '/odometry',
    needs_images: bool = True,
) -> Timeline:
    """Read a recording of the planner. Raises BagError when images are needed and it has none."""
    topics = bag_topics(bag)
    image_topic = image_topic or (_only_image_topic(bag, topics) if needs_images else '')
    if image_topic and image_topic not in topics:
        raise BagError(f'{bag}: holds no topic {image_topic}; it has {", ".join(topics)}')
    odometry, plans, descriptions, statuses, infos, transforms = [], [], [], [], [], []
    truths: list[tuple[int, dict[str, Any]]] = []
    candidates: dict[int, list[PublishedPlan]] = {}
    sinks = {
        'wamdiff_ros/msg/PlannerStatus': statuses.append,
        'wamdiff_ros/msg/SceneDescription': lambda m: descriptions.append(
            (header_ns(m) + nanoseconds(m.age), m.text)
        ),
        TYPE_OF_TRAJECTORY: lambda m: plans.append(_published_plan(m)),
        'wamdiff_ros/msg/CandidateTrajectories': lambda m: candidates.update(
            {header_ns(m): [_published_plan(candidate) for candidate in m.candidates]}
        ),
        'sensor_msgs/msg/CameraInfo': infos.append,
        'tf2_msgs/msg/TFMessage': lambda m: transforms.extend(m.transforms),
    }
    wanted = [topic for topic, (type_name, _) in topics.items() if type_name in sinks]
    for topic, type_name, _, message in read_messages(bag, [*wanted, odometry_topic, TRUTH_TOPIC]):
        if topic == odometry_topic:
            odometry.append(message)
        elif topic == TRUTH_TOPIC:
            truths.append(_stamped_truth(bag, message.data))
        else:
            sinks[type_name](message)
    return Timeline(
        EgoTrack(odometry), plans, candidates, descriptions, statuses, truths,
        _camera(infos, transforms), image_topic, topics[image_topic][0] if image_topic else '',
    )  # fmt: skip


def read_camera(bag: Path) -> Pinhole | None:
    """Return the camera that the bag describes, None when it has no CameraInfo."""
    topics = bag_topics(bag)
    types = ('sensor_msgs/msg/CameraInfo', 'tf2_msgs/msg/TFMessage')
    wanted = [topic for topic, (type_name, _) in topics.items() if type_name in types]
    infos, transforms = [], []
    for _, type_name, _, message in read_messages(bag, wanted):
        if type_name == types[0]:
            infos.append(message)
        else:
            transforms.extend(message.transforms)
    return _camera(infos, transforms)


def _camera(infos: list[Any], transforms: list[Any]) -> Pinhole | None:
    return pinhole_of(infos[0], transforms) if infos else None


def _stamped_truth(bag: Path, data: str) -> tuple[int, dict[str, Any]]:
    try:
        truth = json.loads(data)
        return truth['stamp_ns'], truth
    except (ValueError, KeyError, TypeError) as error:
        raise BagError(f'{bag}: {TRUTH_TOPIC} is no ground truth: {error!r}') from error


def _published_plan(message: Any) -> PublishedPlan:
    points = message.points
    t0_ns = header_ns(message)
    rotations = [
        (p.pose.orientation.x, p.pose.orientation.y, p.pose.orientation.z, p.pose.orientation.w)
        for p in points
    ]
    matrices = Rotation.from_quat(np.array(rotations).reshape(-1, 4)).as_matrix()
    return PublishedPlan(
        t0_ns=t0_ns,
        published_ns=t0_ns + nanoseconds(message.age),
        status={0: PlanStatus.NOMINAL, 1: PlanStatus.HELD, 2: PlanStatus.FALLBACK_STOP}[
            message.status
        ],
        frame_id=message.header.frame_id,
        time_s=np.array([nanoseconds(p.time_from_start) / 1e9 for p in points]),
        positions_m=np.array(
            [(p.pose.position.x, p.pose.position.y, p.pose.position.z) for p in points]
        ).reshape(-1, 3),
        headings_rad=np.arctan2(matrices[:, 1, 0], matrices[:, 0, 0]),
        speed_mps=np.array([p.speed_mps for p in points]),
    )


def _only_image_topic(bag: Path, topics: dict) -> str:
    images = [topic for topic, (type_name, _) in topics.items() if type_name in IMAGE_TYPES]
    if not images:
        raise BagError(f'{bag}: holds no camera images; it has {", ".join(topics) or "nothing"}')
    front = [topic for topic in images if 'front' in topic]
    return (front or images)[0]
