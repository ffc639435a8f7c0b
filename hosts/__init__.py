"""The host agent: it runs machines on one Linux server and decides when each of them runs."""

__version__ = "0.1.0"
