"""Benchmarks of porting: accuracies, steps and times of jobs, and forecasts."""
