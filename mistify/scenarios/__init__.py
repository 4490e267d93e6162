"""Scenarios: the tasks of networks, each a set of properties."""
