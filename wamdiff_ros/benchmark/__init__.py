"""Measurements: ratios of times that were taken side by side in one process."""
