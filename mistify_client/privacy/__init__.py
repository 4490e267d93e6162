"""Noise on training data, and the ledger of what has been released (paper 5.1)."""
