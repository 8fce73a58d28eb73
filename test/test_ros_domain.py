import os
import socket
import subprocess
import sys

import pytest

from wamdiff_ros.ros_domain import OwnDomain


def test_two_at_once_never_get_the_same_domain():
    held = [OwnDomain() for _ in range(3)]
    assert len({int(os.environ['ROS_DOMAIN_ID']), *(domain.id for domain in held)}) == 4


def test_another_process_gets_it_only_after_this_one_has_dropped_it():
    own = OwnDomain()
    code = (
        'from wamdiff_ros import ros_domain as domains\n'
        f'domains.CANDIDATES = range({own.id}, {own.id + 1})\n'
        'print(domains.OwnDomain().id)'
    )

    def elsewhere():
        return subprocess.run([sys.executable, '-c', code], capture_output=True, text=True)

    assert f'all ROS domains {own.id} … {own.id} are in use' in elsewhere().stderr
    number = own.id
    del own
    assert elsewhere().stdout == f'{number}\n'


@pytest.mark.parametrize('offset', [0, 10, 14])  # the port of all, of the first, of the third
def test_a_domain_in_which_somebody_listens_is_not_taken(offset):
    free = OwnDomain().id
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as participant:
        participant.bind(('', 7400 + 250 * free + offset))
        assert OwnDomain().id != free
