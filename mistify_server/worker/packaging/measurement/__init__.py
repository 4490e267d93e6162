"""Measurement of converted networks: equality, latency, accuracy, and the gain from a precision."""
