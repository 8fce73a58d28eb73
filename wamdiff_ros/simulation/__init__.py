"""Worlds that the project makes itself, to drive and to look at."""
