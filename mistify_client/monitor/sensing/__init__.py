"""Knowledge of the device: its sensors, and how long inferences take on it."""
