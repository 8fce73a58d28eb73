"""Between observation, model and road: prompts, answers, trajectories, what is published.

Pure: no ROS, no torch.
"""
