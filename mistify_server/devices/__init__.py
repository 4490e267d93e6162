"""Devices that were measured: what networks will take there (paper 4.1)."""
