"""Baselines: uniform scaling and random search."""
