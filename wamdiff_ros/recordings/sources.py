"""Read what people have besides bags: video files, numbered images, and logs of the ego motion.

Times are nanoseconds from the beginning of the source. Knows nothing of ROS; ros/sources.py
makes messages of it.
"""

import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
from scipy.spatial.transform import Rotation

from ..pinhole import OPTICAL_AXES_BASE
from ..types import EgoState

IMAGE_SUFFIXES = ('.jpg', '.jpeg', '.png')
_DAMAGE = (OSError, EOFError, RuntimeError, MemoryError, ArithmeticError)
CSV_COLUMNS = ('t_s', 'x_m', 'y_m', 'yaw_rad')


class SourceError(ValueError):
    """A source cannot be read; the message names the file and what is wrong with it."""


# -- pictures ---------------------------------------------------------------------------------


def video_frames(path: Path) -> Iterator[tuple[int, np.ndarray]]:
    """Yield (time [ns], uint8 BGR [height, width, 3]) of every frame of the video."""
    try:
        import av
    except ImportError as error:
        raise SourceError(
            f'{path}: reading videos needs PyAV: pip install -r requirements/simulation.txt'
        ) from error
    if not path.is_file():
        raise SourceError(f'{path}: no such video')
    try:
        with av.open(str(path)) as container:
            if not container.streams.video:
                raise SourceError(f'{path}: holds no video stream')
            first = None
            for frame in container.decode(container.streams.video[0]):
                time_ns = round(frame.pts * frame.time_base * 10**9)
                first = time_ns if first is None else first
                yield time_ns - first, frame.to_ndarray(format='bgr24')
    except av.FFmpegError as error:
        raise SourceError(f'{path}: cannot be decoded as a video ({error})') from error
    if first is None:
        raise SourceError(f'{path}: holds no frames')


def image_files(folder: Path) -> list[Path]:
    """Return the folder's JPEG and PNG files in the order of the numbers in their names."""
    if not folder.is_dir():
        raise SourceError(f'{folder}: no such folder')
    files = [path for path in folder.iterdir() if path.suffix.lower() in IMAGE_SUFFIXES]
    if not files:
        raise SourceError(f'{folder}: holds no {", ".join(IMAGE_SUFFIXES)} files')
    unnumbered = [path.name for path in files if not re.search(r'\d', path.stem)]
    if unnumbered:
        raise SourceError(f'{folder}/{unnumbered[0]}: has no number, so its place is unknown')
    return sorted(files, key=lambda path: int(re.findall(r'\d+', path.stem)[-1]))


def kitti_intrinsics(calib: Path) -> tuple[float, float, float, float]:
    """Return fx, fy, cx, cy of the left grey camera from the row P0 of a KITTI calib.txt."""
    rows = [row.split() for row in calib.read_text('utf8').splitlines() if row.strip()]
    try:
        p0 = [float(value) for value in rows[0] if value != 'P0:']
        fx, fy, cx, cy = p0[0], p0[5], p0[2], p0[6]
    except (IndexError, ValueError) as error:
        raise SourceError(f'{calib}: the first row is not a 3x4 matrix P0') from error
    return fx, fy, cx, cy


# -- ego motion -------------------------------------------------------------------------------


def read_ego(path: Path, rate_hz: float = 10.0) -> list[EgoState]:
    """Read an ego log by its kind: KITTI poses (.txt, at `rate_hz`), comma log (.npz) or .csv."""
    if not path.is_file():
        raise SourceError(f'{path}: no such ego log')
    readers = {'.txt': lambda p: kitti_ego(p, rate_hz), '.npz': comma_ego, '.csv': csv_ego}
    if path.suffix not in readers:
        raise SourceError(f'{path}: {path.suffix!r} is not one of {", ".join(readers)}')
    try:
        return readers[path.suffix](path)
    except SourceError:
        raise
    # What NumPy and SciPy raise for numbers that are missing, of the wrong shape or no rotation,
    # and what a damaged archive raises.
    except (ValueError, LookupError, TypeError, BadZipFile, zlib.error, *_DAMAGE) as error:
        raise SourceError(f'{path}: is not an ego log of this kind ({error})') from error


def straight_ego(speed_mps: float, rate_hz: float = 50.0) -> Iterator[EgoState]:
    """Yield motion straight ahead at constant speed, without end."""
    index = 0
    while True:
        time_s = index / rate_hz
        yield EgoState(
            round(time_s * 1e9), 'odom', 'base_link', (speed_mps * time_s, 0.0, 0.0),
            (0.0, 0.0, 0.0, 1.0), (speed_mps, 0.0), 0.0, (0.0, 0.0),
        )  # fmt: skip
        index += 1


def kitti_ego(poses: Path, rate_hz: float) -> list[EgoState]:
    """Read KITTI odometry poses, rows of 3x4 camera-to-world matrices, taken at `rate_hz`.

    The vehicle is taken to move as the camera does; its lever arm to base_link is not known.
    """
    try:
        matrices = np.loadtxt(poses, ndmin=2).reshape(-1, 3, 4)
    except ValueError as error:
        raise SourceError(f'{poses}: is not rows of 12 numbers ({error})') from error
    # The world of KITTI has the axes of the first camera; bring both sides to base's axes.
    axes = OPTICAL_AXES_BASE
    rotations = axes @ matrices[:, :, :3] @ axes.T
    positions = matrices[:, :, 3] @ axes.T
    times_ns = np.round(np.arange(len(matrices)) * 1e9 / rate_hz).astype(np.int64)
    return ego_from_poses(times_ns, positions, rotations, str(poses))


