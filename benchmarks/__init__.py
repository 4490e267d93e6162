"""Benchmarks, one folder per part. `harness/` has the common rules, `RESULTS.md` the figures."""
