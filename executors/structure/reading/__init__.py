"""Conversion of a Keras model to a graph of layers."""
