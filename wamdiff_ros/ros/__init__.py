"""The only room that imports rclpy and message packages: the planner node and its parts."""
