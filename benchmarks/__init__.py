"""Benchmarks, a folder per part; `harness/` has the rules they follow, `RESULTS.md` the figures."""
