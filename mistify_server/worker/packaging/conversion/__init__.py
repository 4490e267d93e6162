"""Conversion of Keras models to LiteRT."""
