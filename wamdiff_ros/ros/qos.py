"""Quality of service of every topic (REP-2003), in one place."""

from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy

# What the node hears. Best effort receives from reliable and best-effort publishers alike; images
# are few and large, odometry is small and comes often.
IMAGE_IN = QoSProfile(depth=5, reliability=ReliabilityPolicy.BEST_EFFORT)
MOTION_IN = QoSProfile(depth=20, reliability=ReliabilityPolicy.BEST_EFFORT)
# What the player sends, for subscribers of either kind.
SENSOR_OUT = QoSProfile(depth=10, reliability=ReliabilityPolicy.RELIABLE)
# What the recorder hears: deep enough for what arrives while the disk is slow.
RECORDED = QoSProfile(depth=200, reliability=ReliabilityPolicy.RELIABLE)
# What whoever comes late still has to learn.
LATCHED = QoSProfile(
    depth=1,
    reliability=ReliabilityPolicy.RELIABLE,
    durability=DurabilityPolicy.TRANSIENT_LOCAL,
)
