"""Noise on training data, and the ledger of releases (paper 5.1)."""
