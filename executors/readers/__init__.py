"""Readers, one module for each format of data, and the checks of the data against the model."""
