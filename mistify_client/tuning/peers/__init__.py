"""Peers: their models, and whom to learn from."""
