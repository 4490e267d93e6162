"""Benchmarks of packages in blocks: subnets, the search for one on a device, and the blocks."""
