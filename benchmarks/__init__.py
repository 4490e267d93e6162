"""Benchmarks, one file per table or figure; `harness.py` has the rules, `RESULTS.md` the figures."""
