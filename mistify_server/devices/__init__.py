"""Measured devices, and predictions of latencies on them (paper 4.1)."""
