"""Measured devices as hardware for goals: registration, and fitting of latency models (paper 4.1)."""
