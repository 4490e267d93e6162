"""Measured devices as the hardware that goals name: registration, and fits of latencies (paper 4.1)."""
