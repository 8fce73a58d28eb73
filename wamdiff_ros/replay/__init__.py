"""The planner over a recording, offline: the node's own buffers, session and policy."""
