"""The rules that all benchmarks share, and what several of them need."""
