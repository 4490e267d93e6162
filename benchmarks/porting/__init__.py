"""Benchmarks of porting: accuracy, steps and seconds of jobs, and what is forecast of them."""
