"""Checks of a machine: does it have what the planner needs, and if not, what to do."""
