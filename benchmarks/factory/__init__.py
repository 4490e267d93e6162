"""Benchmarks of NN-Factory: networks for tasks, limits and devices without a step of training."""
