"""Camera and odometry as a process of its own, to be killed: publisher.py START_NS."""

import sys
import time

from planner_bench import Bench

if __name__ == '__main__':
    bench = Bench(start_ns=int(sys.argv[1]))
    while True:
        time.sleep(60.0)
