"""Replace the build machine's paths in the CMake files of the ROS wheels by this machine's.

Run with the Python of the environment that the wheels are installed in. Without this CMake stops
with 'std_msgs__rosidl_generator_py includes non-existent path'.
"""

import re
import sys
import sysconfig
from pathlib import Path

import numpy

REPLACEMENTS = (
    (re.compile(r'/opt/python/cp\d+-cp\d+/lib/python[\d.]+/site-packages/numpy/_core/include'),
     numpy.get_include()),
    (re.compile(r'/opt/python/cp\d+-cp\d+/include/python[\d.]+'), sysconfig.get_path('include')),
)  # fmt: skip

for path in Path(sys.prefix, 'share').glob('*/cmake/*.cmake'):
    text = path.read_text()
    fixed = text
    for pattern, replacement in REPLACEMENTS:
        fixed = pattern.sub(lambda _, new=replacement: new, fixed)
    if fixed != text:
        path.write_text(fixed)
