"""Engines, which run tasks in worker processes on this or other machines."""
