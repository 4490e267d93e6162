"""Measuring what operators take on this device, so that a server can predict networks on it (paper 4.1)."""
