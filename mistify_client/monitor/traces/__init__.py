"""Traces: the conditions and decisions of a monitor in a file, and their replay with other settings."""
