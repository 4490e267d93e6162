"""The measurement of converted networks: equality, latency, accuracy, and the gain of a precision."""
