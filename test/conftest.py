"""Settings of all tests, and of the processes that they start."""

import os
from pathlib import Path

from hypothesis import settings

from wamdiff_ros.ros_domain import OwnDomain

# Every run has a DDS domain of its own and stays on this machine, so that two runs, or a run
# beside a vehicle, do not hear each other. Humble knows the older variable only.
_DOMAIN = OwnDomain()  # claimed until the run ends
os.environ['ROS_DOMAIN_ID'] = str(_DOMAIN.id)
if os.environ.get('ROS_DISTRO') == 'humble':
    os.environ['ROS_LOCALHOST_ONLY'] = '1'
else:
    os.environ['ROS_AUTOMATIC_DISCOVERY_RANGE'] = 'LOCALHOST'

# The profile of the launch file; Fast DDS 2 and 3 read different variables.
_PROFILE = Path(__file__).parents[1] / 'config' / 'fastdds.xml'
for _name in ('FASTRTPS_DEFAULT_PROFILES_FILE', 'FASTDDS_DEFAULT_PROFILES_FILE'):
    os.environ[_name] = str(_PROFILE)

# Small networks are slower on many threads; read by torch when a test imports it.
os.environ.setdefault('OMP_NUM_THREADS', '1')

# A busy machine is no failure: no time limit per example, and the same examples every run.
settings.register_profile('wamdiff', deadline=None, derandomize=True, print_blob=True)
settings.load_profile('wamdiff')
