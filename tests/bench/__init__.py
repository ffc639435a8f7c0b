"""Measured figures; see `python -m tests.bench --help`."""
