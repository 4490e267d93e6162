"""Benchmarks of adaptation at run time, without labels."""
