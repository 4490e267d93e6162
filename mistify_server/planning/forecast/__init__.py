"""Forecasts of goals before anything is computed: algorithms, accuracy, seconds (paper 3)."""
