"""Record the planner until the disk, played by a limit on file sizes, is full."""

import resource
import sys
from pathlib import Path

from wamdiff_ros.recordings.bag import BagError
from wamdiff_ros.ros.recorder import RecorderNode, planner_topics

LIMIT_BYTES = 65_536

if __name__ == '__main__':
    try:
        with RecorderNode(Path(sys.argv[1]), planner_topics()) as recorder:
            # From here on, or DDS could not make its segments of shared memory.
            resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT_BYTES, LIMIT_BYTES))
            recorder.spin_for(60.0)
    except BagError as error:
        sys.exit(str(error))
