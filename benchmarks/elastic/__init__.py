"""Benchmarks of block packages: subnets, the on-device search for one, and the blocks themselves."""