def comma_ego(log: Path) -> list[EgoState]:
    """Read a log with ECEF poses of a car (frame_times_s, positions, orientations, velocities).

    The orientations are the vehicle's (x forward, y right, z down) in ECEF. The fixed frame is
    east-north-up at the first position.
    """
    try:
        with np.load(log, allow_pickle=False) as data:
            times_s = data['frame_times_s']
            positions_ecef = data['positions_ecef_m']
            wxyz = data['orientations_ecef_wxyz']
            velocities_ecef = data['velocities_ecef_mps']
    except (KeyError, ValueError) as error:
        raise SourceError(f'{log}: is not an ECEF ego log ({error})') from error
    to_enu = _enu_axes(positions_ecef[0])
    rotations = (
        to_enu @ Rotation.from_quat(wxyz[:, [1, 2, 3, 0]]).as_matrix() @ np.diag([1.0, -1.0, -1.0])
    )
    times_ns = np.round((times_s - times_s[0]) * 1e9).astype(np.int64)
    positions = (positions_ecef - positions_ecef[0]) @ to_enu.T
    return ego_from_poses(times_ns, positions, rotations, str(log), velocities_ecef @ to_enu.T)


def csv_ego(path: Path) -> list[EgoState]:
    """Read a CSV file with a header line and the columns t_s, x_m, y_m, yaw_rad."""
    # Its own ndmin came with NumPy 1.23, after the one of Ubuntu 22.04.
    table = np.atleast_1d(np.genfromtxt(path, delimiter=',', names=True))
    missing = [name for name in CSV_COLUMNS if name not in (table.dtype.names or ())]
    if missing:
        raise SourceError(f'{path}: has no column {missing[0]}; wanted {",".join(CSV_COLUMNS)}')
    yaw = table['yaw_rad']
    rotations = Rotation.from_rotvec(np.outer(yaw, [0.0, 0.0, 1.0])).as_matrix()
    positions = np.stack([table['x_m'], table['y_m'], 0 * yaw], axis=-1)
    times_ns = np.round((table['t_s'] - table['t_s'][0]) * 1e9).astype(np.int64)
    return ego_from_poses(times_ns, positions, rotations, str(path))


def ego_from_poses(
    times_ns: np.ndarray,
    positions_fixed_m: np.ndarray,
    rotations_fixed: np.ndarray,
    name: str,
    velocities_fixed_mps: np.ndarray | None = None,
) -> list[EgoState]:
    """Make ego states of poses, [N], [N, 3] and [N, 3, 3]; what is not given is differentiated.

    Raises SourceError, naming `name`, for fewer than two poses, times that do not increase and
    numbers that are not finite.
    """
    if len(times_ns) < 2:
        raise SourceError(f'{name}: holds {len(times_ns)} poses, needs at least 2')
    if np.any(np.diff(times_ns) <= 0):
        row = int(np.argmax(np.diff(times_ns) <= 0)) + 1
        raise SourceError(f'{name}: the time of row {row} is not after the one before')
    if not (np.isfinite(positions_fixed_m).all() and np.isfinite(rotations_fixed).all()):
        raise SourceError(f'{name}: holds numbers that are not finite')
    times_s = times_ns / 1e9
    if velocities_fixed_mps is None:
        velocities_fixed_mps = np.gradient(positions_fixed_m, times_s, axis=0)
    accelerations = np.gradient(velocities_fixed_mps, times_s, axis=0)
    yaw = np.unwrap(np.arctan2(rotations_fixed[:, 1, 0], rotations_fixed[:, 0, 0]))
    yaw_rates = np.gradient(yaw, times_s)
    velocity_base = np.einsum('nji,nj->ni', rotations_fixed, velocities_fixed_mps)
    acceleration_base = np.einsum('nji,nj->ni', rotations_fixed, accelerations)
    quaternions = Rotation.from_matrix(rotations_fixed).as_quat()
    return [
        EgoState(
            stamp_ns=int(times_ns[i]),
            fixed_frame='odom',
            base_frame='base_link',
            position_fixed_m=tuple(positions_fixed_m[i].tolist()),
            orientation_xyzw=tuple(quaternions[i].tolist()),
            velocity_base_mps=tuple(velocity_base[i, :2].tolist()),
            yaw_rate_radps=float(yaw_rates[i]),
            acceleration_base_mps2=tuple(acceleration_base[i, :2].tolist()),
        )
        for i in range(len(times_ns))
    ]


def _enu_axes(position_ecef_m: np.ndarray) -> np.ndarray:
    """Return [3, 3], the rows east, north and up at the position, in ECEF (WGS-84)."""
    x, y, z = position_ecef_m
    longitude = np.arctan2(y, x)
    eccentricity2 = 6.69437999014e-3
    distance = np.hypot(x, y)
    latitude = np.arctan2(z, distance * (1 - eccentricity2))
    for _ in range(5):  # converges to far below a microradian near the ground
        curvature_m = 6378137.0 / np.sqrt(1 - eccentricity2 * np.sin(latitude) ** 2)
        latitude = np.arctan2(z + eccentricity2 * curvature_m * np.sin(latitude), distance)
    east = np.array([-np.sin(longitude), np.cos(longitude), 0.0])
    up = np.array(
        [
            np.cos(latitude) * np.cos(longitude),
            np.cos(latitude) * np.sin(longitude),
            np.sin(latitude),
        ]
    )
    return np.stack([east, np.cross(up, east), up])
