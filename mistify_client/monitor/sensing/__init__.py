"""The state of the device: its sensors, and the latencies of inferences."""
