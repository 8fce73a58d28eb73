"""From sensor data to one synchronised Observation. Pure: no ROS, no torch.

Callbacks store (FrameBuffer, EgoBuffer); the inference thread reads (Synchronizer).
"""
