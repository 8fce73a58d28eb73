"""A ROS domain that nobody else on this machine uses."""

import os
import socket

CANDIDATES = range(1, 101)  # whose ports lie below those that Linux hands out by itself
PARTICIPANTS = 10  # so many are looked for; the first may have left before the others


class OwnDomain:
    """Claims the domain `id` until it is dropped or the process ends, however it ends.

    No other OwnDomain on this machine takes the same, and it takes none in which somebody
    listens already. Raises OSError when there is none left.
    """

    def __init__(self) -> None:
        start = os.getpid() % len(CANDIDATES)
        for domain in (*CANDIDATES[start:], *CANDIDATES[:start]):
            self._claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            try:
                # A name without a file, which the system takes back by itself.
                self._claim.bind(f'\0wamdiff_ros_domain_{domain}')
            except OSError:
                self._claim.close()
                continue
            if not _has_participants(domain):
                self.id = domain
                return
            self._claim.close()
        raise OSError(
            f'all ROS domains {CANDIDATES[0]} … {CANDIDATES[-1]} are in use on this machine'
        )


def _has_participants(domain: int) -> bool:
    first = 7400 + 250 * domain  # DDSI-RTPS 9.6.1: one port for all, then two per participant
    for port in (first, *range(first + 10, first + 10 + 2 * PARTICIPANTS, 2)):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.bind(('', port))
            except OSError:
                return True
    return False
