"""Readers, one module per data format, and checks of the data against the model."""
