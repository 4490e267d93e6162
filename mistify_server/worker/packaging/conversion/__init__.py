"""The conversion of Keras models to LiteRT."""
