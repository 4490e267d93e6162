"""Benchmarks of packages on a device: calls, switching between branches, and memory."""
