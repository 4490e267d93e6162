"""Engines as options of a package: measured on this device, and offered if they are worth it."""
