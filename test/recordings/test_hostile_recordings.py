"""Damaged bags and logs give what is whole, or a named error of their own kind."""

import contextlib
import io
import shutil

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mutations import mutations
from recording import image, odometry

from wamdiff_ros.recordings.bag import BagError, BagReader, BagWriter, read_messages, typestore
from wamdiff_ros.recordings.sources import SourceError, read_ego

in_one_folder = settings(
    max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(scope='module')
def bag(tmp_path_factory):
    path = tmp_path_factory.mktemp('bags') / 'good'
    with BagWriter(path) as writer:
        for i in range(3):
            writer.write_message('/odometry', 10**9 + i, odometry(10**9 + i, 1.0, 2.0, 0.1, 5.0))
            writer.write_message('/image', 10**9 + i, image(10**9 + i))
    return path


def read(path):
    with contextlib.suppress(BagError):
        for _ in read_messages(path):
            pass


@in_one_folder
@given(mutate=mutations(), whole=st.booleans())
def test_any_damage_to_an_mcap(bag, mutate, whole):
    damaged = bag.with_name('damaged')
    shutil.rmtree(damaged, ignore_errors=True)
    shutil.copytree(bag, damaged)
    (file,) = damaged.glob('*.mcap')
    file.write_bytes(mutate(file.read_bytes()))
    read(damaged if whole else file)


@pytest.mark.parametrize('type_name', ['geometry_msgs/Nothing', 'nav_msgs/Odometry', 'float63'])
def test_a_definition_that_leads_nowhere_or_in_circles_is_refused(bag, type_name):
    damaged = bag.with_name('damaged')
    shutil.rmtree(damaged, ignore_errors=True)
    shutil.copytree(bag, damaged)
    (file,) = damaged.glob('*.mcap')
    content = file.read_bytes()
    where = content.index(b'geometry_msgs/PoseWithCovariance pose')
    length = len(b'geometry_msgs/PoseWithCovariance')
    content = content[:where] + type_name.encode().ljust(length) + content[where + length :]
    file.write_bytes(content)
    with pytest.raises(BagError, match='the definition of nav_msgs/msg/Odometry cannot be read'):
        list(read_messages(file, ['/odometry']))


@in_one_folder
@given(mutate=mutations())
def test_any_damage_to_the_metadata(bag, mutate):
    damaged = bag.with_name('damaged')
    shutil.rmtree(damaged, ignore_errors=True)
    shutil.copytree(bag, damaged)
    (damaged / 'metadata.yaml').write_bytes(mutate((damaged / 'metadata.yaml').read_bytes()))
    read(damaged)


@settings(max_examples=150)
@given(mutate=mutations(), kind=st.sampled_from(['odometry', 'image']), rest=st.binary(max_size=9))
def test_any_bytes_in_a_message(mutate, kind, rest):
    good = {'odometry': odometry(1, 1.0, 2.0, 0.1, 5.0), 'image': image(1)}[kind]
    name = good.__msgtype__
    cdr = bytes(typestore().serialize_cdr(good, name))
    damaged = mutate(cdr[:200]) + cdr[200:] + rest
    with contextlib.suppress(BagError):
        BagReader.deserialise(_Reader(), '/topic', name, damaged)


class _Reader:
    """Of a BagReader what deserialising one message takes."""

    path = 'bag'
    _stores: dict = {}  # noqa: RUF012 - types stay the same

    def _store_of(self, topic, type_name):
        return typestore()


def _logs():
    rows = np.arange(24.0).reshape(6, 4) / 10
    csv = 't_s,x_m,y_m,yaw_rad\n' + '\n'.join(','.join(map(str, row)) for row in rows)
    poses = '\n'.join(f'1 0 0 0 0 1 0 0 0 0 1 {i}' for i in range(5))
    file = io.BytesIO()
    np.savez(
        file,
        frame_times_s=np.arange(5) / 20,
        positions_ecef_m=np.zeros((5, 3)) + 6.4e6,
        velocities_ecef_mps=np.ones((5, 3)),
        orientations_ecef_wxyz=np.tile([1.0, 0.0, 0.0, 0.0], (5, 1)),
    )
    return {'.csv': csv.encode(), '.txt': poses.encode(), '.npz': file.getvalue()}


LOGS = _logs()


@in_one_folder
@given(suffix=st.sampled_from(sorted(LOGS)), mutate=mutations())
def test_any_damage_to_an_ego_log(tmp_path_factory, suffix, mutate):
    path = tmp_path_factory.getbasetemp() / f'log{suffix}'
    path.write_bytes(mutate(LOGS[suffix]))
    with contextlib.suppress(SourceError):
        for state in read_ego(path):
            assert np.isfinite(state.position_fixed_m).all()
