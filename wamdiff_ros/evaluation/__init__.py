"""Recordings: reading and writing bags, metrics, and what a person looks at afterwards."""
