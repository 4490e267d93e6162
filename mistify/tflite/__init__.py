"""Splitting and combining of `.tflite` files, used by servers and devices."""
