"""The profile of this device: timings of operators, from which a server predicts networks (paper 4.1)."""
