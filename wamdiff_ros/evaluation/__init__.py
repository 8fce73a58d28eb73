"""Metrics, comparisons and reports: how good plans and checkpoints are."""
