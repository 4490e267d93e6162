"""Rules and helpers shared by all benchmarks."""
