"""Benchmarks of devices that tune packages, alone and with peers."""
