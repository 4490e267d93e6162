"""Benchmarks of porting: accuracy, steps and seconds of jobs, and forecasts."""
