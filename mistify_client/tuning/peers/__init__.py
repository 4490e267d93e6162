"""Peers: their models, and the choice of those to learn from."""
