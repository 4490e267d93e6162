"""The rules and helpers that benchmarks share."""
