"""What a monitor knows of the device: its sensors, and how long inferences take."""
