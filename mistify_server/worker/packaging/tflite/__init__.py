"""Converted networks: their operators, weights and costs, and their execution."""
