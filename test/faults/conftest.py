import pytest

pytest.importorskip('rclpy', reason='needs ROS 2 (rclpy), see scripts/test')
pytest.importorskip('wamdiff_ros.msg', reason='needs the built messages, see scripts/test')
