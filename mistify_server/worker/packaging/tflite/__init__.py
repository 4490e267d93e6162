"""Converted networks: their operators, weights and costs, and running them."""
