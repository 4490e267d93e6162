"""Benchmarks of a server: large jobs, many jobs, interruptions, pages."""
