"""Benchmarks of latency predictions."""
