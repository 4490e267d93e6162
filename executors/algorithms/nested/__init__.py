"""Nested networks: one training for all goals of a range."""
