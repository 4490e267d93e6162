"""Forecasts of goals before any adaptation: algorithm, accuracy and time (paper 3)."""
