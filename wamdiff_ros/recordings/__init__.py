"""Recordings without ROS: bags, what they hold by time, and other files made into bags."""
