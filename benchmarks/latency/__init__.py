"""Benchmarks of predicted latencies."""
