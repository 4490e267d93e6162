"""Scenarios: the tasks that a network can be asked for, each a set of properties."""
