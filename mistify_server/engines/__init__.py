"""Engines, which run tasks in worker processes of this machine or of others."""
